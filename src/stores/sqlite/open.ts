import { existsSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { ConfigError, LatchkeyError, StoreError } from "../../core/errors.ts";
import { idOf, loadMigrations, type Migration } from "../migrations.ts";
import { isBusy, openDatabase, type SqliteDatabase, Statement } from "./driver.ts";
import { rollback } from "./group-commit.ts";
import { forgetTinyTables } from "./tiny-tables.ts";

/** Opens a file, or takes a connection that is open already, and makes it ready: settings, then tables. */
export function openPrepared(
  database: string | SqliteDatabase,
  options: { readonly synchronous: Synchronous; readonly now: number },
): SqliteDatabase {
  if (typeof database !== "string") {
    prepare(database, options);
    return database;
  }
  let opened: SqliteDatabase | undefined;
  try {
    mkdirSync(dirname(database), { recursive: true });
    opened = openDatabase(database);
    prepare(opened, options);
    return opened;
  } catch (error) {
    opened?.close();
    throw unusable(database, error);
  }
}

function unusable(path: string, error: unknown): LatchkeyError {
  if (error instanceof LatchkeyError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new StoreError(`the SQLite database ${path} cannot be used: ${reason}`, { cause: error });
}

export type Synchronous = "full" | "normal";

function prepare(
  database: SqliteDatabase,
  options: { readonly synchronous: Synchronous; readonly now: number },
): void {
  database.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  useWriteAheadLog(database);
  database.exec(synchronousPragmas[options.synchronous]);
  const pageBytes = Number(new Statement(database, "PRAGMA page_size").get()?.page_size);
  limitWriteAheadLog(database, pageBytes);
  enlargeCache(database, pageBytes);
  migrate(database, options.now);
  forgetTinyTables(database);
}

/**
 * How long to wait for another process's transaction. Such a transaction takes milliseconds, but the drivers wait
 * without letting anything else in this process run, so it must end well before a heartbeat (five seconds) is missed.
 */
const busyTimeoutMs = 2_000;

/** FULL waits for the disk at every commit. On macOS only `fullfsync` really does; elsewhere it changes nothing. */
const synchronousPragmas: Readonly<Record<Synchronous, string>> = {
  full: "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON",
  normal: "PRAGMA synchronous = NORMAL",
};

function useWriteAheadLog(database: SqliteDatabase): void {
  const giveUpAt = Date.now() + busyTimeoutMs;
  for (;;) {
    try {
      database.exec("PRAGMA journal_mode = WAL");
      break;
    } catch (error) {
      // While two processes open a new file at once, SQLite reports this lock without waiting for it.
      if (!isBusy(error) || Date.now() > giveUpAt) throw error;
      sleepSync(5);
    }
  }
  const mode = new Statement(database, "PRAGMA journal_mode").get()?.journal_mode;
  if (mode === "memory") {
    throw new ConfigError(
      "an SQLite database in memory forgets everything with the process: give sqliteStore a file, or use memoryStore()",
    );
  }
  if (mode !== "wal") {
    throw new ConfigError(
      `this SQLite database cannot keep a write-ahead log (its journal mode stays "${mode}"): put the file on a local disk`,
    );
  }
}

/**
 * How much is written ahead before it is brought into the file itself. A page that many commits have changed is brought
 * over once, so a log 16 times as long as SQLite's own 1000 pages makes writes cheaper, and the pause for this process is
 * so rare that fewer than one in a hundred requests under load meets it. It is not longer still, because whoever opens the
 * file after a crash reads all of it, and because each wait for the disk takes longer while it grows for the first time.
 */
const logBytes = 64 * 1024 * 1024;

/** Where somebody has read for so long that the log grew beyond this, it is cut off as soon as it can be. */
const logBytesKept = 1.5 * logBytes;

function limitWriteAheadLog(database: SqliteDatabase, pageBytes: number): void {
  database.exec(`
    PRAGMA wal_autocheckpoint = ${Math.ceil(logBytes / pageBytes)};
    PRAGMA journal_size_limit = ${logBytesKept}`);
}

/**
 * Random keys are written all over their index, and a page that is not in memory has to be read back first. SQLite's own
 * 2 MB hold the index of about 20,000 records; this holds 150,000.
 */
const cacheBytes = 16 * 1024 * 1024;

/** Leaves a larger one that the application has chosen for its own connection. */
function enlargeCache(database: SqliteDatabase, pageBytes: number): void {
  const size = Number(new Statement(database, "PRAGMA cache_size").get()?.cache_size);
  // SQLite tells it in pages, or negative in KiB.
  const bytes = size < 0 ? -1024 * size : pageBytes * size;
  if (bytes < cacheBytes) database.exec(`PRAGMA cache_size = ${-cacheBytes / 1024}`);
}

function sleepSync(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/**
 * Lets a migration copy a table and put the copy in its place. Foreign keys that refer to the table would be acted on
 * when the old one is dropped, and views that read from it would be in the way of renaming the new one. Neither setting
 * can be changed, or takes effect, within the transaction.
 */
function migrate(database: SqliteDatabase, now: number): void {
  const settings = ["foreign_keys", "legacy_alter_table"] as const;
  const before = settings.map((name) => {
    const value = new Statement(database, `PRAGMA ${name}`).get()?.[name];
    return `PRAGMA ${name} = ${value}`;
  });
  database.exec(migrationPragmas);
  try {
    applyMissing(database, now);
  } finally {
    database.exec(before.join(";"));
  }
}

const migrationPragmas = "PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON";

/** In one transaction: whoever else opens the file waits, and then finds it done. */
function applyMissing(database: SqliteDatabase, now: number): void {
  database.exec("BEGIN IMMEDIATE");
  try {
    database.exec(createMigrationsTable);
    const missing = missingMigrations(database);
    const foreign = missing.length === 0 ? [] : foreignIn(database);
    for (const { id, name, sql } of missing) {
      database.exec(sql);
      new Statement(database, writeMigration).run(id, name, now);
    }
    makeAgain(database, foreign);
    database.exec("COMMIT");
  } catch (error) {
    rollback(database);
    throw error;
  }
}

interface Foreign {
  readonly name: string;
  readonly sql: string;
}

/** Indexes and triggers of the application's own on our tables. A table that is copied and dropped takes them along. */
function foreignIn(database: SqliteDatabase): Foreign[] {
  return new Statement(database, findForeign)
    .all()
    .map(({ name, sql }) => ({ name: String(name), sql: String(sql) }));
}

function makeAgain(database: SqliteDatabase, before: readonly Foreign[]): void {
  const left = new Set(foreignIn(database).map(({ name }) => name));
  for (const { name, sql } of before) if (!left.has(name)) database.exec(sql);
}

function missingMigrations(database: SqliteDatabase): readonly Migration[] {
  const migrations = loadMigrations(new URL("./migrations/", import.meta.url));
  const latest = Number(new Statement(database, readLatestMigration).get()?.id ?? 0);
  if (latest > migrations.length) {
    throw new ConfigError(
      `this SQLite database was migrated to version ${latest} by a newer Latchkey, and this one knows version ${migrations.length}: upgrade this process`,
    );
  }
  return migrations.slice(latest);
}

/**
 * What opening the file would apply to it, and what the `sqlite3` command would have to be given to do the same. Does
 * not make the file.
 */
export function pendingMigrations(path: string): {
  readonly pending: readonly { readonly name: string; readonly sql: string }[];
  readonly script: string;
} {
  const missing = existsSync(path)
    ? missingIn(path)
    : loadMigrations(new URL("./migrations/", import.meta.url));
  const pending = missing.map((migration) => {
    const { id, name, sql } = migration;
    // A name is letters, digits and underscores.
    const remembered = `INSERT INTO latchkey_migrations (id, name, applied_at) VALUES (${id}, '${name}', ${millisecondsNow});`;
    return { name: idOf(migration), sql: `${sql.trimEnd()}\n${remembered}` };
  });
  if (pending.length === 0) return { pending, script: "" };
  const steps = pending.map(({ name, sql }) => `-- ${name}\n${sql}\n`);
  return {
    pending,
    script: [
      `${migrationPragmas};`,
      "BEGIN IMMEDIATE;",
      `${createMigrationsTable};`,
      ...steps,
      "COMMIT;",
    ].join("\n"),
  };
}

/** SQLite has had a shorter way to say it only for some years. */
const millisecondsNow = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";

function missingIn(path: string): readonly Migration[] {
  try {
    const database = openDatabase(path);
    try {
      database.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
      const isThere = new Statement(database, findMigrationsTable).get() !== undefined;
      return isThere
        ? missingMigrations(database)
        : loadMigrations(new URL("./migrations/", import.meta.url));
    } finally {
      database.close();
    }
  } catch (error) {
    throw unusable(path, error);
  }
}

const findMigrationsTable =
  "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'latchkey_migrations'";

const findForeign = `
  SELECT name, sql
    FROM sqlite_master
   WHERE type IN ('index', 'trigger') AND sql IS NOT NULL
     AND tbl_name LIKE 'latchkey\\_%' ESCAPE '\\' AND name NOT LIKE 'latchkey\\_%' ESCAPE '\\'`;

const createMigrationsTable = `
  CREATE TABLE IF NOT EXISTS latchkey_migrations (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
  )`;

const readLatestMigration = `
  SELECT max(id) AS id
    FROM latchkey_migrations`;

const writeMigration = `
  INSERT INTO latchkey_migrations (id, name, applied_at)
  VALUES (?, ?, ?)`;
