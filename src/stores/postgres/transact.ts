import { randomUUID } from "node:crypto";
import { StoreError } from "../../core/errors.ts";
import { encodeProgress } from "../../core/phase.ts";
import { encodeResponse } from "../../core/response.ts";
import type { Lease, PhaseCommit, TransactAnswer } from "../../core/store.ts";
import type { Database, Parameter, Query } from "./database.ts";
import { isConflict, isReadOnly, storeError } from "./errors.ts";
import { messagesJson } from "./outbox.ts";
import { durationMs } from "./rows.ts";
import { markTransaction, phase } from "./statements/phases.ts";
import { recordName } from "./statements/sql.ts";

/**
 * Runs business writes and commits them together with what they mean for the record, if the lease is still held. The
 * lease is looked at last: a locked record would make the heartbeats of the whole process wait for the business code.
 */
export function transact<Tx, T>(
  database: Database<Tx>,
  lease: Lease,
  work: (tx: Tx) => T | Promise<T>,
  commit: (result: T) => PhaseCommit,
): Promise<TransactAnswer<T>> {
  const mark = randomUUID();
  return inTransaction(database, {
    beginWith: markTransaction(mark),
    work,
    commit,
    writeDown: (query, committed) => writeDown(query, lease, mark, committed),
  });
}

/** One phase, and how an engine writes it down. */
interface Transaction<Tx, T> {
  readonly beginWith?: string;
  /** Sends what has to come before the business writes. */
  begin?(query: Query): void;
  work(tx: Tx): T | Promise<T>;
  commit(result: T): PhaseCommit;
  /** Answers when the record expires; throws `lostLease` if another owner has it. */
  writeDown(query: Query, committed: PhaseCommit): Promise<number>;
}

export async function inTransaction<Tx, T>(
  database: Database<Tx>,
  { beginWith, begin, work, commit, writeDown }: Transaction<Tx, T>,
): Promise<TransactAnswer<T>> {
  let thrown: { readonly error: unknown } | undefined;
  try {
    return await database.transaction(
      async (query, tx) => {
        begin?.(query);
        const { result, committed } = await attempt(work, commit, tx).catch((error: unknown) => {
          thrown = { error };
          throw error;
        });
        const expiresAt = await writeDown(query, committed);
        return { kind: "committed", result, expiresAt };
      },
      beginWith === undefined ? {} : { beginWith },
    );
  } catch (error) {
    if (error === lostLease) return { kind: "lost" };
    if (isReadOnly(error)) database.leaveReadOnly();
    // Only what the business code threw is thrown on as it is, and only if it was rolled back.
    if (thrown !== undefined && thrown.error === error) throw error;
    // What has lost against another transaction was rolled back for certain: the phase has failed, and nothing is in doubt.
    if (isConflict(error)) throw error;
    throw storeError(error);
  }
}

/** Thrown to roll back, and never seen outside. */
export const lostLease = new Error("the lease is lost");

export function endedTooEarly(): StoreError {
  return new StoreError(
    "the transaction of an atomic phase had ended before the phase did: leave COMMIT and ROLLBACK to Latchkey",
  );
}

async function attempt<Tx, T>(
  work: (tx: Tx) => T | Promise<T>,
  commit: (result: T) => PhaseCommit,
  tx: Tx,
): Promise<{ result: T; committed: PhaseCommit }> {
  const result = await work(tx);
  return { result, committed: commit(result) };
}

/** Answers when the record expires. */
async function writeDown(query: Query, lease: Lease, mark: string, commit: PhaseCommit): Promise<number> {
  const { progress, onCrash, messages, response } = commit;
  const parameters: Parameter[] = [lease.scope, lease.key, lease.fence, lease.owner];
  parameters.push(mark, encodeProgress(progress), onCrash);
  if (response !== undefined) {
    const { status, head, body } = encodeResponse(response.response);
    parameters.push(status, head, body, durationMs(response.retentionMs), recordName(lease));
  }
  if (messages.length > 0) parameters.push(messagesJson(messages));
  const [row] = await query<{ intact: boolean; expires: number | null }>(
    phase({ completes: response !== undefined, enqueues: messages.length > 0 }),
    parameters,
  );
  if (!row?.intact) throw endedTooEarly();
  if (row.expires === null) throw lostLease;
  return row.expires;
}
