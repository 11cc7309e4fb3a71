import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createConnection } from "mysql2/promise";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { statementsOf } from "../../src/stores/mysql/migrate.ts";
import { openDatabase } from "../../src/stores/sqlite/driver.ts";
import { freshDatabase } from "../support/database.ts";
import { startMariadb } from "../support/mariadb-server.ts";
import { startRedis } from "../support/redis-server.ts";
import { CommandLine } from "./command-line.ts";

let latchkey: CommandLine;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
});
afterAll(() => latchkey.remove());

describe("SQLite", () => {
  const schemaOf = (path: string) => {
    const database = openDatabase(path);
    const rows = database
      .prepare("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
      .all();
    const applied = database.prepare("SELECT id, name FROM latchkey_migrations ORDER BY id").all();
    database.close();
    return { rows, applied };
  };

  it("--dry-run prints what would be applied and makes no file; what it prints is what migrate does", async () => {
    const path = join(latchkey.folder, "dry.db");
    const dry = await latchkey.run(["migrate", "--dry-run", "--store", `sqlite:${path}`]);
    expect(dry).toMatchObject({ code: 0, stderr: "" });
    expect(existsSync(path)).toBe(false);

    const byHand = openDatabase(join(latchkey.folder, "by-hand.db"));
    byHand.exec(dry.stdout);
    byHand.close();
    const migrated = await latchkey.run(["migrate", "--store", `sqlite:${path}`]);
    expect(migrated).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("applied 0001_records, 0002_"),
    });
    expect(schemaOf(join(latchkey.folder, "by-hand.db"))).toEqual(schemaOf(path));
    for (const file of ["by-hand.db", "dry.db"]) {
      const again = await latchkey.run(["migrate", "--json"], {
        env: { LATCHKEY_STORE: `sqlite:./${file}` },
      });
      expect(JSON.parse(again.stdout)).toEqual({ store: `sqlite:./${file}`, applied: [], pending: [] });
    }
  });

  it("a file that lacks a migration is not opened by any other command", async () => {
    const path = join(latchkey.folder, "old.db");
    await latchkey.run(["migrate", "--store", `sqlite:${path}`]);
    const database = openDatabase(path);
    database.exec("DELETE FROM latchkey_migrations WHERE id = (SELECT max(id) FROM latchkey_migrations)");
    database.close();
    const { code, stderr } = await latchkey.run(["stats", "--store", `sqlite:${path}`]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/lacks 1 migrations of this version .*: run latchkey migrate/);
  });

  it("a file that is not there is not made by any other command", async () => {
    const path = join(latchkey.folder, "typo.db");
    const { code, stderr } = await latchkey.run(["inspect", "k", "--store", `sqlite:${path}`]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/there is no file .*typo\.db: check the URL/);
    expect(existsSync(path)).toBe(false);
  });

  it("a file that is no database is one sentence", async () => {
    const path = join(latchkey.folder, "letter.db");
    writeFileSync(path, "Dear database, ".repeat(100));
    const { code, stdout, stderr } = await latchkey.run(["migrate", "--store", `sqlite:${path}`]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^latchkey: the SQLite database .* cannot be used: .*not a database.*\n$/);
    expect(readFileSync(path, "utf8")).toMatch(/^Dear/);
  });
});

describe("Postgres", () => {
  const fresh = async () => {
    const { url, drop } = await freshDatabase();
    onTestFinished(drop);
    return url;
  };
  const connected = async (url: string) => {
    const client = new Client({ connectionString: url });
    await client.connect();
    onTestFinished(() => client.end());
    return client;
  };
  /** Tables, columns, indexes and functions, however they came to be. */
  const schemaOf = async (client: Client) => {
    const { rows } = await client.query(`
      SELECT 'column' AS what, table_name || '.' || column_name AS name, data_type || coalesce(column_default, '') AS text
      FROM information_schema.columns WHERE table_schema = 'public'
      UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
      UNION ALL SELECT 'function', proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
      UNION ALL SELECT 'migration', name, id::text FROM latchkey_migrations
      ORDER BY 1, 2, 3`);
    return rows;
  };

  it.each([
    ["plain tables", []],
    ["partitioned tables", ["--partitioned", "day"]],
  ])(
    "%s: what --dry-run prints does exactly what migrate does, and changes nothing itself",
    async (_, flags) => {
      const [url, other] = [await fresh(), await fresh()];
      const dry = await latchkey.run(["migrate", "--dry-run", ...flags, "--store", url]);
      expect(dry).toMatchObject({ code: 0, stderr: "" });
      const client = await connected(url);
      expect((await client.query("SELECT FROM pg_tables WHERE schemaname = 'public'")).rowCount).toBe(0);

      await client.query(dry.stdout);
      const migrated = await latchkey.run(["migrate", ...flags, "--store", other]);
      expect(migrated).toMatchObject({ code: 0, stdout: expect.stringMatching(/^applied 0001_records, /) });
      expect(await schemaOf(client)).toEqual(await schemaOf(await connected(other)));
      const again = await latchkey.run(["migrate", ...flags, "--store", url]);
      expect(again.stdout).toBe("nothing to apply: the store is ready\n");
    },
  );

  it("--json has each pending migration by its name", async () => {
    const { stdout } = await latchkey.run(["migrate", "--dry-run", "--json", "--store", await fresh()]);
    const { pending } = JSON.parse(stdout) as { pending: { name: string; sql: string }[] };
    expect(pending[0]).toMatchObject({ name: "0001_records", sql: expect.stringContaining("CREATE TABLE") });
  });

  it("the tables of distributed engines are migrated by a flag", async () => {
    const [url, other] = [await fresh(), await fresh()];
    const dry = await latchkey.run(["migrate", "--distributed", "--dry-run", "--store", url]);
    await (await connected(url)).query(dry.stdout);
    const first = await latchkey.run(["migrate", "--distributed", "--store", url]);
    expect(first.stdout).toBe("nothing to apply: the store is ready\n");
    const { stdout } = await latchkey.run(["migrate", "--distributed", "--store", other]);
    expect(stdout).toMatch(/^applied 0001_tables, /);
  });

  it("a database without tables is told from one that cannot be reached", async () => {
    const { code, stderr } = await latchkey.run(["stats", "--store", await fresh()]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/run latchkey migrate/);
  });
});

it("MariaDB: what --dry-run prints is what migrate does, as the mysql command reads it", {
  timeout: 60_000,
}, async () => {
  const server = await startMariadb();
  onTestFinished(() => server.remove());
  const { url } = await server.createDatabase();
  const dry = await latchkey.run(["migrate", "--dry-run", "--store", url]);
  expect(dry).toMatchObject({ code: 0, stderr: "" });
  const connection = await createConnection(url);
  onTestFinished(() => connection.end());
  for (const statement of statementsOf(dry.stdout)) await connection.query(statement);
  const again = await latchkey.run(["migrate", "--store", url]);
  expect(again).toEqual({ code: 0, stdout: "nothing to apply: the store is ready\n", stderr: "" });
});

it("says of a store without tables that there is nothing to migrate", async () => {
  const { url, stop } = await startRedis();
  onTestFinished(async () => void (await stop()));
  for (const store of [url, "memory:"]) {
    const { code, stdout } = await latchkey.run(["migrate", "--dry-run", "--store", store]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringMatching(/^-- nothing to migrate: /) });
  }
});

it("a terminal sees how far it has come, and a file does not", async () => {
  const args = (name: string) => ["migrate", "--store", `sqlite:${join(latchkey.folder, name)}`];
  const seen = await latchkey.inTerminal(args("bar.db"));
  expect(seen.stdout).toMatch(/\[#+-*\] \d of \d migrations/);
  expect((await latchkey.run(args("no-bar.db"))).stderr).toBe("");
});
