import pg from "pg";
import { latchkeyOn } from "./contenders.js";

const rowsPerStatement = 500_000; // Short enough to show progress, and not to hold up a checkpoint.

/**
 * Fills the table of records with completed ones under random keys, each a copy of what one real operation left. The
 * indexes are dropped before and made again afterwards: kept up row by row, fifty million would take hours.
 *
 * @param {string} url of a database that has no records yet
 * @param {number} rows
 * @param {(done: number) => void} [progress]
 * @returns {Promise<{ seconds: number, bytes: number }>} how long it took, and what the table and its indexes occupy
 */
export async function fillRecords(url, rows, progress) {
  const begun = performance.now();
  const latchkey = await latchkeyOn(url);
  await latchkey.operation();
  await latchkey.close();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query("SET maintenance_work_mem = '512MB'");
    await client.query("CREATE TABLE one_record AS TABLE latchkey_records");
    await client.query("TRUNCATE latchkey_records");
    const remake = await dropIndexes(client);
    // What is settled fills its pages; the room that is left on new ones is for what is only reserved.
    const { rows: options } = await client.query(
      "SELECT array_to_string(reloptions, ', ') AS before FROM pg_class WHERE oid = 'latchkey_records'::regclass",
    );
    await client.query("ALTER TABLE latchkey_records SET (fillfactor = 100)");
    const columns = await columnsOf(client);
    const values = columns.map((column) => variants[column] ?? column);
    for (let first = 1; first <= rows; first += rowsPerStatement) {
      const last = Math.min(rows, first + rowsPerStatement - 1);
      await client.query(
        `INSERT INTO latchkey_records (${columns}) SELECT ${values}
         FROM one_record, generate_series(${first}, ${last}) AS n`,
      );
      progress?.(last);
    }
    for (const statement of remake) await client.query(statement);
    await client.query(`ALTER TABLE latchkey_records SET (${options[0].before})`);
    await client.query("VACUUM (ANALYZE) latchkey_records");
    await client.query("CHECKPOINT");
    const { rows: sizes } = await client.query(
      "SELECT pg_total_relation_size('latchkey_records')::float8 AS bytes",
    );
    return { seconds: (performance.now() - begun) / 1000, bytes: sizes[0].bytes };
  } finally {
    await client.end();
  }
}

/** @type {Record<string, string>} */
const variants = {
  key: "gen_random_uuid()::text",
  expires_at: "expires_at + n * interval '1 millisecond'",
  kept_until: "NULL",
};

/**
 * @param {pg.Client} client
 * @returns {Promise<string[]>} the names of all columns that can be written
 */
async function columnsOf(client) {
  const { rows } = await client.query(
    `SELECT column_name FROM information_schema.columns
     WHERE table_name = 'latchkey_records' AND is_generated = 'NEVER' ORDER BY ordinal_position`,
  );
  return rows.map((row) => row.column_name);
}

/**
 * @param {pg.Client} client
 * @returns {Promise<string[]>} the statements that make them again
 */
async function dropIndexes(client) {
  const { rows: constraints } = await client.query(
    `SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint
     WHERE conrelid = 'latchkey_records'::regclass AND contype IN ('p', 'u')`,
  );
  for (const { name } of constraints) {
    await client.query(`ALTER TABLE latchkey_records DROP CONSTRAINT ${name}`);
  }
  const { rows: indexes } = await client.query(
    "SELECT indexname AS name, indexdef AS definition FROM pg_indexes WHERE tablename = 'latchkey_records'",
  );
  for (const { name } of indexes) await client.query(`DROP INDEX ${name}`);
  return [
    ...constraints.map(
      ({ name, definition }) => `ALTER TABLE latchkey_records ADD CONSTRAINT ${name} ${definition}`,
    ),
    ...indexes.map(({ definition }) => definition),
  ];
}
