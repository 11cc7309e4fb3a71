import { type IdempotencyRecord, isSettled } from "./record.ts";
import type { BustAnswer, UnsettledState } from "./store.ts";

/** What a bust comes to, given the record as it is now. Where that is `busted`, the store has yet to write it down. */
export function decideBust(record: IdempotencyRecord | undefined, attempt: number | undefined): BustAnswer {
  if (record === undefined) return { kind: "nothing", state: "absent" };
  const { state, fence } = record;
  if (state === "expired") return { kind: "nothing", state };
  if (attempt !== undefined && attempt !== fence) return { kind: "another-attempt", attempt: fence };
  if (state === "completed" || isSettled(record)) return { kind: "busted" };
  return { kind: "not-settled", state };
}

/** What an operator can do about a record that cannot be busted. */
export const insteadOfBusting: Readonly<Record<UnsettledState, string>> = {
  in_progress: "it is being executed: wait for its outcome, and bust that",
  pending: "a worker has yet to execute it: wait for its outcome, and bust that",
  failed_retryable:
    "it is half done, or waits for a worker to finish it, and beginning anew would do some of it twice: let a retry or " +
    "the completer finish it, and bust the outcome",
  unknown: "nobody knows whether it was executed: find out, and say so with latchkey.resolve",
};
