import pg from "pg";
import postgres from "postgres";
import { afterEach, beforeEach, expect, it } from "vitest";
import { ConfigError } from "../../src/core/errors.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { freshDatabase } from "../support/database.ts";
import type { TestDatabase } from "../support/postgres-server.ts";
import { again, complete, eventually, leaseOf, request } from "./postgres-support.ts";

const everyMigration = [
  "0001_records",
  "0002_operations",
  "0003_batches",
  "0004_bust_generation",
  "0005_notes",
  "0006_tenants",
  "0007_listing",
  "0008_settling_in_place",
  "0009_cheaper_rules",
  "0010_settling_by_place",
  "0011_strays",
  "0012_telling",
  "0013_found_by_key",
  "0014_replays_in_one_text",
  "0015_room_for_answers",
];

let database: TestDatabase;
let pool: pg.Pool;

beforeEach(async () => {
  database = await freshDatabase();
  pool = new pg.Pool({ connectionString: database.url });
});

afterEach(async () => {
  await pool.end();
  await database.drop();
});

it("an empty database gets every migration once", async () => {
  expect(await migrate(pool)).toEqual({ applied: everyMigration });
  expect(await migrate(pool)).toEqual({ applied: [] });
});

it("processes that start at once wait for each other, and one applies", async () => {
  const pools = Array.from({ length: 5 }, () => new pg.Pool({ connectionString: database.url, max: 1 }));
  const results = await Promise.all(pools.map((each) => migrate(each)));
  await Promise.all(pools.map((each) => each.end()));
  expect(results.flatMap(({ applied }) => applied)).toEqual(everyMigration);
});

it("postgres.js migrates as well, without a notice on the console", async () => {
  const notices: unknown[] = [];
  const sql = postgres(database.url, { onnotice: (notice) => notices.push(notice) });
  expect(await migrate(sql)).toEqual({ applied: everyMigration });
  expect(await migrate(sql)).toEqual({ applied: [] });
  await sql.end();
  expect(notices).toEqual([]);
});

it("a migration that fails leaves nothing behind", async () => {
  await pool.query("CREATE SEQUENCE latchkey_sessions");
  await expect(migrate(pool)).rejects.toThrow(/latchkey_sessions/);
  const { rows } = await pool.query("SELECT relname FROM pg_class WHERE relname LIKE 'latchkey%'");
  expect(rows).toEqual([{ relname: "latchkey_sessions" }]);
  await pool.query("DROP SEQUENCE latchkey_sessions");
  expect((await migrate(pool)).applied).toEqual(everyMigration);
});

/** As the version before the migration 0013_found_by_key has left the table. */
async function migrateTo12(): Promise<void> {
  await migrate(pool);
  await pool.query(`
    DELETE FROM latchkey_migrations WHERE id = 13;
    DROP INDEX latchkey_records_latest;
    CREATE INDEX latchkey_records_created ON latchkey_records (created_at, scope, key)`);
}

const latest =
  "latchkey_records_latest ON latchkey_records (created_at, scope, key) WHERE created_at > '-infinity'";

async function indexes(): Promise<string[]> {
  const { rows } = await pool.query(
    `SELECT indexrelid::regclass::text AS name FROM pg_index
     WHERE indrelid = 'latchkey_records'::regclass AND indisvalid ORDER BY 1`,
  );
  return rows.map(({ name }) => name);
}

it("an index that was made beside the traffic, before the migration, is taken for its own", async () => {
  await migrateTo12();
  await pool.query(`CREATE INDEX CONCURRENTLY ${latest}`);
  const { rows: made } = await pool.query("SELECT 'latchkey_records_latest'::regclass::oid");
  expect(await migrate(pool)).toEqual({ applied: ["0013_found_by_key"] });
  expect((await pool.query("SELECT 'latchkey_records_latest'::regclass::oid")).rows).toEqual(made);
  expect(await indexes()).not.toContain("latchkey_records_created");
});

it("an index that did not come to its end beside the traffic is made anew", async () => {
  await migrateTo12();
  await pool.query(`CREATE INDEX ${latest}`);
  await pool.query(
    "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'latchkey_records_latest'::regclass",
  );
  expect(await migrate(pool)).toEqual({ applied: ["0013_found_by_key"] });
  expect(await indexes()).toContain("latchkey_records_latest");
});

it("an index is made anew beside those who have read and are about to write", async () => {
  await migrateTo12();
  const client = await pool.connect();
  await client.query("BEGIN; SELECT FROM latchkey_records");
  const migrated = migrate(pool);
  await eventually(async () => {
    const { rows } = await pool.query("SELECT FROM pg_locks WHERE NOT granted");
    return rows.length > 0;
  });
  await client.query("UPDATE latchkey_records SET watched = false; COMMIT");
  client.release();
  expect(await migrated).toEqual({ applied: ["0013_found_by_key"] });
});

it("a database that is newer than the code is refused", async () => {
  await migrate(pool);
  await pool.query("INSERT INTO latchkey_migrations (id, name) VALUES (16, 'from_the_future')");
  await expect(migrate(pool)).rejects.toThrow(ConfigError);
  await expect(migrate(pool)).rejects.toThrow(/at version 16.*up to 15: upgrade/);
});

it("two schemas of one database are two stores", async () => {
  const stores = [];
  for (const schema of ["blue", "green"]) {
    await pool.query(`CREATE SCHEMA ${schema}`);
    const own = new pg.Pool({ connectionString: database.url, options: `-c search_path=${schema}` });
    expect((await migrate(own)).applied).toEqual(everyMigration);
    stores.push({ own, store: postgresStore(own, { lock: "advisory" }) });
  }
  const first = request({ onCrash: "retry" });
  for (const { store } of stores) await leaseOf(store, again(first));
  // Both sessions have the number 1. If their locks mixed, the end of one would not be seen.
  const [blue, green] = stores;
  await blue?.store.close();
  const other = postgresStore(blue?.own as pg.Pool, { lock: "advisory" });
  await expect.poll(() => other.reserve(again(first))).toMatchObject({ kind: "execute", after: "crash" });
  expect(await green?.store.reserve(again(first))).toMatchObject({ kind: "inFlight" });
  await other.close();
  await green?.store.close();
  for (const { own } of stores) await own.end();
});

it("a table without lz4 works the same", async () => {
  await migrate(pool);
  await pool.query("ALTER TABLE latchkey_records ALTER COLUMN response_body SET COMPRESSION pglz");
  const store = postgresStore(pool);
  const first = request();
  await store.settle(await leaseOf(store, first), complete);
  expect(await store.reserve(again(first))).toMatchObject({ kind: "replay" });
});
