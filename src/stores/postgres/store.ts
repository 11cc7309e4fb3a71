import type { Store } from "../../core/store.ts";
import { databaseOf, type PostgresClient, type TransactionOf } from "./database.ts";
import { DistributedStore } from "./distributed/distributed-store.ts";
import { checkedOptions, type PostgresStoreOptions } from "./options.ts";
import { PostgresStore } from "./postgres-store.ts";

export type { PostgresClient, TransactionOf } from "./database.ts";
export { type MigrateOptions, migrate, type PendingMigrations, pendingMigrations } from "./migrate.ts";
export type { PostgresStoreOptions } from "./options.ts";

/**
 * Records in your own Postgres, 14 or newer, through your own client. Run `migrate` once before.
 *
 * With the default options it needs nothing that outlives a statement or a transaction, so it works behind a
 * transaction pool.
 *
 * @example
 * ```ts
 * const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
 * await migrate(pool);
 * const latchkey = createLatchkey({ store: postgresStore(pool), tenant: "single" });
 * ```
 */
export function postgresStore<Client extends PostgresClient>(
  client: Client,
  options: PostgresStoreOptions = {},
): Store<TransactionOf<Client>> {
  const { engine } = checkedOptions(options);
  const database = databaseOf(client, engine);
  return engine === "distributed" ? new DistributedStore(database) : new PostgresStore(database, options);
}
