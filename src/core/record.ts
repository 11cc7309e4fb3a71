import type { Progress } from "./phase.ts";
import type { StoredResponse } from "./response.ts";

/** What a record is found by: a key means something only within its scope. */
export interface RecordId {
  readonly scope: string;
  readonly key: string;
}

/** One text for one id. The key's length comes first, so that no key and scope can be taken for another pair. */
export function recordIdText(id: RecordId): string {
  return `${id.key.length}:${id.key}${id.scope}`;
}

/** What the death of an owner means; decided by the request that started the execution. */
export type OnCrash = "reconcile" | "resume" | "retry";

interface Common extends RecordId {
  readonly fingerprint: string;
  /** The number of the latest attempt. It only grows while the record exists. */
  readonly fence: number;
  readonly onCrash: OnCrash;
  /** How long after a crash reconciliation may first ask: the last call of a dead process may still be under way. */
  readonly reconcileAfterMs: number;
  /** The name of the route or flow, by which reconciliation finds whom to ask. */
  readonly route: string | undefined;
  /** How far the operation has come. */
  readonly progress: Progress;
  /** All times are milliseconds since 1970 on the store's clock. */
  readonly createdAt: number;
  readonly expiresAt: number;
}

/** Accepted for later execution; nobody has claimed it yet. */
export interface PendingRecord extends Common {
  readonly state: "pending";
  /** When a worker may take it. */
  readonly resumeAfter: number;
  /** How often workers have taken it without executing it. */
  readonly claims: number;
}

/** Somebody holds the lease, or held it until `leaseUntil`. */
export interface InProgressRecord extends Common {
  readonly state: "in_progress";
  readonly owner: string;
  /** The past, if the store knows by other means that the owner is gone. */
  readonly leaseUntil: number;
}

/** The outcome is known, and every retry gets it. */
export interface CompletedRecord extends Common {
  readonly state: "completed";
  readonly completedAt: number;
  readonly response: StoredResponse;
}

/** The next request may try: nothing was executed, or what was executed is written down and is not done again. */
export interface FailedRetryableRecord extends Common {
  readonly state: "failed_retryable";
  readonly reason: string;
  /** When a worker may finish it, if nobody else does before. While this is set the record does not expire. */
  readonly resumeAfter: number | undefined;
  /** How often workers have taken it without executing it. */
  readonly claims: number;
}

/** It may have been executed. Only reconciliation or an operator moves it. */
export interface UnknownRecord extends Common {
  readonly state: "unknown";
  readonly reason: string;
  readonly reconcileAfter: number;
  /** How often reconciliation has asked. */
  readonly reconcileAttempts: number;
  /** Since when it waits for an operator, because asking has not helped. */
  readonly escalatedAt: number | undefined;
}

/** Past its retention and kept for audit only; the response is gone. */
export interface ExpiredRecord extends Common {
  readonly state: "expired";
}

/** One row per (scope, key). Illegal combinations of columns cannot be written down here. */
export type IdempotencyRecord =
  | PendingRecord
  | InProgressRecord
  | CompletedRecord
  | FailedRetryableRecord
  | UnknownRecord
  | ExpiredRecord;

export type RecordState = IdempotencyRecord["state"];

/** In the order of a record's life; stores that write a state down as a number use its place here. */
export const recordStates = [
  "pending",
  "in_progress",
  "completed",
  "failed_retryable",
  "unknown",
  "expired",
] as const satisfies readonly RecordState[];

/**
 * Whether nothing is left to be done or to be found out, so that the record may go when its time is over. What waits
 * to be finished, or was begun, may be half done: forgetting it would begin it anew.
 */
export function isSettled(record: IdempotencyRecord): boolean {
  switch (record.state) {
    case "completed":
    case "expired":
      return true;
    case "failed_retryable":
      return record.resumeAfter === undefined && record.progress.length === 0;
    case "pending":
    case "in_progress":
    case "unknown":
      return false;
    default:
      return record satisfies never;
  }
}

/** What a list shows of a record. What takes room, and what may be sealed, is for `read`. */
export interface ListedRecord extends RecordId {
  readonly state: RecordState;
  readonly fence: number;
  readonly route: string | undefined;
  readonly createdAt: number;
  readonly expiresAt: number;
  /** When it was completed, and with which status. */
  readonly completedAt: number | undefined;
  readonly status: number | undefined;
  /** Why it is unknown, or may be tried again. */
  readonly reason: string | undefined;
  /** Until when it is being executed, unless that is renewed. */
  readonly leaseUntil: number | undefined;
  /** When reconciliation asks next, and how often it has. */
  readonly reconcileAfter: number | undefined;
  readonly reconcileAttempts: number | undefined;
  /** Since when it waits for an operator. */
  readonly escalatedAt: number | undefined;
  /** When a worker may execute it, or finish it. */
  readonly resumeAfter: number | undefined;
}

export function listed(record: IdempotencyRecord): ListedRecord {
  const { scope, key, state, fence, route, createdAt, expiresAt } = record;
  return {
    scope,
    key,
    state,
    fence,
    route,
    createdAt,
    expiresAt,
    completedAt: state === "completed" ? record.completedAt : undefined,
    status: state === "completed" ? record.response.status : undefined,
    reason: state === "unknown" || state === "failed_retryable" ? record.reason : undefined,
    leaseUntil: state === "in_progress" ? record.leaseUntil : undefined,
    reconcileAfter: state === "unknown" ? record.reconcileAfter : undefined,
    reconcileAttempts: state === "unknown" ? record.reconcileAttempts : undefined,
    escalatedAt: state === "unknown" ? record.escalatedAt : undefined,
    resumeAfter: state === "pending" || state === "failed_retryable" ? record.resumeAfter : undefined,
  };
}
