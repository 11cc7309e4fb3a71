import { encodeProgress } from "../../../core/phase.ts";
import type { Lease, PhaseCommit, TransactAnswer } from "../../../core/store.ts";
import type { Database, Query } from "../database.ts";
import { endedTooEarly, inTransaction, lostLease } from "../transact.ts";
import { enqueue } from "./outbox.ts";
import { heldParameters, responseParameters } from "./settling.ts";
import { records as statements } from "./statements.ts";

/**
 * As on Postgres, with one statement more for each thing that commits. It is not carried out again after a conflict,
 * because business code may do more than write: the phase fails, and the next attempt finds it not done.
 */
export function transact<Tx, T>(
  database: Database<Tx>,
  lease: Lease,
  work: (tx: Tx) => T | Promise<T>,
  commit: (result: T) => PhaseCommit,
): Promise<TransactAnswer<T>> {
  let began: Promise<string> | undefined;
  return inTransaction(database, {
    // Not waited for: what comes next on this connection comes after it.
    begin(query) {
      began = query<{ began: string }>(statements.began).then(([row]) => row?.began ?? "");
      began.catch(() => {});
    },
    work,
    commit,
    writeDown: async (query, committed) => writeDown(query, lease, (await began) ?? "", committed),
  });
}

/** Answers when the record expires. */
async function writeDown(query: Query, lease: Lease, began: string, commit: PhaseCommit): Promise<number> {
  const { progress, onCrash, messages, response } = commit;
  const [held] = await query<{ expires: number }>(statements.phase, [
    ...heldParameters(lease),
    encodeProgress(progress),
    onCrash,
    began,
  ]);
  if (held === undefined) {
    const [now] = await query<{ began: string }>(statements.began);
    throw now?.began === began ? lostLease : endedTooEarly();
  }
  await enqueue(query, messages);
  if (response === undefined) return held.expires;
  const [clock] = await query<{ now: number }>(statements.clock);
  const [completed] = await query<{ expires: number }>(statements.respond, [
    ...heldParameters(lease),
    ...responseParameters(response),
    clock?.now ?? 0,
  ]);
  if (completed === undefined) throw lostLease;
  return completed.expires;
}
