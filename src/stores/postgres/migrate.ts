import { ConfigError } from "../../core/errors.ts";
import { idOf, loadMigrations, refuseNewer } from "../migrations.ts";
import { databaseOf, type Engine, type PostgresClient, type Query } from "./database.ts";
import { migrateDistributed, pendingDistributed } from "./distributed/migrate.ts";
import { checkEngine } from "./options.ts";
import * as partitions from "./statements/partitions.ts";

export interface MigrateOptions {
  /**
   * Makes a records table of one partition for each day or hour, whose expired records are dropped together. Can only
   * be chosen for an empty database, and `postgresStore` has to be told of it.
   */
  readonly partitioned?: "day" | "hour";
  /** `distributed` makes the tables for `postgresStore(pool, { engine: "distributed" })`. */
  readonly engine?: Engine;
  /** Called after each migration, with its name; all of it counts only once `migrate` has resolved. */
  readonly onApplied?: (name: string, place: { readonly done: number; readonly total: number }) => void;
}

/** What has yet to be applied, and what `psql` would have to be given to apply it. */
export interface PendingMigrations {
  readonly pending: readonly { readonly name: string; readonly sql: string }[];
  readonly script: string;
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
  const { onApplied } = options;
  if (engine === "distributed") return migrateDistributed(databaseOf(client, engine).query, onApplied);
  return databaseOf(client).transaction(
    async (query) => {
      await query(takeTurns);
      const { files, conversions } = await planOf(query, partitioned);
      for (const [index, { name, sql }] of files.entries()) {
        await query(sql);
        onApplied?.(name, { done: index + 1, total: files.length });
      }
      for (const { sql } of conversions) await query(sql);
      return { applied: files.map(({ name }) => name) };
    },
    { isLong: true },
  );
}

/** What `migrate` would apply now. Changes nothing, and keeps nobody waiting. */
export async function pendingMigrations(
  client: PostgresClient,
  options: MigrateOptions = {},
): Promise<PendingMigrations> {
  const { partitioned, engine } = checked(options);
  const { query } = databaseOf(client, engine);
  if (engine === "distributed") return pendingDistributed(query);
  const { files, conversions } = await planOf(query, partitioned);
  const pending = [...files, ...conversions];
  const steps = pending.map(({ name, sql }) => `-- ${name}\n${sql}\n`);
  const script = pending.length === 0 ? "" : ["BEGIN;", `${takeTurns};`, ...steps, "COMMIT;"].join("\n");
  return { pending, script };
}

/** The eight letters of "latchkey" as a number. Released with the transaction, so a transaction pool is no trouble. */
const takeTurns = `SELECT pg_advisory_xact_lock(${Buffer.from("latchkey").readBigInt64BE()})`;

interface Step {
  readonly name: string;
  readonly sql: string;
}

/** Everything that has to be done, in order: what is printed beforehand is what is done. */
async function planOf(
  query: Query,
  wanted: Width | undefined,
): Promise<{ readonly files: readonly Step[]; readonly conversions: readonly Step[] }> {
  const appliedBefore = await appliedMigrations(query);
  const known = loadMigrations(new URL("./migrations/", import.meta.url));
  refuseNewer(appliedBefore ?? new Set(), known.length);
  const files = known
    .filter(({ id }) => !appliedBefore?.has(id))
    .map(({ id, name, sql }, index) => ({
      name: idOf({ id, name }),
      sql: [
        ...(index === 0 && appliedBefore === undefined ? [createMemory] : []),
        sql.trimEnd(),
        remember(id, name),
      ].join("\n"),
    }));
  const isNew = appliedBefore === undefined || appliedBefore.size === 0;
  return { files, conversions: await conversionsOf(query, { wanted, isNew, hasChanged: files.length > 0 }) };
}

const createMemory = `
CREATE TABLE latchkey_migrations (
  id         integer PRIMARY KEY,
  name       text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
);`;

/** A name is letters, digits and underscores. */
const remember = (id: number, name: string) =>
  `INSERT INTO latchkey_migrations (id, name) VALUES (${id}, '${name}');`;

/** Undefined if nobody has ever migrated. Asks before: CREATE TABLE IF NOT EXISTS prints a notice at every start. */
async function appliedMigrations(query: Query): Promise<ReadonlySet<number> | undefined> {
  const [memory] = await query<{ exists: boolean }>(
    "SELECT to_regclass('latchkey_migrations') IS NOT NULL AS exists",
  );
  if (!memory?.exists) return undefined;
  const rows = await query<{ id: number }>("SELECT id FROM latchkey_migrations");
  return new Set(rows.map(({ id }) => id));
}

/** What partitions need beside the migrations. */
async function conversionsOf(
  query: Query,
  { wanted, isNew, hasChanged }: { wanted: Width | undefined; isNew: boolean; hasChanged: boolean },
): Promise<readonly Step[]> {
  if (!isNew) {
    const [table] = await query<{ partitioned: boolean }>(partitions.isPartitioned);
    if (!table?.partitioned) {
      if (wanted === undefined) return [];
      throw new ConfigError(
        "the Latchkey tables in this database are not partitioned, and partitions can only be chosen for an empty " +
          "database: leave out partitioned, or migrate another database or schema",
      );
    }
    if (wanted !== undefined) await refuseOtherWidth(query, wanted);
  } else if (wanted === undefined) return [];
  // They insert records, so they are as new as the columns are.
  const functions = hasChanged
    ? [
        {
          name: "partition_functions",
          sql: `${partitions.reserveFunction};\n${partitions.reserveBatchFunction};`,
        },
      ]
    : [];
  if (!isNew || wanted === undefined) return functions;
  return [
    { name: "partition_records", sql: partitions.partitionRecords(wanted) },
    { name: "create_partitions", sql: partitions.createMissingPartitions },
    ...functions,
  ];
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
