import { createRequire } from "node:module";
import { ConfigError } from "../../core/errors.ts";

/**
 * An open SQLite database: the part of it that Latchkey needs, which `node:sqlite`, `libsql` and `better-sqlite3` all
 * have.
 */
export interface SqliteDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
  close(): unknown;
}

export interface SqliteStatement {
  run(...parameters: SqliteValue[]): unknown;
  get(...parameters: SqliteValue[]): unknown;
  all(...parameters: SqliteValue[]): unknown[];
}

export type SqliteValue = string | number | null | Uint8Array;

/**
 * Opens the file with the driver that this process uses already, and else with the first one there is: Node's own, which
 * needs no installation and is there since 22.13, before those from npm.
 *
 * The application may have the same file open, and two drivers are two copies of SQLite, which do not see each other's locks
 * within one process: writes that were committed were seen to vanish, and the process to end with SIGBUS. So nothing is
 * guessed where several are in use.
 */
export function openDatabase(path: string): SqliteDatabase {
  const inUse = taken === undefined ? driversInUse() : [taken];
  if (inUse.length > 1) {
    const names = inUse.map(({ name }) => name).join(" and ");
    throw new ConfigError(
      `this process has loaded ${names}, and two of them on one file lose writes: open ${path} with the one that your ` +
        "application uses for it, and hand over that connection: sqliteStore(database)",
    );
  }
  for (const { name, load } of [...inUse, ...drivers]) {
    const Database = load();
    if (Database === undefined) continue;
    try {
      const database = new Database(path);
      taken = { name, load: () => Database };
      return database;
    } catch (error) {
      // A driver that is there but cannot open this file says why, and no other one is tried. One that finds out only now
      // that it has no binary for this platform is not there.
      if (!isWithoutBinary(error)) throw error;
    }
  }
  throw new ConfigError(
    "no SQLite driver could be loaded: run `npm install libsql`, or use Node 22.13 or newer, which has one built in",
  );
}

type Driver = new (path: string) => SqliteDatabase;

interface NamedDriver {
  readonly name: string;
  load(): Driver | undefined;
}

/** The one by which this process has opened a file before. All of ours go by one. */
let taken: NamedDriver | undefined;

const require = createRequire(import.meta.url);

const drivers: readonly NamedDriver[] = [
  {
    name: "node:sqlite",
    load: () => tryRequire<{ DatabaseSync: Driver }>("node:sqlite")?.DatabaseSync,
  },
  { name: "libsql", load: () => tryRequire<Driver>("libsql") },
  { name: "better-sqlite3", load: () => tryRequire<Driver>("better-sqlite3") },
];

function tryRequire<T>(name: string): T | undefined {
  try {
    return require(name) as T;
  } catch {
    // Not installed, or without a binary for this platform: either way it cannot be used.
    return undefined;
  }
}

/** What this thread has loaded, as it was loaded: there may be several copies of a package. */
function driversInUse(): readonly NamedDriver[] {
  const found: NamedDriver[] = [];
  for (const [file, module] of Object.entries(require.cache)) {
    const name = /\/node_modules\/(?:(libsql)\/index|(better-sqlite3)\/lib\/index)\.js$/.exec(
      file.replaceAll("\\", "/"),
    );
    const Database = module?.exports as unknown;
    if (name === null || typeof Database !== "function") continue;
    found.push({ name: name[1] ?? name[2] ?? file, load: () => Database as Driver });
  }
  const { moduleLoadList = [] } = process as { moduleLoadList?: readonly string[] };
  const own = moduleLoadList.includes("NativeModule sqlite") ? drivers.slice(0, 1) : [];
  return [...own, ...found];
}

function isWithoutBinary(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (code === "MODULE_NOT_FOUND" || code === "ERR_DLOPEN_FAILED") return true;
  return String(message).startsWith("Could not locate the bindings file");
}

/** Another connection has the lock. Each driver says it in its own way. */
export function isBusy(error: unknown): boolean {
  const { code, errcode } = error as { code?: unknown; errcode?: unknown };
  if (typeof code === "string" && code.startsWith("SQLITE_BUSY")) return true;
  // What `node:sqlite` has is the extended code, whose last byte is the general one.
  return typeof errcode === "number" && (errcode & 0xff) === sqliteBusy;
}

const sqliteBusy = 5;

/** Whether the driver says that no transaction is open on this connection. Each has its own name for it, if any. */
export function isOutsideTransaction(database: SqliteDatabase): boolean {
  const { inTransaction, isTransaction } = database as { inTransaction?: unknown; isTransaction?: unknown };
  return (inTransaction ?? isTransaction) === false;
}

/**
 * A statement whose answers look the same whichever driver gives them. Integers may come as bigint, if the user set
 * their connection so; blobs as Buffer, Uint8Array or ArrayBuffer.
 */
export class Statement {
  readonly #statement: SqliteStatement;
  readonly #takesList: boolean;

  constructor(database: SqliteDatabase, sql: string) {
    this.#statement = database.prepare(sql);
    this.#takesList = takesLists(database);
  }

  /** How many rows were changed. */
  run(...parameters: SqliteValue[]): number {
    return this.runWith(parameters).changes;
  }

  /** The same with a list of parameters. `lastRowid` means something after an insertion only. */
  runWith(parameters: readonly SqliteValue[]): { readonly changes: number; readonly lastRowid: number } {
    const result = this.#takesList
      ? (this.#statement as unknown as ListStatement).run(parameters)
      : this.#statement.run(...parameters);
    const { changes, lastInsertRowid } = result as Record<"changes" | "lastInsertRowid", number | bigint>;
    return { changes: Number(changes), lastRowid: Number(lastInsertRowid) };
  }

  get(...parameters: SqliteValue[]): Row | undefined {
    const row = this.#takesList
      ? (this.#statement as unknown as ListStatement).get(parameters)
      : this.#statement.get(...parameters);
    return row === undefined || row === null ? undefined : toRow(row);
  }

  all(...parameters: SqliteValue[]): Row[] {
    return this.#statement.all(...parameters).map(toRow);
  }
}

export type Row = Readonly<Record<string, SqliteValue>>;

/** `libsql` and `better-sqlite3` also take all parameters as one list, which spares `libsql` a quarter of a write. */
interface ListStatement {
  run(parameters: readonly SqliteValue[]): unknown;
  get(parameters: readonly SqliteValue[]): unknown;
}

const listTakers = new WeakMap<SqliteDatabase, boolean>();

/** Tried out once for each connection, because a connection of the user's own does not say which driver it is of. */
function takesLists(database: SqliteDatabase): boolean {
  const known = listTakers.get(database);
  if (known !== undefined) return known;
  let takes = false;
  try {
    const statement = database.prepare("SELECT ? AS first, ? AS second") as unknown as ListStatement;
    const { first, second } = statement.get(["a", "b"]) as { first?: unknown; second?: unknown };
    takes = first === "a" && second === "b";
  } catch {
    // Node's own driver takes a list for an object of named parameters, and refuses it.
  }
  listTakers.set(database, takes);
  return takes;
}

/** The row is the caller's alone, so what has to look otherwise is replaced in it. */
function toRow(row: unknown): Row {
  const columns = row as Record<string, unknown>;
  for (const name in columns) {
    const value = columns[name];
    if (typeof value === "bigint") columns[name] = Number(value);
    else if (value instanceof ArrayBuffer) columns[name] = new Uint8Array(value);
    else if (value instanceof Uint8Array)
      columns[name] = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  }
  return columns as Row;
}
