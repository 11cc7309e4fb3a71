import type { IdempotencyRecord, InProgressRecord } from "./record.ts";
import type { StoredResponse } from "./response.ts";
import type { ExecuteAfter, Reservation } from "./store.ts";

/** What has to happen with an arriving request. A store acts on it, atomically with having read the record. */
export type Decision =
  | { readonly kind: "execute"; readonly after: ExecuteAfter; readonly fence: number }
  | { readonly kind: "replay"; readonly response: StoredResponse; readonly expiresAt: number }
  | { readonly kind: "inFlight"; readonly retryAfterMs: number }
  | { readonly kind: "pending" }
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
  request: { readonly fingerprint: string },
  now: number,
): Decision {
  if (record === undefined) return { kind: "execute", after: "absent", fence: 1 };
  const next = record.fence + 1;

  // Past its retention a settled record is as good as gone, whatever request it was for.
  if (isReusable(record, now)) return { kind: "execute", after: "expired", fence: next };

  // The fingerprint comes before every state: a wrong request learns nothing and changes nothing.
  if (record.fingerprint !== request.fingerprint) return { kind: "mismatch" };

  switch (record.state) {
    case "pending":
      return { kind: "pending" };
    case "in_progress":
      if (record.leaseUntil > now) return { kind: "inFlight", retryAfterMs: record.leaseUntil - now };
      return record.onCrash === "reconcile"
        ? { kind: "suspend", record }
        : { kind: "execute", after: "crash", fence: next };
    case "completed":
      return { kind: "replay", response: record.response, expiresAt: record.expiresAt };
    case "failed_retryable":
      return { kind: "execute", after: "failed_retryable", fence: next };
    case "unknown":
      return { kind: "unknown", retryAfterMs: Math.max(0, record.reconcileAfter - now) };
    case "expired":
      return { kind: "execute", after: "expired", fence: next };
    default:
      return record satisfies never;
  }
}

/** What can be told without writing anything down. */
export type Answer = Exclude<Decision, { readonly kind: "execute" | "suspend" }>;

export function isAnswer(decision: Decision): decision is Answer {
  return decision.kind !== "execute" && decision.kind !== "suspend";
}

export function answerOf(decision: Answer): Reservation {
  return decision.kind === "unknown" ? { ...decision, discovered: false } : decision;
}

/** Only settled records run out; what is still under way or not known stays, however old it is. */
function isReusable(record: IdempotencyRecord, now: number): boolean {
  switch (record.state) {
    case "completed":
    case "failed_retryable":
      return record.expiresAt <= now;
    case "expired":
      return true;
    case "pending":
    case "in_progress":
    case "unknown":
      return false;
    default:
      return record satisfies never;
  }
}
