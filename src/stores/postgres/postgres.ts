import { arrayLiteral, batchStatement } from "./arrays.ts";
import type { Database, Engine, Parameter, Query, Row } from "./database.ts";
import { leavingReadOnly } from "./read-only.ts";

/** The part of `sql` from the package `postgres` that the store needs. */
export interface PostgresSql extends PostgresUnsafe {
  readonly options?: { readonly prepare?: boolean };
  begin(work: (sql: PostgresTransaction) => Promise<unknown>): Promise<unknown>;
  listen(
    channel: string,
    heard: (payload: string) => void,
    listening?: () => void,
  ): Promise<{ unlisten(): Promise<void> }>;
}

/** What `begin` hands to its callback. */
export type PostgresTransaction = PostgresUnsafe;

interface PostgresUnsafe {
  unsafe(text: string, parameters?: Parameter[]): PromiseLike<readonly object[]>;
}

export function isPostgresSql(client: unknown): client is PostgresSql {
  if (typeof client !== "function") return false;
  const { unsafe, begin, listen } = client as Partial<PostgresSql>;
  return [unsafe, begin, listen].every((method) => typeof method === "function");
}

export function postgresDatabase(
  sql: PostgresSql,
  engine: Engine = "postgres",
): Database<PostgresTransaction> {
  // Other engines cannot tell what became of a transaction.
  const asksForCommit = engine === "postgres" && sql.options?.prepare !== false;
  const query = queryOf(sql);
  const leaveReadOnly = leavingReadOnly(query);
  return {
    query,
    // Not under a name: where a transaction pool refuses it, this driver (3.4.9) loses its place in the conversation.
    call: query,
    keepsPlans: () => false,
    // The driver would make arrays of its own of anything that the server says is one; so it is told that it is text.
    batch: (called, parameters) =>
      query(
        batchStatement(called, parameters, (type) => `text::${type}`),
        parameters.map((parameter) => {
          if (typeof parameter !== "object") return parameter;
          return parameter.values && arrayLiteral(parameter.values);
        }),
      ),
    transaction: (work, options) => transaction(sql, work, { ...options, asksForCommit, leaveReadOnly }),
    leaveReadOnly,
    push: {
      kind: "listener",
      async listen(channel, hooks) {
        const { unlisten } = await sql.listen(channel, hooks.heard, hooks.listening);
        return { stop: unlisten };
      },
    },
  };
}

/**
 * A statement on a connection that has ended crashes the process, within the driver (3.4.9), and the driver itself
 * would send ROLLBACK. By then `begin` has rejected: nothing is sent any more, and its callback never returns.
 */
async function transaction<T>(
  sql: PostgresSql,
  work: (query: Query, tx: PostgresTransaction) => Promise<T>,
  { beginWith, asksForCommit, leaveReadOnly }: TransactionOptions,
): Promise<T> {
  let hasEnded = false;
  const end = () => {
    hasEnded = true;
  };
  let id: Promise<string | undefined> | undefined;
  const begun = sql.begin(async (tx) => {
    // Sent with what comes next, not waited for; should it fail, `begin` itself rejects.
    if (beginWith !== undefined) tx.unsafe(beginWith).then(ignore, ignore);
    const query = queryOf(tx);
    if (asksForCommit) id = transactionId(query);
    const guarded: Query = async (text, parameters) => {
      if (hasEnded) throw new Error("the connection ended in the middle of a transaction");
      return query(text, parameters);
    };
    try {
      return await work(guarded, tx);
    } catch (error) {
      // The statement is the first to learn that the connection has ended, and `begin` the next.
      await new Promise((resolve) => setImmediate(resolve));
      if (hasEnded) await new Promise(() => {});
      throw error;
    }
  });
  begun.then(end, end);
  const result = (await begun.catch(async (error) => {
    // A server that only reads has no number for it, and whatever came after that failed for another reason.
    if (id !== undefined && (await id) === undefined) leaveReadOnly();
    throw error;
  })) as T;
  if (id !== undefined) await assertCommitted(queryOf(sql), await id);
  return result;
}

interface TransactionOptions {
  readonly beginWith?: string;
  readonly asksForCommit: boolean;
  leaveReadOnly(): void;
}

/** Undefined if it cannot be told, and then the transaction has failed. */
function transactionId(query: Query): Promise<string | undefined> {
  return query<{ id: string }>("SELECT pg_current_xact_id()::text AS id").then(
    ([row]) => row?.id,
    () => undefined,
  );
}

/**
 * The driver sends its COMMIT under a name, unless it was told `prepare: false`. Behind a transaction pool that name is
 * missing, which fails the transaction; the driver (3.4.9) sends COMMIT again, which then is a ROLLBACK, and says that
 * it was committed. So the server is asked.
 */
async function assertCommitted(query: Query, id: string | undefined): Promise<void> {
  const [row] = await query<{ status: string }>("SELECT pg_xact_status($1::text::xid8) AS status", [
    id ?? null,
  ]);
  if (row?.status === "committed") return;
  throw new Error(
    "a transaction was rolled back that the driver had said to be committed: behind a transaction pool, pass " +
      "prepare: false to postgres()",
  );
}

function ignore(): void {}

/** `unsafe` means that the text is sent as it is. It makes no named statement, unlike the tagged form. */
function queryOf(sql: PostgresUnsafe): Query {
  return async <R extends Row>(text: string, parameters: readonly Parameter[] = []) =>
    (await sql.unsafe(text, [...parameters])) as unknown as readonly R[];
}
