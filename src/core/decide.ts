import { noProgress, type Progress } from "./phase.ts";
import { type IdempotencyRecord, type InProgressRecord, isSettled } from "./record.ts";
import type { ExecuteAfter, Replay, Reservation, ReserveMode } from "./store.ts";

/** What has to happen with an arriving request. A store acts on it, atomically with having read the record. */
export type Decision =
  | {
      readonly kind: "execute";
      readonly after: ExecuteAfter;
      readonly fence: number;
      readonly progress: Progress;
      /** When the operation was first reserved; now, if it is a new one. */
      readonly createdAt: number;
    }
  /** Keep the request for a worker: write `pending` down first, then answer it. */
  | { readonly kind: "accept"; readonly isNewUse: boolean; readonly fence: number }
  | Replay
  | { readonly kind: "inFlight"; readonly retryAfterMs: number }
  | { readonly kind: "pending" }
  | { readonly kind: "absent" }
  | { readonly kind: "mismatch" }
  | { readonly kind: "unknown"; readonly retryAfterMs: number }
  /** The owner is gone and may have executed: write `unknown` down first, then answer it. */
  | { readonly kind: "suspend"; readonly record: InProgressRecord };

/**
 * The whole state machine as one pure function: what a request with this fingerprint gets, given the record under its
 * key and the time. Every store must answer as this does; those that decide in SQL are tested against it.
 */
export function decide(
  record: IdempotencyRecord | undefined,
  request: { readonly fingerprint: string; readonly mode: ReserveMode },
  now: number,
): Decision {
  const accepts = request.mode === "accept";
  // Past its retention a settled record is as good as gone, whatever request it was for.
  if (record === undefined || isReusable(record, now)) {
    const fence = record?.fence ?? 0;
    const after = record === undefined ? "absent" : "expired";
    // A worker comes for something that is there. What is not, it may have looked for under the wrong name.
    if (request.mode === "claim") return { kind: "absent" };
    if (accepts) return { kind: "accept", isNewUse: true, fence };
    return { kind: "execute", after, fence: fence + 1, progress: noProgress, createdAt: now };
  }

  // The fingerprint comes before every state: a wrong request learns nothing and changes nothing.
  if (record.fingerprint !== request.fingerprint) return { kind: "mismatch" };

  const { fence, progress, createdAt } = record;
  switch (record.state) {
    case "pending":
      // Past its time it is about to be answered 408, and must not be executed after all.
      if (request.mode !== "claim" || record.expiresAt <= now) return { kind: "pending" };
      return { kind: "execute", after: "pending", fence: fence + 1, progress, createdAt };
    case "in_progress":
      if (record.leaseUntil > now) return { kind: "inFlight", retryAfterMs: record.leaseUntil - now };
      if (record.onCrash === "reconcile") return { kind: "suspend", record };
      if (accepts) return { kind: "accept", isNewUse: false, fence };
      return { kind: "execute", after: "crash", fence: fence + 1, progress, createdAt };
    case "completed":
      return {
        kind: "replay",
        response: record.response,
        expiresAt: record.expiresAt,
        remainingMs: record.expiresAt - now,
      };
    case "failed_retryable":
      if (accepts) return { kind: "accept", isNewUse: false, fence };
      return { kind: "execute", after: "failed_retryable", fence: fence + 1, progress, createdAt };
    case "unknown":
      return { kind: "unknown", retryAfterMs: Math.max(0, record.reconcileAfter - now) };
    case "expired":
      throw new Error("an expired record is reusable, and was handled above");
    default:
      return record satisfies never;
  }
}

/** What can be told without writing anything down. */
export type Answer = Exclude<Decision, { readonly kind: "execute" | "accept" | "suspend" }>;

export function isAnswer(decision: Decision): decision is Answer {
  return decision.kind !== "execute" && decision.kind !== "accept" && decision.kind !== "suspend";
}

export function answerOf(decision: Answer): Reservation {
  return decision.kind === "unknown" ? { ...decision, discovered: false } : decision;
}

/** Only settled records run out; what is still under way or not known stays, however old it is. */
function isReusable(record: IdempotencyRecord, now: number): boolean {
  return record.state === "expired" || (isSettled(record) && record.expiresAt <= now);
}
