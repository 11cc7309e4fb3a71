import type { Store } from "../../core/store.ts";
import { Database, type MysqlConnection, type MysqlPool } from "./database.ts";
import { MysqlStore, type MysqlStoreOptions } from "./mysql-store.ts";

export type { MysqlConnection, MysqlPool } from "./database.ts";
export { type MigrateOptions, type MigrateResult, migrate, migrationScript } from "./migrate.ts";
export type { MysqlStoreOptions } from "./mysql-store.ts";

/**
 * Records in your own MySQL (8.0.19 or newer) or MariaDB (10.6 or newer), through your own pool of mysql2. Run
 * `migrate` once before. The tables are InnoDB, whatever the server's default is.
 *
 * In an atomic phase `tx` is a connection of `mysql2/promise`, within a transaction.
 *
 * @example
 * ```ts
 * const pool = mysql.createPool(process.env.DATABASE_URL); // from mysql2/promise
 * await migrate(pool);
 * const latchkey = createLatchkey({ store: mysqlStore(pool), tenant: "single" });
 * ```
 */
export function mysqlStore(pool: MysqlPool, options: MysqlStoreOptions = {}): Store<MysqlConnection> {
  return new MysqlStore(new Database(pool), options);
}
