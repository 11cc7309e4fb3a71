import { ConfigError } from "../../core/errors.ts";
import { loadMigrations, refuseNewer } from "../migrations.ts";
import { databaseOf, type Engine, type PostgresClient, type Query } from "./database.ts";
import { migrateDistributed } from "./distributed/migrate.ts";
import { checkEngine } from "./options.ts";
import { createPartitions } from "./partitions.ts";
import * as partitions from "./statements/partitions.ts";

export interface MigrateOptions {
  /**
   * Makes a records table of one partition for each day or hour, whose expired records are dropped together. Can only
   * be chosen for an empty database, and `postgresStore` has to be told of it.
   */
  readonly partitioned?: "day" | "hour";
  /** `distributed` makes the tables for `postgresStore(pool, { engine: "distributed" })`. */
  readonly engine?: Engine;
}

/**
 * Brings the tables to the version of this code. All of it happens in one transaction, and processes that start at
 * once wait for each other: calling it at every start is fine.
 *
 * @example
 * ```ts
 * const { applied } = await migrate(pool); // ["0001_records", "0002_operations", …], then []
 * ```
 */
export async function migrate(
  client: PostgresClient,
  options: MigrateOptions = {},
): Promise<{ applied: string[] }> {
  const { partitioned, engine } = checked(options);
  if (engine === "distributed") return migrateDistributed(databaseOf(client, engine).query);
  return databaseOf(client).transaction(
    async (query) => {
      await query(takeTurns);
      const appliedBefore = await appliedMigrations(query);
      const known = loadMigrations(new URL("./migrations/", import.meta.url));
      refuseNewer(appliedBefore, known.length);
      const applied: string[] = [];
      for (const { id, name, sql } of known) {
        if (appliedBefore.has(id)) continue;
        await query(sql);
        await query(remember, [id, name]);
        applied.push(`${String(id).padStart(4, "0")}_${name}`);
      }
      await partition(query, {
        wanted: partitioned,
        isNew: appliedBefore.size === 0,
        hasChanged: applied.length > 0,
      });
      return { applied };
    },
    { isLong: true },
  );
}

/** The eight letters of "latchkey" as a number. Released with the transaction, so a transaction pool is no trouble. */
const takeTurns = `SELECT pg_advisory_xact_lock(${Buffer.from("latchkey").readBigInt64BE()})`;

const createMemory = `
CREATE TABLE latchkey_migrations (
  id         integer PRIMARY KEY,
  name       text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
)`;

const remember = "INSERT INTO latchkey_migrations (id, name) VALUES ($1, $2)";

/** Asks before it creates: CREATE TABLE IF NOT EXISTS prints a notice at every start. */
async function appliedMigrations(query: Query): Promise<ReadonlySet<number>> {
  const [memory] = await query<{ exists: boolean }>(
    "SELECT to_regclass('latchkey_migrations') IS NOT NULL AS exists",
  );
  if (!memory?.exists) await query(createMemory);
  const rows = await query<{ id: number }>("SELECT id FROM latchkey_migrations");
  return new Set(rows.map(({ id }) => id));
}

async function partition(
  query: Query,
  { wanted, isNew, hasChanged }: { wanted: Width | undefined; isNew: boolean; hasChanged: boolean },
): Promise<void> {
  if (wanted !== undefined && isNew) {
    await query(partitions.partitionRecords(wanted));
    await createPartitions(query);
  }
  const [table] = await query<{ partitioned: boolean }>(partitions.isPartitioned);
  if (!table?.partitioned) {
    if (wanted === undefined) return;
    throw new ConfigError(
      "the Latchkey tables in this database are not partitioned, and partitions can only be chosen for an empty " +
        "database: leave out partitioned, or migrate another database or schema",
    );
  }
  if (wanted !== undefined) await refuseOtherWidth(query, wanted);
  // They insert records, so they are as new as the columns are.
  if (!hasChanged) return;
  await query(partitions.reserveFunction);
  await query(partitions.reserveBatchFunction);
}

type Width = keyof typeof partitions.partitionWidths;

async function refuseOtherWidth(query: Query, wanted: Width): Promise<void> {
  const [width] = await query<{ same: boolean }>(partitions.hasWidth, [partitions.partitionWidths[wanted]]);
  if (width?.same) return;
  throw new ConfigError(
    `partitioned is "${wanted}", and the tables in this database were made with partitions of another length: ` +
      "say what they were made with",
  );
}

function checked(options: MigrateOptions): { partitioned: Width | undefined; engine: Engine } {
  const { partitioned, engine = "postgres" } = options;
  if (partitioned !== undefined && !Object.hasOwn(partitions.partitionWidths, partitioned)) {
    throw new ConfigError(`partitioned is "${partitioned}" and must be "day" or "hour"`);
  }
  checkEngine(engine, { partitioned: partitioned !== undefined });
  return { partitioned, engine };
}
