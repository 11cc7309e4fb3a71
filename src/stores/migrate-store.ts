import { kindOfUrl, mysqlPool, openStore, postgresPool, sqlitePath } from "./open-store.ts";
import type { MigrateOptions } from "./postgres/store.ts";

export interface MigrateStoreOptions extends MigrateOptions {
  /** Changes nothing, and answers with what would be applied. */
  readonly dryRun?: boolean;
}

/** What became of it, or would. */
export type StoreMigration =
  | { readonly kind: "migrated"; readonly applied: readonly string[] }
  | {
      readonly kind: "pending";
      readonly pending: readonly { readonly name: string; readonly sql: string }[];
      /** All of it, as the database's own command line takes it. */
      readonly script: string;
    }
  /** The store has no tables that have to be made; `because` says what it has instead. */
  | { readonly kind: "nothing"; readonly because: string };

/** Brings the tables of a store to the version of this code, or says what that would take. */
export async function migrateStore(url: string, options: MigrateStoreOptions): Promise<StoreMigration> {
  const kind = kindOfUrl(url);
  switch (kind) {
    case "sqlite":
      return migrateSqlite(url, options);
    case "postgres":
      return migratePostgres(url, options);
    case "mysql":
      return migrateMysql(url, options);
    case "dynamodb":
      return migrateDynamodb(url, options);
    case "redis":
    case "redis-cluster":
      return { kind: "nothing", because: "Redis has no tables: the store makes its keys as it needs them" };
    case "memory":
      return { kind: "nothing", because: "a store in memory begins empty with each process" };
    default:
      return kind satisfies never;
  }
}

async function migrateSqlite(
  url: string,
  { dryRun, onApplied }: MigrateStoreOptions,
): Promise<StoreMigration> {
  const { pendingMigrations, sqliteStore } = await import("./sqlite/store.ts");
  const path = sqlitePath(url);
  const { pending, script } = pendingMigrations(path);
  if (dryRun) return { kind: "pending", pending, script };
  // Opening it is what migrates it, in one transaction.
  await sqliteStore(path).close();
  const applied = pending.map(({ name }) => name);
  for (const [index, name] of applied.entries()) {
    onApplied?.(name, { done: index + 1, total: applied.length });
  }
  return { kind: "migrated", applied };
}

async function migratePostgres(
  url: string,
  { dryRun, ...options }: MigrateStoreOptions,
): Promise<StoreMigration> {
  const { migrate, pendingMigrations } = await import("./postgres/store.ts");
  const pool = await postgresPool(url);
  try {
    if (dryRun) return { kind: "pending", ...(await pendingMigrations(pool, options)) };
    return { kind: "migrated", ...(await migrate(pool, options)) };
  } finally {
    await pool.end();
  }
}

async function migrateMysql(
  url: string,
  { dryRun = false, onApplied }: MigrateStoreOptions,
): Promise<StoreMigration> {
  const { migrate, migrationScript } = await import("./mysql/store.ts");
  const pool = await mysqlPool(url);
  try {
    const { applied, pending } = await migrate(pool, { dryRun, ...(onApplied && { onApplied }) });
    if (dryRun) return { kind: "pending", pending, script: migrationScript(pending) };
    return { kind: "migrated", applied };
  } finally {
    await pool.end();
  }
}

/** No SQL: a dry run says so without asking anybody. */
async function migrateDynamodb(url: string, { dryRun }: MigrateStoreOptions): Promise<StoreMigration> {
  if (dryRun) {
    return {
      kind: "nothing",
      because:
        "DynamoDB has one table and no SQL: latchkey migrate creates the table if it is missing, as tableDefinition() " +
        "of latchkey/dynamodb describes it",
    };
  }
  const store = await openStore(url, { migrate: true });
  await store.close();
  return { kind: "migrated", applied: [] };
}
