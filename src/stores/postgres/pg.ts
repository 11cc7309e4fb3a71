import { type BatchFunction, type BatchParameter, batchStatement } from "./arrays.ts";
import type { CallParameter } from "./call-messages.ts";
import type { Batch, Connection, Database, Parameter, Query, Row, TransactionOptions } from "./database.ts";
import { isOfBadServer } from "./errors.ts";
import { NamedStatements } from "./named.ts";
import { PgCall, plainValues, ShortWay } from "./pg-call.ts";
import { leavingReadOnly } from "./read-only.ts";

/** The part of `Pool` from the package `pg` that the store needs. */
export interface PgPool {
  query(text: string, values: Parameter[]): Promise<{ rows: Row[] }>;
  query(statement: PgStatement): Promise<{ rows: Row[] }>;
  connect(): Promise<PgClient>;
  on(event: "error", listener: (error: Error) => void): unknown;
  readonly options?: {
    readonly max?: number | undefined;
    readonly query_timeout?: number | undefined;
  };
}

interface PgStatement {
  readonly name?: string | undefined;
  readonly text: string;
  readonly values: Parameter[];
  readonly query_timeout: number;
}

export interface PgClient {
  query(text: string, values?: Parameter[]): Promise<{ rows: Row[] }>;
  query(statement: PgStatement): Promise<{ rows: Row[] }>;
  /** With an error or `true` the connection is closed instead of reused. */
  release(error?: Error | boolean): void;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "end", listener: () => void): unknown;
  on(event: "notification", listener: (message: { payload?: string | undefined }) => void): unknown;
  removeListener(event: "error", listener: (error: Error) => void): unknown;
}

/** A `Client` has `query` and `connect` too, but is one connection; only it knows how to escape text. */
export function isPgPool(client: unknown): client is PgPool {
  if (typeof client !== "object" || client === null || "escapeLiteral" in client) return false;
  const { query, connect, on } = client as Partial<PgPool>;
  return [query, connect, on].every((method) => typeof method === "function");
}

export function pgDatabase(pool: PgPool, { silentMs } = { silentMs: silentMsMax }): Database<PgClient> {
  listenForErrors(pool);
  const query_timeout = pool.options?.query_timeout || silentMs;
  const statements = new NamedStatements();
  const call = callOf(pool, statements, query_timeout);
  const query: Query = async <R extends Row>(text: string, parameters: readonly Parameter[] = []) =>
    (await pool.query({ text, values: [...parameters], query_timeout })).rows as R[];
  return {
    query,
    call,
    keepsPlans: () => statements.areUnderstood,
    batch: batchOf(call),
    transaction: (work, options) => transaction(pool, work, { ...options, query_timeout }),
    leaveReadOnly: leavingReadOnly(query),
    push: {
      kind: "connection",
      connect: async () => connectionOf(await pool.connect()),
      connectionsMax: pool.options?.max,
    },
  };
}

/**
 * A connection to a host that has vanished stays open for a quarter of an hour, until the operating system gives up, and
 * without this a pool would soon hold nothing else. Twice the lease, unless that was changed: nobody waits any more. The
 * pool closes a connection on which a statement took longer. A pool's own `query_timeout` counts instead.
 */
const silentMsMax = 30_000;

function callOf(pool: PgPool, statements: NamedStatements, query_timeout: number): Call {
  const shortWay = new ShortWay(pool, query_timeout);
  return <R extends Row>(text: string, parameters: readonly CallParameter[] = []) => {
    const send = (name?: string) => {
      if (shortWay.isOpen) return pool.query(new PgCall({ name, text, parameters }, query_timeout));
      const values = plainValues(parameters);
      const answer = pool.query({ ...(name === undefined ? {} : { name }), text, values, query_timeout });
      answer.then(
        () => shortWay.tryOnce(),
        () => {},
      );
      return answer;
    };
    return statements.send(text, { named: send, unnamed: () => send() }).then(({ rows }) => rows as R[]);
  };
}

type Call = <R extends Row>(text: string, parameters?: readonly CallParameter[]) => Promise<readonly R[]>;

/** Bytes are sent as they are, whatever the type of the parameter. Answers come as text: the driver reads nothing else. */
function batchOf(call: Call): Batch {
  const statements = new Map<BatchFunction, string>();
  return <R extends Row>(called: BatchFunction, parameters: readonly BatchParameter[]) => {
    const text = statements.get(called) ?? batchStatement(called, parameters, (type) => type);
    statements.set(called, text);
    return call<R>(text, parameters);
  };
}

const listenedPools = new WeakSet<PgPool>();

/**
 * When the server closes an idle connection, the pool emits "error", and an "error" without a listener ends the
 * process. The pool has already replaced the connection by then: there is nothing to do but to be there.
 */
function listenForErrors(pool: PgPool): void {
  if (listenedPools.has(pool)) return;
  listenedPools.add(pool);
  pool.on("error", ignore);
}

/** A statement that was under way rejects as well, and that is where the error is handled. */
function ignore(): void {}

async function transaction<T>(
  pool: PgPool,
  work: (query: Query, tx: PgClient) => Promise<T>,
  { beginWith, isLong, query_timeout }: TransactionOptions & { readonly query_timeout: number },
): Promise<T> {
  const client = await pool.connect();
  client.on("error", ignore);
  const say = (text: string) => client.query({ text, values: [], query_timeout });
  let broken = false;
  let unfit = false;
  try {
    await say(beginWith === undefined ? "BEGIN" : `BEGIN; ${beginWith}`);
    const result = await work(queryOf(client, isLong ? undefined : query_timeout), client);
    await say("COMMIT");
    return result;
  } catch (error) {
    unfit = isOfBadServer(error);
    await say("ROLLBACK").catch(() => {
      broken = true;
    });
    if (broken) throw new Error("the connection ended in the middle of a transaction", { cause: error });
    throw error;
  } finally {
    client.removeListener("error", ignore);
    client.release(broken || unfit);
  }
}

function connectionOf(client: PgClient): Connection {
  let end: ((cause: Error) => void) | undefined;
  // An error is followed by another one and by an end; the first is the one that counts.
  const ended = (cause: Error) => {
    const tell = end;
    end = undefined;
    tell?.(cause);
  };
  let released = false;
  // The pool does not listen while the client is ours, so this also keeps the process alive.
  client.on("error", ended);
  client.on("end", () => ended(new Error("the connection has ended")));
  return {
    query: queryOf(client),
    onNotification: (heard) => client.on("notification", ({ payload }) => heard(payload ?? "")),
    onEnd(run) {
      end = run;
    },
    destroy() {
      if (released) return;
      released = true;
      client.release(true);
      ended(new Error("the connection was closed"));
    },
  };
}

/** Without parameters a text may hold several statements, and migrations do. */
function queryOf(client: PgClient, query_timeout?: number): Query {
  return async <R extends Row>(text: string, parameters?: readonly Parameter[]) => {
    const values = parameters && [...parameters];
    const answer =
      query_timeout === undefined || values === undefined
        ? await client.query(text, values)
        : await client.query({ text, values, query_timeout });
    return answer.rows as R[];
  };
}
