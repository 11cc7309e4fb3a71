import { idOf, loadMigrations, type Migration, refuseNewer } from "../../migrations.ts";
import type { Query } from "../database.ts";
import { hasCode } from "../errors.ts";
import type { MigrateOptions, PendingMigrations } from "../migrate.ts";
import { laneCount } from "../outbox.ts";
import { retrying } from "./retrying.ts";

/**
 * Brings the tables to the version of this code, statement by statement: some engines take one change of a table per
 * transaction. Each may be carried out again, so processes that start at once, or one that was stopped in the middle, do
 * no harm.
 */
export async function migrateDistributed(
  query: Query,
  onApplied?: MigrateOptions["onApplied"],
): Promise<{ applied: string[] }> {
  await define(query, createMemory);
  const missing = await missingMigrations(query);
  for (const [index, migration] of missing.entries()) {
    for (const statement of statementsOf(migration.sql)) await define(query, statement);
    await query(remember, [migration.id, migration.name]);
    onApplied?.(idOf(migration), { done: index + 1, total: missing.length });
  }
  // One statement for all: where lanes are there already nothing is written.
  await query(fillLanes);
  return { applied: missing.map(idOf) };
}

/** What `migrateDistributed` would apply now. */
export async function pendingDistributed(query: Query): Promise<PendingMigrations> {
  const [memory] = await query<{ tables: number }>(
    "SELECT count(*)::int4 AS tables FROM information_schema.tables " +
      "WHERE table_schema = current_schema() AND table_name = 'latchkey_dist_migrations'",
  );
  const missing = await missingMigrations(memory?.tables ? query : async () => []);
  const pending = missing.map((migration) => ({
    name: idOf(migration),
    sql: [...statementsOf(migration.sql), remembered(migration)]
      .map((statement) => `${statement};`)
      .join("\n\n"),
  }));
  const steps = pending.map(({ name, sql }) => `-- ${name}\n${sql}\n`);
  const script = pending.length === 0 ? "" : [`${createMemory};`, ...steps, `${fillLanes};`].join("\n");
  return { pending, script };
}

async function missingMigrations(query: Query): Promise<readonly Migration[]> {
  const known = loadMigrations(new URL("../migrations/distributed/", import.meta.url));
  const rows = await query<{ id: number }>("SELECT id FROM latchkey_dist_migrations");
  const before = new Set(rows.map(({ id }) => id));
  refuseNewer(before, known.length);
  return known.filter(({ id }) => !before.has(id));
}

const createMemory = `
CREATE TABLE IF NOT EXISTS latchkey_dist_migrations (id int4 PRIMARY KEY, name text NOT NULL)`;

const remember =
  "INSERT INTO latchkey_dist_migrations (id, name) VALUES ($1::int4, $2) ON CONFLICT DO NOTHING";

/** The same as text. A name is letters, digits and underscores. */
const remembered = ({ id, name }: Migration) =>
  remember.replace("$1::int4", String(id)).replace("$2", `'${name}'`);

const lanes = Array.from({ length: laneCount }, (_, lane) => `(${lane})`).join(", ");
const fillLanes = `INSERT INTO latchkey_dist_lanes (lane) VALUES ${lanes} ON CONFLICT DO NOTHING`;

/** Comments are for readers of the file, and some hold semicolons. */
export function statementsOf(sql: string): string[] {
  return sql
    .replace(/^\s*--.*$/gm, "")
    .split(";")
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "");
}

/** Creates something, unless it is there. */
async function define(query: Query, statement: string): Promise<void> {
  try {
    await retrying(() => query(statement));
  } catch (error) {
    // Postgres looks whether it is there before it creates it, and two processes may both have looked.
    if (hasCode(error, (code) => createdMeanwhile.has(code))) return;
    // Aurora DSQL makes an index beside the traffic, or not at all.
    if (statement.startsWith("CREATE INDEX ") && hasCode(error, (code) => code === featureNotSupported)) {
      await query(statement.replace("CREATE INDEX ", "CREATE INDEX ASYNC "));
      return;
    }
    throw error;
  }
}

/** A name that is taken: in the catalogue, as a table, as an object, as a column. */
const createdMeanwhile: ReadonlySet<string> = new Set(["23505", "42P07", "42710", "42701"]);
const featureNotSupported = "0A000";
