import { ConfigError, StoreError } from "../../core/errors.ts";
import { idOf, loadMigrations, refuseNewer } from "../migrations.ts";
import { Database, type MysqlPool, type PoolSession, type Session } from "./database.ts";

export interface MigrateOptions {
  /** Changes nothing, and answers with what would be applied. */
  readonly dryRun?: boolean;
  /** Called after each migration, with its name. */
  readonly onApplied?: (name: string, place: { readonly done: number; readonly total: number }) => void;
}

export interface MigrateResult {
  /** What was applied, by name. */
  readonly applied: string[];
  /** What has yet to be applied, as it can be given to the `mysql` command; nothing, unless it was a dry run. */
  readonly pending: readonly { readonly name: string; readonly sql: string }[];
}

/**
 * Brings tables and procedures to the version of this code. Processes that start at once wait for each other: calling
 * it at every start is fine. MySQL cannot roll back what it has created, so after an interruption the next call goes on
 * with the migration that was not finished.
 *
 * It needs the rights to create and alter tables and procedures; whoever only serves requests needs EXECUTE, SELECT,
 * INSERT, UPDATE and DELETE.
 *
 * @example
 * ```ts
 * const { applied } = await migrate(pool); // ["0001_records", …, "0003_listing"], then []
 * ```
 */
export async function migrate(pool: MysqlPool, options: MigrateOptions = {}): Promise<MigrateResult> {
  const known = loadMigrations(new URL("./migrations/", import.meta.url)).map(({ id, name, sql }) => ({
    id,
    name: idOf({ id, name }),
    sql,
  }));
  // Large tables, and whoever has the turn, may take long.
  return new Database(pool, { silentMs: undefined }).withConnection(async (session) => {
    const [found] = await session.rows(readPlace);
    if (found?.place === null || found === undefined) {
      throw new ConfigError(
        "the pool has chosen no database: name the one that Latchkey's tables belong into",
      );
    }
    await takeTurn(session);
    try {
      // Without autocommit a snapshot may have begun before the wait, and whoever was waited for has written since.
      await session.change("START TRANSACTION");
      const before = await appliedMigrations(session);
      await session.change("COMMIT");
      refuseNewer(before, known.length);
      const pending = known.filter(({ id }) => !before.has(id));
      if (options.dryRun === true)
        return { applied: [], pending: pending.map(({ name, sql }) => ({ name, sql })) };
      await apply(session, pending, found.mode as string, options.onApplied);
      return { applied: pending.map(({ name }) => name), pending: [] };
    } finally {
      // Where the connection is gone, so is its lock.
      await session.change(`DO RELEASE_LOCK(${lockName})`).catch(() => {});
    }
  });
}

type Pending = readonly { readonly id: number; readonly name: string; readonly sql: string }[];

/**
 * A procedure keeps the mode that it was created under: strict, so that nothing is ever cut off to fit, and without
 * modes that give quotes and operators another meaning.
 */
async function apply(
  session: PoolSession,
  pending: Pending,
  modeBefore: string,
  onApplied: MigrateOptions["onApplied"],
): Promise<void> {
  if (pending.length === 0) return;
  await session.connection.query(strictMode);
  try {
    await session.connection.query(createMemory);
    for (const [index, { id, name, sql }] of pending.entries()) {
      // Not prepared: not everything that makes tables and procedures can be.
      for (const statement of statementsOf(sql)) await session.connection.query(statement);
      await session.change(remember, [id, name]);
      // Without autocommit it would be forgotten with the connection, and others would wait for it as long.
      await session.change("COMMIT");
      onApplied?.(name, { done: index + 1, total: pending.length });
    }
  } finally {
    // Words and commas, as the server has told them.
    await session.connection.query(`SET SESSION sql_mode = '${modeBefore}'`);
  }
}

const strictMode = `SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'`;

/** What the `mysql` command would have to be given to apply what is pending. */
export function migrationScript(pending: MigrateResult["pending"]): string {
  if (pending.length === 0) return "";
  const steps = pending.map(({ name, sql }) => {
    // Its number is what its name begins with; a name is letters, digits and underscores.
    const remembered = `INSERT INTO latchkey_migrations (id, name) VALUES (${Number.parseInt(name, 10)}, '${name}');`;
    return `-- ${name}\n${sql.trimEnd()}\nDELIMITER ;\n${remembered}\n`;
  });
  return [`${strictMode};`, `${createMemory};`, ...steps].join("\n");
}

const readPlace = "SELECT CAST(DATABASE() AS BINARY) AS place, CAST(@@SESSION.sql_mode AS BINARY) AS mode";

/** Locks are the whole server's, and have at most 64 characters. */
const lockName = "CONCAT('latchkey ', LEFT(SHA2(DATABASE(), 256), 40))";

/** As long as a migration of large tables may take. */
const turnSeconds = 600;

async function takeTurn(session: Session): Promise<void> {
  const [row] = await session.rows(`SELECT GET_LOCK(${lockName}, ${turnSeconds}) AS is_mine`);
  if (row?.is_mine !== 1) {
    throw new StoreError(
      `another process has been migrating this database for more than ${turnSeconds} seconds`,
    );
  }
}

const createMemory = `
CREATE TABLE IF NOT EXISTS latchkey_migrations (
  id         INT             NOT NULL PRIMARY KEY,
  name       VARBINARY(1024) NOT NULL,
  applied_at TIMESTAMP       NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB`;

/** Only after all of it is there; until then it is not applied, however much of it is. */
const remember = "INSERT INTO latchkey_migrations (id, name) VALUES (?, ?)";

async function appliedMigrations(session: Session): Promise<ReadonlySet<number>> {
  const [memory] = await session.rows(
    "SELECT COUNT(*) AS tables FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'latchkey_migrations'",
  );
  if (memory?.tables !== 1) return new Set();
  const rows = await session.rows("SELECT id AS number FROM latchkey_migrations");
  return new Set(rows.map((row) => Number(row.number)));
}

/**
 * The statements of a file as the `mysql` command would read them: each ends with a line that ends with the delimiter,
 * which a line of its own may change, because procedures have semicolons within them.
 */
export function statementsOf(sql: string): string[] {
  const statements: string[] = [];
  let delimiter = ";";
  let lines: string[] = [];
  for (const line of sql.split("\n")) {
    const chosen = /^DELIMITER (\S+)$/.exec(line)?.[1];
    if (chosen !== undefined) {
      delimiter = chosen;
      continue;
    }
    if (lines.length === 0 && /^\s*(--.*)?$/.test(line)) continue;
    if (!line.endsWith(delimiter)) {
      lines.push(line);
      continue;
    }
    statements.push([...lines, line.slice(0, -delimiter.length)].join("\n"));
    lines = [];
  }
  if (lines.length > 0) throw new ConfigError(`a migration ends without "${delimiter}": ${lines[0]}`);
  return statements;
}
