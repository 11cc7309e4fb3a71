import { plainPool } from "./contenders.js";
import { fillRecords } from "./filling.js";
import { query } from "./postgres.js";

/**
 * Takes all rows away, as the reaper does, and has Postgres note the room, as autovacuum does. A table that is in use goes on in
 * that room; one that is new is made longer all the time, a page of 8 KB after the other.
 *
 * @param {string} url
 * @param {string} table
 */
export async function leaveRoom(url, table) {
  await query(url, `DELETE FROM ${table}`);
  // What is empty at the end of a table would else be given back.
  await query(url, `VACUUM (ANALYZE, TRUNCATE off) ${table}`);
  await query(url, "CHECKPOINT");
}

/**
 * Room for so many operations in the tables of both contenders, before anybody has used them.
 *
 * @param {string} url
 * @param {{ latchkey: number, pool: number }} operations
 */
export async function makeRoom(url, operations) {
  // A record is written twice until it is completed, and what is only reserved fills its page to a quarter.
  await fillRecords(url, 2 * operations.latchkey);
  await leaveRoom(url, "latchkey_records");
  const pool = await plainPool(url);
  await pool.operation();
  await pool.close();
  await query(
    url,
    `INSERT INTO plain_records (key, state, response)
     SELECT gen_random_uuid()::text, state, response
     FROM (SELECT * FROM plain_records LIMIT 1) AS one, generate_series(1, $1)`,
    [2 * operations.pool],
  );
  await leaveRoom(url, "plain_records");
}
