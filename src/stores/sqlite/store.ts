import type { Store } from "../../core/store.ts";
import type { SqliteDatabase } from "./driver.ts";
import { SqliteStore, type SqliteStoreOptions } from "./sqlite-store.ts";

export type { SqliteDatabase, SqliteStatement, SqliteValue } from "./driver.ts";
export { pendingMigrations } from "./open.ts";
export type { SqliteStoreOptions } from "./sqlite-store.ts";

/**
 * Records in an SQLite file: durable on one machine, for any number of its processes, without a server. The file, its
 * folder and its tables are made when they are missing.
 *
 * A connection of your own is put into WAL mode, under the `synchronous` setting chosen here, a busy timeout of two
 * seconds, a write-ahead log of 64 MiB and a cache of at least 16 MiB, and stays open when the store is closed. Do not
 * leave a transaction open on it across an `await`: what Latchkey has to write meanwhile is refused.
 *
 * A file that your application has open as well must be opened with the same driver in the same process, or by that
 * connection of your own: two copies of SQLite in one process do not see each other's locks.
 *
 * In an atomic phase `tx` is that connection, within a transaction, so that your tables belong into the same file. The
 * phase must not wait for anything but its own statements: all of Latchkey's writes in this process wait for it, and
 * whatever else runs on the connection meanwhile would become a part of the transaction.
 *
 * @example
 * ```ts
 * const latchkey = createLatchkey({ store: sqliteStore("./data/latchkey.db"), tenant: "single" });
 * ```
 */
export function sqliteStore(path: string, options?: SqliteStoreOptions): Store<SqliteDatabase>;
export function sqliteStore<Database extends SqliteDatabase>(
  database: Database,
  options?: SqliteStoreOptions,
): Store<Database>;
export function sqliteStore(
  database: string | SqliteDatabase,
  options: SqliteStoreOptions = {},
): Store<SqliteDatabase> {
  return new SqliteStore(database, options);
}
