import type { IdempotencyRecord, InProgressRecord } from "./record.ts";
import type { ReserveRequest, Settlement } from "./store.ts";

/** The record while the request that was just let through executes. */
export function reserved(
  previous: IdempotencyRecord | undefined,
  request: ReserveRequest,
  next: { readonly fence: number; readonly isNewUse: boolean },
  now: number,
): InProgressRecord {
  const { scope, key, fingerprint, owner, onCrash } = request;
  return {
    state: "in_progress",
    scope,
    key,
    fingerprint,
    fence: next.fence,
    onCrash,
    owner,
    leaseUntil: now + request.leaseMs,
    createdAt: previous === undefined || next.isNewUse ? now : previous.createdAt,
    expiresAt: now + request.retentionMs,
  };
}

/** The record after its owner said what happened. */
export function settled(record: InProgressRecord, settlement: Settlement, now: number): IdempotencyRecord {
  // Written out field by field: this is on the path of every request, and a spread costs several times as much.
  const { scope, key, fingerprint, fence, onCrash, createdAt } = record;
  switch (settlement.kind) {
    case "complete":
      return {
        state: "completed",
        scope,
        key,
        fingerprint,
        fence,
        onCrash,
        createdAt,
        completedAt: now,
        expiresAt: now + settlement.retentionMs,
        response: settlement.response,
      };
    case "release":
      return {
        state: "failed_retryable",
        scope,
        key,
        fingerprint,
        fence,
        onCrash,
        createdAt,
        expiresAt: now + settlement.retentionMs,
        reason: settlement.reason,
      };
    case "suspend":
      return {
        ...common(record),
        state: "unknown",
        reason: settlement.reason,
        reconcileAfter: now + settlement.reconcileAfterMs,
      };
    default:
      return settlement satisfies never;
  }
}

/** The state that each settlement leads to. */
export const settledStates = {
  complete: "completed",
  release: "failed_retryable",
  suspend: "unknown",
} as const satisfies Record<Settlement["kind"], IdempotencyRecord["state"]>;

/** The record after somebody else found its owner gone. What may be tried again, waits for the next request. */
export function crashed(record: InProgressRecord, now: number): IdempotencyRecord {
  return record.onCrash === "reconcile"
    ? {
        ...common(record),
        state: "unknown",
        reason: crashReason,
        reconcileAfter: now + crashReconcileAfterMs,
      }
    : { ...common(record), state: "failed_retryable", reason: crashReason };
}

/** The record past its retention, kept for audit without its response. */
export function expired(record: IdempotencyRecord): IdempotencyRecord {
  return { ...common(record), state: "expired" };
}

/** Why a record whose owner vanished is what it is. Operators read this. */
export const crashReason = "the process that executed this request stopped without an outcome";

/** After a crash the first question may be asked at once: nobody is left who could still answer. */
export const crashReconcileAfterMs = 0;

/** What every state has; the rest belongs to the state that ends here. */
function common(record: IdempotencyRecord) {
  const { scope, key, fingerprint, fence, onCrash, createdAt, expiresAt } = record;
  return { scope, key, fingerprint, fence, onCrash, createdAt, expiresAt };
}
