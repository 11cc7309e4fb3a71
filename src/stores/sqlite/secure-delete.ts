import { StoreRefusedError } from "../../core/errors.ts";
import { type SqliteDatabase, Statement } from "./driver.ts";

/**
 * Runs `work` so that what it deletes or replaces is overwritten with zeros, also where SQLite moves rows about and gives
 * pages back. Not for everything: removing records with answers of 10 KB would take three times as long.
 */
export function overwriting<T>(database: SqliteDatabase, work: () => T): T {
  const before = Number(new Statement(database, "PRAGMA main.secure_delete").get()?.secure_delete);
  database.exec("PRAGMA main.secure_delete = ON");
  try {
    return work();
  } finally {
    // The connection may be the application's, and so is the setting.
    database.exec(`PRAGMA main.secure_delete = ${modes[before] ?? "OFF"}`);
  }
}

/** As SQLite numbers them. */
const modes = ["OFF", "ON", "FAST"] as const;

/** Empties the write-ahead log, in which what was deleted stands until somebody writes over it. */
export function emptyLog(database: SqliteDatabase): void {
  const row = new Statement(database, "PRAGMA main.wal_checkpoint(TRUNCATE)").get();
  if (Number(row?.busy) === 0) return;
  throw new StoreRefusedError(
    "what was removed is still in the log of the SQLite file, because somebody has been reading the file for longer than " +
      "is waited for: call this again when that is over",
  );
}
