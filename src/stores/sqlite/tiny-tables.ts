import { type SqliteDatabase, Statement } from "./driver.ts";

/**
 * Takes from SQLite what ANALYZE once found out about those of our tables that were nearly empty then. It believes that for as
 * long as nobody runs ANALYZE again, and goes through the whole table instead of looking for rows, however many there are by
 * now: from 3.46 on for many completions in one statement, and for what the reaper does. Of a table that it knows nothing
 * about it assumes that it is large, which is what all statements here are made for.
 *
 * It is only about speed, so nothing that goes wrong here stops anybody.
 */
export function forgetTinyTables(database: SqliteDatabase): void {
  try {
    // Looked for first: a file that has none is not waited for.
    if (new Statement(database, findStatistics).get() === undefined) return;
    if (new Statement(database, tinyTables).get(tinyRows) !== undefined) forget(database);
  } catch {
    // Nobody may look at them.
  }
}

/** The same for a connection that may believe in other numbers than those that are written down by now. */
export function planAnew(database: SqliteDatabase): void {
  try {
    forget(database);
  } catch {
    // There are none, or somebody else has the lock, or nobody may change them.
  }
}

function forget(database: SqliteDatabase): void {
  new Statement(database, `DELETE FROM main.sqlite_stat1 WHERE tbl IN (${tinyTables})`).run(tinyRows);
  // Reads them again, for the plans of this connection.
  database.exec("ANALYZE main.sqlite_master");
}

const findStatistics = "SELECT 1 FROM main.sqlite_master WHERE name = 'sqlite_stat1'";

/** There is a line for each index, and one with a condition may have few rows in a large table. */
const tinyTables = `
  SELECT tbl
    FROM main.sqlite_stat1
   WHERE substr(tbl, 1, 9) = 'latchkey_'
   GROUP BY tbl
  HAVING max(CAST(stat AS INTEGER)) < ?`;

/** Plans were found to be wrong up to 70 rows, and right from 80 on. */
const tinyRows = 1_000;
