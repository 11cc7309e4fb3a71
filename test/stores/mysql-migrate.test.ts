import { readFileSync } from "node:fs";
import mysql, { type Pool, type RowDataPacket } from "mysql2/promise";
import { describe, expect, it } from "vitest";
import { ConfigError } from "../../src/core/errors.ts";
import { statementsOf } from "../../src/stores/mysql/migrate.ts";
import { migrate, mysqlStore } from "../../src/stores/mysql/store.ts";
import { leaseOf, nothingLeftOpen, request, useMysql } from "./mysql-support.ts";

const files = useMysql();
const folder = new URL("../../src/stores/mysql/migrations/", import.meta.url);
const names = ["0001_records", "0002_notes_and_tenants", "0003_listing"];
const scripts = names.map((name) => readFileSync(new URL(`${name}.sql`, folder), "utf8"));

async function emptyPool(): Promise<Pool> {
  return files.pool({ uri: await files.emptyDatabase() });
}

async function works(pool: Pool): Promise<void> {
  const store = mysqlStore(pool);
  await store.settle(await leaseOf(store, request()), {
    kind: "release",
    reason: "to be tried again",
    retentionMs: 1_000,
  });
  expect(await store.outbox?.counts()).toMatchObject({ waiting: 0 });
}

async function tables(pool: Pool): Promise<string[]> {
  const [rows] = await pool.query<RowDataPacket[]>({ sql: "SHOW TABLES", rowsAsArray: true });
  return rows.map((row) => String(row[0])).sort();
}

describe("migrate", () => {
  it("makes everything once, and then nothing more", async () => {
    const pool = await emptyPool();
    expect(await migrate(pool)).toEqual({ applied: names, pending: [] });
    expect(await tables(pool)).toEqual(
      ["audit", "lanes", "migrations", "notes", "outbox", "records"].map((name) => `latchkey_${name}`),
    );
    expect(await migrate(pool)).toEqual({ applied: [], pending: [] });
    await works(pool);
  });

  it("in a dry run tells what it would do, and changes nothing", async () => {
    const pool = await emptyPool();
    expect(await migrate(pool, { dryRun: true })).toEqual({
      applied: [],
      pending: names.map((name, index) => ({ name, sql: scripts[index] })),
    });
    expect(await tables(pool)).toEqual([]);
    await migrate(pool);
    expect(await migrate(pool, { dryRun: true })).toEqual({ applied: [], pending: [] });
  });

  it("five processes at once: one does it, the others wait", async () => {
    const uri = await files.emptyDatabase();
    const results = await Promise.all(Array.from({ length: 5 }, () => migrate(files.pool({ uri }))));
    expect(results.flatMap(({ applied }) => applied)).toEqual(names);
    await works(files.pool({ uri }));
  });

  it("processes without autocommit: the others see what one has done", async () => {
    const uri = await files.emptyDatabase();
    const start = () => {
      const pool = files.pool({ uri });
      pool.pool.on("connection", (connection) =>
        connection.query("SET autocommit = 0, innodb_lock_wait_timeout = 1"),
      );
      return migrate(pool);
    };
    const results = await Promise.all([start(), start(), start()]);
    expect(results.flatMap(({ applied }) => applied)).toEqual(names);
    expect((await start()).applied).toEqual([]);
    await nothingLeftOpen(files);
    expect((await migrate(files.pool({ uri }), { dryRun: true })).pending).toEqual([]);
  });

  it("goes on after an interruption, wherever that was", async () => {
    const [first = [], second = [], third = []] = scripts.map(statementsOf);
    const statements = [...first, ...second, ...third];
    const [all, two] = [statements.length, first.length + second.length];
    for (const done of [1, 4, 5, 6, first.length - 1, two - 1, two, two + 2, all - 1, all]) {
      const pool = await emptyPool();
      for (const statement of statements.slice(0, done)) await pool.query(statement);
      expect((await migrate(pool)).applied, `after ${done} statements`).toEqual(names);
      await works(pool);
      const [lanes] = await pool.query<RowDataPacket[]>("SELECT COUNT(*) AS lanes FROM latchkey_lanes");
      expect(lanes[0]?.lanes).toBe(64);
    }
  });

  it("goes on after an interruption between two changes of tables", async () => {
    const [first = "", second = ""] = scripts;
    const changes = second.match(/ALTER TABLE[^;]+/g) ?? [];
    expect(changes).toHaveLength(3);
    for (const done of [1, 2]) {
      const pool = await emptyPool();
      const before = [...statementsOf(first), ...statementsOf(second).slice(0, 1), ...changes.slice(0, done)];
      for (const statement of before) await pool.query(statement);
      expect((await migrate(pool)).applied).toEqual(names);
      const [keys] = await pool.query<RowDataPacket[]>(
        "SELECT DISTINCT index_name AS name FROM information_schema.statistics WHERE table_schema = DATABASE()",
      );
      const missing = changes.map((change) => /ADD KEY (\w+)/.exec(change)?.[1]);
      expect(keys.map(({ name }) => String(name))).toEqual(expect.arrayContaining(missing));
    }
  });

  it("keeps the messages that were enqueued before they named their scope", async () => {
    const pool = await emptyPool();
    for (const statement of statementsOf(scripts[0] ?? "")) await pool.query(statement);
    await pool.query(`
      CREATE TABLE latchkey_migrations (
        id INT NOT NULL PRIMARY KEY, name VARBINARY(1024) NOT NULL,
        applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE = InnoDB`);
    await pool.query("INSERT INTO latchkey_migrations (id, name) VALUES (1, '0001_records')");
    await pool.query(`
      INSERT INTO latchkey_outbox (
             lane, waiting_lane, topic, message_key, correlation_id, due_at, created_at, died_at, error, payload)
      VALUES (0, 0, 'rides', 'waits', 'request', 1, 1, NULL, NULL, '{}'),
             (0, NULL, 'rides', 'dead', 'request', 1, 1, 2, 'refused', '{}')`);
    expect((await migrate(pool)).applied).toEqual(names.slice(1));
    const { outbox } = mysqlStore(pool);
    const old = { topic: "rides", scope: "", traceparent: null };
    const claimed = await outbox?.claim({ owner: "relay", limit: 10, leaseMs: 60_000 });
    expect(claimed).toMatchObject([{ ...old, key: "waits" }]);
    expect(await outbox?.deadLetters({ limit: 10 })).toMatchObject([{ ...old, key: "dead" }]);
  });

  it("works whatever the session is set to, and leaves it so", async () => {
    const pool = files.pool({ uri: await files.emptyDatabase(), connectionLimit: 1, rowsAsArray: true });
    const modes = "ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES";
    await pool.query(`SET SESSION sql_mode = '${modes}', autocommit = 0`);
    await migrate(pool);
    const [rows] = await pool.query<RowDataPacket[]>("SELECT @@sql_mode");
    expect(String(rows[0]?.[0]).split(",").sort()).toEqual(modes.split(",").sort());
    await works(pool);
    expect((await migrate(pool)).applied).toEqual([]);
  });

  it("refuses tables of a newer version", async () => {
    const pool = await emptyPool();
    await migrate(pool);
    await pool.query("INSERT INTO latchkey_migrations (id, name) VALUES (99, 'later')");
    await expect(migrate(pool)).rejects.toThrow(ConfigError);
    await expect(migrate(pool)).rejects.toThrow(/version 99/);
  });

  it("refuses a pool that has chosen no database", async () => {
    const { protocol, host } = new URL(files.url);
    const pool = mysql.createPool(`${protocol}//root@${host}/`);
    await expect(migrate(pool)).rejects.toThrow(ConfigError);
    await pool.end();
  });

  it("makes tables of InnoDB, whatever the server's default is", async () => {
    const pool = files.pool({ uri: await files.emptyDatabase(), connectionLimit: 1 });
    await pool.query("SET SESSION default_storage_engine = MyISAM");
    await migrate(pool);
    const [rows] = await pool.query<RowDataPacket[]>(
      "SELECT DISTINCT engine AS engine FROM information_schema.tables WHERE table_schema = DATABASE()",
    );
    expect(rows.map(({ engine }) => engine)).toEqual(["InnoDB"]);
  });
});

describe("the statements of a migration", () => {
  it("end with the delimiter that was chosen last", () => {
    expect(
      statementsOf(
        "-- why\nSELECT 1;\n\nDELIMITER //\nCREATE x\nBEGIN\n  DO 1;\nEND //\nDELIMITER ;\nSELECT\n  2;\n",
      ),
    ).toEqual(["SELECT 1", "CREATE x\nBEGIN\n  DO 1;\nEND ", "SELECT\n  2"]);
  });

  it("are all ended", () => {
    expect(() => statementsOf("SELECT 1;\nSELECT 2\n")).toThrow(ConfigError);
  });
});
