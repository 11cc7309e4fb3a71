import { auditReasons } from "./audit.ts";
import { noProgress } from "./phase.ts";
import type {
  FailedRetryableRecord,
  IdempotencyRecord,
  InProgressRecord,
  PendingRecord,
  UnknownRecord,
} from "./record.ts";
import type { StoredResponse } from "./response.ts";
import type { ReserveRequest, Resolution, Settlement } from "./store.ts";

/** The record while the request that was just let through executes. */
export function reserved(
  previous: IdempotencyRecord | undefined,
  request: ReserveRequest,
  next: { readonly fence: number; readonly isNewUse: boolean },
  now: number,
): InProgressRecord {
  const { scope, key, fingerprint, owner, onCrash, reconcileAfterMs, route } = request;
  const before = next.isNewUse ? undefined : previous;
  return {
    state: "in_progress",
    scope,
    key,
    fingerprint,
    fence: next.fence,
    onCrash,
    reconcileAfterMs,
    route,
    progress: before?.progress ?? noProgress,
    owner,
    leaseUntil: now + request.leaseMs,
    createdAt: before?.createdAt ?? now,
    expiresAt: now + request.retentionMs,
  };
}

/** The record of a request that waits for a worker. What an earlier attempt has done stays done. */
export function accepted(
  previous: IdempotencyRecord | undefined,
  request: ReserveRequest,
  next: { readonly fence: number; readonly isNewUse: boolean },
  now: number,
): PendingRecord {
  const record = reserved(previous, request, next, now);
  return { ...common(record), state: "pending", resumeAfter: now, claims: 0 };
}

/** The record after its owner said what happened. */
export function settled(record: InProgressRecord, settlement: Settlement, now: number): IdempotencyRecord {
  // Written out field by field: this is on the path of every request, and a spread costs several times as much.
  const { scope, key, fingerprint, fence, onCrash, reconcileAfterMs, route, progress, createdAt } = record;
  switch (settlement.kind) {
    case "complete":
      return {
        state: "completed",
        scope,
        key,
        fingerprint,
        fence,
        onCrash,
        reconcileAfterMs,
        route,
        progress,
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
        reconcileAfterMs,
        route,
        progress,
        createdAt,
        expiresAt: now + settlement.retentionMs,
        reason: settlement.reason,
        resumeAfter: resumeTime(settlement.resumeAfterMs, now),
        claims: 0,
      };
    case "suspend":
      return {
        ...common(record),
        state: "unknown",
        reason: settlement.reason,
        reconcileAfter: now + settlement.reconcileAfterMs,
        reconcileAttempts: 0,
        escalatedAt: undefined,
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

/**
 * The record after somebody else found its owner gone. What may be tried again waits for the next request, or for a
 * worker if the request was kept and the operation can be resumed.
 */
export function crashed(
  record: InProgressRecord,
  now: number,
  options: { readonly isRequestKept: boolean },
): IdempotencyRecord {
  if (record.onCrash === "reconcile") {
    return {
      ...common(record),
      state: "unknown",
      reason: crashReason,
      reconcileAfter: now + record.reconcileAfterMs,
      reconcileAttempts: 0,
      escalatedAt: undefined,
    };
  }
  return {
    ...common(record),
    state: "failed_retryable",
    reason: crashReason,
    resumeAfter: options.isRequestKept ? now : undefined,
    claims: 0,
  };
}

/**
 * The record of an accepted request that nobody executed in time. Its answer is kept for as long as it waited; if an
 * earlier attempt had done something, that nothing was done would be a lie, and somebody has to look.
 */
export function unclaimed(record: PendingRecord, response: StoredResponse, now: number): IdempotencyRecord {
  if (record.progress.length > 0) return doubtful(record, auditReasons.unclaimed, now);
  return {
    ...common(record),
    state: "completed",
    completedAt: now,
    response,
    expiresAt: now + (record.expiresAt - record.createdAt),
  };
}

/** The record after reconciliation, or an operator, said what became of it. */
export function resolved(
  record: UnknownRecord,
  resolution: Resolution,
  now: number,
  options: { readonly isRequestKept: boolean },
): IdempotencyRecord {
  switch (resolution.kind) {
    case "complete":
      return {
        ...common(record),
        state: "completed",
        completedAt: now,
        expiresAt: now + resolution.retentionMs,
        response: resolution.response,
      };
    case "release":
      return {
        ...common(record),
        state: "failed_retryable",
        progress: resolution.progress,
        expiresAt: now + resolution.retentionMs,
        reason: resolution.reason,
        // A worker can go on only with what was kept; anything else waits for its client.
        resumeAfter: options.isRequestKept ? resumeTime(resolution.resumeAfterMs, now) : undefined,
        claims: 0,
      };
    case "escalate":
      return { ...record, reason: resolution.reason, escalatedAt: now };
    default:
      return resolution satisfies never;
  }
}

/** The record of something half done that nobody went on with while it was kept: it must not be forgotten. */
export function abandoned(record: FailedRetryableRecord, now: number): IdempotencyRecord {
  return doubtful(record, auditReasons.abandoned, now);
}

/**
 * The record of an operation that no worker could finish. One that can be resumed may be half done, so somebody has to
 * find out; any other has done nothing, and is left to the next request.
 */
export function gaveUp(record: FailedRetryableRecord, now: number): IdempotencyRecord {
  const { gaveUp: reason } = auditReasons;
  if (record.onCrash !== "resume" && record.progress.length === 0) {
    return { ...record, reason, resumeAfter: undefined };
  }
  return doubtful(record, reason, now);
}

/** When a record that was claimed for the `attempts`th time may be claimed again. */
export function backoffMs(
  backoff: { readonly baseMs: number; readonly capMs: number },
  attempts: number,
): number {
  return Math.min(backoff.capMs, backoff.baseMs * 2 ** Math.min(attempts, backoffDoublingsMax));
}

/** Beyond this every cap is reached, and the number would only lose its precision. */
export const backoffDoublingsMax = 20;

/** The record past its retention, kept for audit without its response. */
export function expired(record: IdempotencyRecord): IdempotencyRecord {
  return { ...common(record), state: "expired", progress: noProgress };
}

/** Why a record whose owner vanished is what it is. Operators read this. */
export const crashReason = "the process that executed this request stopped without an outcome";

/** What every state has; the rest belongs to the state that ends here. */
function common(record: IdempotencyRecord) {
  const { scope, key, fingerprint, fence, onCrash, reconcileAfterMs, route, progress, createdAt, expiresAt } =
    record;
  return { scope, key, fingerprint, fence, onCrash, reconcileAfterMs, route, progress, createdAt, expiresAt };
}

/** The record of something that may have happened, to be asked about at once. */
function doubtful(record: IdempotencyRecord, reason: string, now: number): UnknownRecord {
  return {
    ...common(record),
    state: "unknown",
    reason,
    reconcileAfter: now,
    reconcileAttempts: 0,
    escalatedAt: undefined,
  };
}

function resumeTime(resumeAfterMs: number | undefined, now: number): number | undefined {
  return resumeAfterMs === undefined ? undefined : now + resumeAfterMs;
}
