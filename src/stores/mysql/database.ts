import type { Pool as CallbackPool } from "mysql2";
import type { Pool, PoolConnection, ResultSetHeader } from "mysql2/promise";
import { bufferOf } from "../../core/bytes.ts";
import { ConfigError } from "../../core/errors.ts";
import type { ColumnValue } from "../record-row.ts";
import { isDeadlock, isUnusable, packetError, silentServer, storeError } from "./errors.ts";
import { beginRead } from "./statements.ts";

/** A pool of mysql2: of promises, from `mysql2/promise`, or of callbacks, from `mysql2`. */
export type MysqlPool = Pool | CallbackPool;

/** What a phase's business writes go through: a connection of `mysql2/promise`, within a transaction. */
export type MysqlConnection = PoolConnection;

export type Row = Readonly<Record<string, ColumnValue>>;

/** One connection, as long as it is held. */
export interface Session {
  rows(sql: string, parameters?: readonly ColumnValue[]): Promise<readonly Row[]>;
  /** Answers how many rows it has met, or changed: which of both, the pool's flags decide. */
  change(sql: string, parameters?: readonly ColumnValue[]): Promise<number>;
}

/**
 * The user's pool. Nothing here depends on how its connections are set up: text goes to and fro as bytes, so that no
 * character set comes in between, and every transaction is begun and ended by name, whatever `autocommit` says.
 */
export class Database {
  readonly #pool: Pool;
  readonly #silentMs: number | undefined;
  #packetBytesMax: number | undefined;

  /** Without `silentMs`, statements may take as long as they like. */
  constructor(
    pool: MysqlPool,
    { silentMs }: { readonly silentMs: number | undefined } = { silentMs: silentMsMax },
  ) {
    this.#pool = promisePool(pool);
    this.#silentMs = silentMs;
  }

  /** The rows that a procedure answers with. Those that are called so end the transaction that they begin. */
  async call(sql: string, parameters: readonly ColumnValue[]): Promise<readonly Row[]> {
    return this.#retried((session) => session.rows(sql, parameters));
  }

  /** Commits if `work` answers, and rolls back if it throws. A deadlock makes it begin anew. */
  async transaction<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.#retried(async (session) => {
      await session.change("START TRANSACTION");
      const result = await work(session);
      await session.change("COMMIT");
      return result;
    });
  }

  /** The same for a procedure that begins the transaction itself; `work` gets what it answers with. */
  async transactionFrom<T>(
    begin: { readonly sql: string; readonly parameters: readonly ColumnValue[] },
    work: (found: readonly Row[], session: Session) => Promise<T>,
  ): Promise<T> {
    return this.#retried(async (session) => {
      const result = await work(await session.rows(begin.sql, begin.parameters), session);
      await session.change("COMMIT");
      return result;
    });
  }

  /** One statement that may change several rows: one round trip, unless the connection was left in a transaction. */
  async change(sql: string, parameters: readonly ColumnValue[]): Promise<number> {
    return this.#retried(async (session) => {
      const { affectedRows, serverStatus } = await session.run(sql, parameters);
      if ((serverStatus & inTransaction) !== 0) await session.run("COMMIT");
      return affectedRows;
    });
  }

  /** A snapshot of its own: one that a connection was left with may be of long ago. */
  async snapshot<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.transactionFrom({ sql: beginRead, parameters: [] }, (_, session) => work(session));
  }

  /** The same for one statement. */
  async read(sql: string, parameters: readonly ColumnValue[] = []): Promise<readonly Row[]> {
    return this.snapshot((session) => session.rows(sql, parameters));
  }

  /** The connection is the caller's, who has to end whatever he begins. */
  async withConnection<T>(work: (session: PoolSession) => Promise<T>): Promise<T> {
    const connection = await this.#pool.getConnection().catch((error: unknown) => {
      throw storeError(error);
    });
    const session = new PoolSession(connection, {
      checkFits: (bytes, asking) => this.#checkFits(bytes, asking),
      silentMs: this.#silentMs,
    });
    try {
      const result = await work(session);
      session.giveBack();
      return result;
    } catch (error) {
      await session.rollBack(error);
      throw error;
    }
  }

  async #retried<T>(work: (session: PoolSession) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.withConnection(work);
      } catch (error) {
        if (!isDeadlock(error) || attempt === attemptsMax) throw storeError(error);
      }
      // Whoever met here would meet again, if both came back at once.
      await new Promise((resolve) => setTimeout(resolve, Math.random() * backoffBaseMs * 2 ** attempt));
    }
  }

  /** A server drops the connection over a packet that is too large, and others would wonder why. */
  async #checkFits(bytes: number, session: Session): Promise<void> {
    if (bytes < smallBytes) return;
    // Asked for on the same connection: there may be no other.
    this.#packetBytesMax ??= Number((await session.rows("SELECT @@max_allowed_packet AS bytes"))[0]?.bytes);
    if (bytes + packetSlackBytes > this.#packetBytesMax) throw packetError(bytes);
  }
}

/**
 * A connection to a host that has vanished stays open for a quarter of an hour, until the operating system gives up, and
 * without this a pool would soon hold nothing else. Twice the lease, unless that was changed: nobody waits any more.
 */
const silentMsMax = 30_000;

/** Deadlocks are rare where each transaction has one record; a storm of large ones is over after a few rounds. */
const attemptsMax = 10;
const backoffBaseMs = 2;

/** What fits into a packet of every server, as long as nobody has set it lower than the oldest default. */
const smallBytes = 512 * 1024;
/** For what is in a packet beside large values. */
const packetSlackBytes = 16 * 1024;

/** SERVER_STATUS_IN_TRANS */
const inTransaction = 1;

interface SessionLimits {
  /** Throws if so many bytes do not fit into a packet. */
  checkFits(bytes: number, session: Session): Promise<void>;
  readonly silentMs: number | undefined;
}

/** One connection of the pool, until it is given back. */
export class PoolSession implements Session {
  readonly connection: PoolConnection;
  readonly #limits: SessionLimits;

  constructor(connection: PoolConnection, limits: SessionLimits) {
    this.connection = connection;
    this.#limits = limits;
  }

  async rows(sql: string, parameters: readonly ColumnValue[] = []): Promise<readonly Row[]> {
    const result = await this.#execute(sql, parameters);
    if (!Array.isArray(result)) return [];
    // A procedure answers with a list of results, the last of which only says that it is over.
    const rows: unknown[] = Array.isArray(result[0]) ? result[0] : result;
    return rows.map((row) => rowOf(row as Record<string, unknown>));
  }

  async change(sql: string, parameters: readonly ColumnValue[] = []): Promise<number> {
    return (await this.run(sql, parameters)).affectedRows;
  }

  async run(sql: string, parameters: readonly ColumnValue[] = []): Promise<ResultSetHeader> {
    const header = (await this.#execute(sql, parameters)) as ResultSetHeader;
    return { ...header, affectedRows: Number(header.affectedRows) };
  }

  giveBack(): void {
    this.connection.release();
  }

  /** Ends what an error has left behind. A lock that was not got in time, for example, leaves the transaction open. */
  async rollBack(error: unknown): Promise<void> {
    try {
      // Inside, because looking at what somebody has thrown may throw as well.
      if (isUnusable(error)) return this.connection.destroy();
      await this.run("ROLLBACK");
      this.giveBack();
    } catch {
      this.connection.destroy();
    }
  }

  async #execute(sql: string, parameters: readonly ColumnValue[]): Promise<unknown> {
    const values = parameters.map(parameterOf);
    await this.#limits.checkFits(bytesOf(values), this);
    // The function is only passed where it is needed: calling it for each column costs half as much as all the rest.
    const options = this.connection.config.typeCast === true ? asItIs : asItIsUncast;
    // MySQL does not prepare what begins and ends transactions.
    const answer =
      values.length === 0
        ? this.connection.query({ sql, ...options })
        : this.connection.execute({ sql, values, ...options });
    const [result] = await answeredWithin(answer, this.#limits.silentMs);
    return result;
  }
}

/** The driver's own `timeout` does not count while a statement is being prepared. */
async function answeredWithin<T>(answer: Promise<T>, silentMs: number | undefined): Promise<T> {
  if (silentMs === undefined) return answer;
  let timer: NodeJS.Timeout | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(silentServer(silentMs)), silentMs);
  });
  try {
    return await Promise.race([answer, silence]);
  } finally {
    clearTimeout(timer);
  }
}

/** Whatever the pool was told to make of results, and of names in statements. */
const asItIs = { rowsAsArray: false, nestTables: false, namedPlaceholders: false };

/** The same for a pool with a way of its own to read columns, which only another function takes the place of. */
const asItIsUncast = { ...asItIs, typeCast: (_field: unknown, next: () => unknown) => next() };

/** Text becomes bytes: a connection's character set may not have all of its characters. */
function parameterOf(value: ColumnValue): Buffer | number | null {
  if (typeof value === "string") return Buffer.from(value);
  return value instanceof Uint8Array ? bufferOf(value) : value;
}

function bytesOf(values: readonly (Buffer | number | null)[]): number {
  let bytes = 0;
  for (const value of values) if (value instanceof Uint8Array) bytes += value.byteLength;
  return bytes;
}

/** Columns with bytes that are not text. */
const bytesColumns: ReadonlySet<string> = new Set(["id", "partition_id", "response_body", "request_body"]);

function rowOf(row: Readonly<Record<string, unknown>>): Row {
  const columns: Record<string, ColumnValue> = {};
  for (const name of Object.keys(row)) columns[name] = columnOf(name, row[name]);
  return columns;
}

/** All text is in columns of bytes, so whatever else comes is a number: pools may be told to hand it out as text. */
function columnOf(name: string, value: unknown): ColumnValue {
  if (value === null || value === undefined) return null;
  if (!(value instanceof Uint8Array)) return Number(value);
  if (!bytesColumns.has(name)) return bufferOf(value).toString("utf8");
  // A copy: the driver hands out a view of what came from the network, all of which a response would keep alive.
  return new Uint8Array(value);
}

function promisePool(pool: MysqlPool): Pool {
  const { getConnection, execute, promise } = (pool ?? {}) as Partial<CallbackPool>;
  if (typeof promise === "function") return promise.call(pool);
  if (typeof getConnection === "function" && typeof execute === "function") return pool as Pool;
  throw new ConfigError(
    "mysqlStore needs a pool of the driver mysql2: pass createPool(…) from mysql2/promise, and not a single connection",
  );
}

/** `values` with the last one repeated, up to the next power of two: so that few statements are prepared. */
export function padded<T extends ColumnValue>(values: readonly T[]): { list: string; values: readonly T[] } {
  const size = 2 ** Math.ceil(Math.log2(Math.max(1, values.length)));
  const last = values.at(-1);
  const rest = last === undefined ? [] : Array.from({ length: size - values.length }, () => last);
  return { list: Array.from({ length: size }, () => "?").join(", "), values: [...values, ...rest] };
}
