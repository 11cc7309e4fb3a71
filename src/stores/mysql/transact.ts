import { PhaseError, StoreError } from "../../core/errors.ts";
import { encodeProgress } from "../../core/phase.ts";
import { encodeResponse } from "../../core/response.ts";
import type { Lease, PhaseCommit, TransactAnswer } from "../../core/store.ts";
import { type ColumnValue, wholeMs } from "../record-row.ts";
import type { Database, MysqlConnection, PoolSession } from "./database.ts";
import { isMarkGone, storeError } from "./errors.ts";
import { insertMessages } from "./outbox.ts";
import { connectionOfPhase, endedFromWithin } from "./phase-connection.ts";
import { idOf } from "./records.ts";
import * as statements from "./statements.ts";

/**
 * Runs business writes and commits them together with what they mean for the record, if the lease is still held. The
 * lease is looked at last: a locked record would make the heartbeats of the whole process wait for the business code.
 * Nothing is tried again here: `work` is run once, and a COMMIT without an answer may have happened.
 */
export async function transact<T>(
  database: Database,
  lease: Lease,
  work: (tx: MysqlConnection) => T | Promise<T>,
  commit: (result: T) => PhaseCommit,
): Promise<TransactAnswer<T>> {
  let thrown: { readonly error: unknown } | undefined;
  try {
    return await database.withConnection(async (session) => {
      await session.run(statements.beginPhase);
      const { result, committed } = await attempt(session, work, commit).catch((error: unknown) => {
        thrown = { error };
        throw error;
      });
      const expiresAt = await endPhase(session, lease, committed);
      if (expiresAt === undefined) {
        await session.run("ROLLBACK");
        return { kind: "lost" };
      }
      await insertMessages(session, committed.messages);
      await session.run("COMMIT");
      return { kind: "committed", result, expiresAt };
    });
  } catch (error) {
    // What the business code threw is thrown on as it is; the rest is the store's failure, and never the handler's.
    if (thrown !== undefined && thrown.error === error) throw error;
    throw error instanceof PhaseError ? error : storeError(error);
  }
}

async function attempt<T>(
  session: PoolSession,
  work: (tx: MysqlConnection) => T | Promise<T>,
  commit: (result: T) => PhaseCommit,
): Promise<{ readonly result: T; readonly committed: PhaseCommit }> {
  const phase = connectionOfPhase(session.connection);
  try {
    const result = await work(phase.tx);
    phase.checkIntact();
    return { result, committed: commit(result) };
  } finally {
    phase.end();
  }
}

/** Answers when the record expires; undefined if the lease is lost. */
async function endPhase(session: PoolSession, lease: Lease, phase: PhaseCommit): Promise<number | undefined> {
  const { progress, onCrash, response } = phase;
  const parameters: ColumnValue[] = [
    idOf(lease),
    lease.fence,
    lease.owner,
    encodeProgress(progress),
    onCrash,
  ];
  if (response === undefined) parameters.push(null, null, null, null);
  else {
    const { status, head, body } = encodeResponse(response.response);
    parameters.push(status, head, body, wholeMs(response.retentionMs));
  }
  const [row] = await session.rows(statements.endPhase, parameters).catch((error: unknown) => {
    throw isMarkGone(error) ? endedFromWithin(error) : error;
  });
  if (row === undefined)
    throw new StoreError("MySQL did not say whether the lease of an atomic phase is held");
  return row.expires_at === null ? undefined : Number(row.expires_at);
}
