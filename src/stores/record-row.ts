import { decodeProgress, encodeProgress } from "../core/phase.ts";
import type { IdempotencyRecord, OnCrash, RecordId, RecordState } from "../core/record.ts";
import { decodeResponse, encodeResponse } from "../core/response.ts";

/*
 * A record as a row of a table that has a column for everything, with its times in milliseconds since 1970. Stores
 * whose records look like this share the names of the columns.
 */

/** What a column holds: text, a number, bytes, or nothing. */
export type ColumnValue = string | number | Uint8Array | null;

/** The record that a row is, by the names of its columns. */
export function recordOf(
  { scope, key }: RecordId,
  row: Readonly<Record<string, ColumnValue>>,
): IdempotencyRecord {
  const common = {
    scope,
    key,
    fingerprint: row.fingerprint as string,
    fence: row.fence as number,
    onCrash: row.on_crash as OnCrash,
    reconcileAfterMs: row.reconcile_ms as number,
    route: (row.route as string | null) ?? undefined,
    progress: decodeProgress(row.progress as string | null),
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
  };
  const state = row.state as RecordState;
  switch (state) {
    case "pending":
      return { ...common, state, resumeAfter: row.resume_after as number, claims: row.claims as number };
    case "expired":
      return { ...common, state };
    case "in_progress":
      return { ...common, state, owner: row.owner as string, leaseUntil: row.lease_until as number };
    case "completed":
      return {
        ...common,
        state,
        completedAt: row.completed_at as number,
        response: decodeResponse({
          status: row.response_status as number,
          head: row.response_head as string,
          body: row.response_body as Uint8Array | null,
        }),
      };
    case "failed_retryable":
      return {
        ...common,
        state,
        reason: row.reason as string,
        resumeAfter: (row.resume_after as number | null) ?? undefined,
        claims: row.claims as number,
      };
    case "unknown":
      return {
        ...common,
        state,
        reason: row.reason as string,
        reconcileAfter: row.reconcile_after as number,
        reconcileAttempts: row.claims as number,
        escalatedAt: (row.escalated_at as number | null) ?? undefined,
      };
    default:
      return state satisfies never;
  }
}

/** The names of the columns, after those of the scope and the key, which not every database calls the same. */
export const recordColumns = [
  "state",
  "fingerprint",
  "fence",
  "on_crash",
  "created_at",
  "expires_at",
  "owner",
  "lease_until",
  "reconcile_after",
  "reason",
  "completed_at",
  "response_status",
  "response_head",
  "response_body",
  "route",
  "progress",
  "request_head",
  "resume_after",
  "claims",
  "escalated_at",
  "reconcile_ms",
] as const;

/** What a row has beside the record itself. */
export interface RowExtras {
  /** Who holds or held the latest lease; null where somebody else has moved the record on: its word counts no more. */
  readonly lastOwner: string | null;
  /** The head of the request that is kept for a worker. */
  readonly requestHead: string | null;
}

/** The values of the scope, the key and `recordColumns`, in this order. */
export function rowOf(record: IdempotencyRecord, extras: RowExtras): ColumnValue[] {
  const { state } = record;
  const response = state === "completed" ? encodeResponse(record.response) : undefined;
  return [
    record.scope,
    record.key,
    state,
    record.fingerprint,
    record.fence,
    record.onCrash,
    moment(record.createdAt),
    moment(record.expiresAt),
    extras.lastOwner,
    state === "in_progress" ? moment(record.leaseUntil) : null,
    state === "unknown" ? moment(record.reconcileAfter) : null,
    state === "unknown" || state === "failed_retryable" ? record.reason : null,
    state === "completed" ? moment(record.completedAt) : null,
    response?.status ?? null,
    response?.head ?? null,
    response?.body ?? null,
    record.route ?? null,
    encodeProgress(record.progress),
    // Nobody needs the request any more once its outcome is known.
    state === "completed" || state === "expired" ? null : extras.requestHead,
    state === "pending" || state === "failed_retryable" ? optionalMoment(record.resumeAfter) : null,
    claimsOf(record),
    state === "unknown" ? optionalMoment(record.escalatedAt) : null,
    wholeMs(record.reconcileAfterMs),
  ];
}

/** How often workers were handed the record since it is in this state. */
function claimsOf(record: IdempotencyRecord): number {
  switch (record.state) {
    case "pending":
    case "failed_retryable":
      return record.claims;
    case "unknown":
      return record.reconcileAttempts;
    case "in_progress":
    case "completed":
    case "expired":
      return 0;
    default:
      return record satisfies never;
  }
}

/** A time as it can be stored: a retention that never ends, ends as late as there are dates. */
export function moment(ms: number): number {
  return Math.min(ms, momentMax);
}

/** A duration as it can be stored. */
export function wholeMs(ms: number): number {
  return Math.round(moment(ms));
}

function optionalMoment(ms: number | undefined): number | null {
  return ms === undefined ? null : moment(ms);
}

/** The last time that a JavaScript Date can hold; also an integer that every driver returns exactly. */
const momentMax = 8_640_000_000_000_000;
