import type pg from "pg";
import { unusualOf } from "../../src/stores/postgres/statements/sql.ts";
import type { SqliteDatabase } from "../../src/stores/sqlite/store.ts";

/*
 * A million records of the last 24 hours, made by the database itself, one every 86.4 ms. What each is follows from its number
 * `i`, so that questions can be asked whose answers are known.
 */
export const recordCount = 1_000_000;

const dayMs = 24 * 60 * 60 * 1000;

/** Tenants of very different size. Half of what the largest has is in scopes of their own, one for each record. */
const scope = `CASE
    WHEN i = 500000 THEN 'one'
    WHEN i % 1000 = 7 THEN 'thousand'
    WHEN i % 1000 = 8 THEN 'shop POST /carts/' || (i / 1000)
    WHEN i <= 40000 AND i % 4 = 3 THEN 'early'
    WHEN i % 10 < 3 THEN 'whale POST /rides/' || i
    WHEN i % 10 < 6 THEN 'whale'
    ELSE 'tenant-' || (i % 31 * (i % 29) * (i % 37) / 32)
  END`;

/** 97 % are done. What is under way is among the latest, and nothing has expired. */
const state = `CASE
    WHEN i > 998000 THEN 'in_progress'
    WHEN i % 250000 = 77 THEN 'pending'
    WHEN i % 50 = 11 THEN 'failed_retryable'
    WHEN i % 200 = 12 THEN 'unknown'
    ELSE 'completed'
  END`;

const route = `CASE
    WHEN i % 10000 = 33 THEN 'rare'
    WHEN i % 10 = 4 THEN 'refunds'
    WHEN i % 7 = 5 THEN NULL
    ELSE 'payments'
  END`;

const columns = `scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, reconcile_after,
  reason, completed_at, response_status, response_head, response_body, route, resume_after, claims, reconcile_ms`;

/** Times are expressions of milliseconds ago, as the database writes them. */
function selection(time: (ms: string) => string, body: string): string {
  const only = (states: string, value: string) => `CASE WHEN state IN (${states}) THEN ${value} END`;
  const created = time("at_ms");
  const later = time(`at_ms + ${dayMs}`);
  return `
SELECT ${scope}, 'key-' || (i * 7919 % ${recordCount}) || '-4f1c-9b7e-2a66d5c0', state,
  '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08', 1, 'reconcile', ${created}, ${later}, 'owner-' || i,
  ${only("'in_progress'", later)}, ${only("'unknown'", later)},
  ${only("'unknown', 'failed_retryable'", "'no answer came'")},
  ${only("'completed'", created)}, ${only("'completed'", "201")},
  ${only("'completed'", `'[["content-type","application/json"]]'`)}, ${only("'completed'", body)}, ${route},
  ${only("'pending'", later)}, 0, 30000`;
}

/** Indexes are made when the records are there, which is several times as fast. */
export async function fillPostgres(pool: pg.Pool, now: number): Promise<void> {
  const { rows: indexes } = await pool.query<{ name: string; definition: string }>(
    `SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
     FROM pg_index WHERE indrelid = 'latchkey_records'::regclass AND NOT indisprimary`,
  );
  // Nobody would want these records back after a crash, and writing them down twice takes twice as long.
  await pool.query(`
    ALTER TABLE latchkey_records SET UNLOGGED;
    ALTER TABLE latchkey_records SET (fillfactor = 100);
    ALTER TABLE latchkey_records DROP CONSTRAINT latchkey_records_pkey;
    ${indexes.map(({ name }) => `DROP INDEX ${name};`).join("\n")}`);
  const time = (ms: string) => `to_timestamp((${ms}) / 1000.0)`;
  await pool.query(`
    INSERT INTO latchkey_records (${columns}, unusual, lapses_at)
    ${selection(time, "decode(repeat('a1b2c3d4e5', 100), 'hex')")}, ${unusualOf("state")}, NULL::timestamptz
    FROM (
      SELECT i, ${now}::bigint - (${recordCount} - i) * ${dayMs}::bigint / ${recordCount} AS at_ms, ${state} AS state
      FROM generate_series(1::bigint, ${recordCount}) AS i
    ) AS numbered`);
  await pool.query("ALTER TABLE latchkey_records ADD PRIMARY KEY (scope, key)");
  for (const { definition } of indexes) await pool.query(definition);
  await pool.query("ANALYZE latchkey_records");
}

export function fillSqlite(database: SqliteDatabase, now: number): void {
  const indexes = database
    .prepare(
      "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'latchkey_records' AND type = 'index' AND sql IS NOT NULL",
    )
    .all() as { name: string; sql: string }[];
  // As above: nothing is written twice, and nobody waits for the disk.
  database.exec("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -400000");
  for (const { name } of indexes) database.exec(`DROP INDEX ${name}`);
  database.exec(`
    WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < ${recordCount})
    INSERT INTO latchkey_records (${columns}) ${selection((ms) => ms, "zeroblob(500)")}
    FROM (
      SELECT i, ${now} - (${recordCount} - i) * ${dayMs} / ${recordCount} AS at_ms, ${state} AS state
      FROM numbers
    )`);
  for (const { sql } of indexes) database.exec(sql);
  database.exec("PRAGMA cache_size = -16384; PRAGMA synchronous = FULL; PRAGMA journal_mode = WAL");
}
