import type { IdempotencyRecord, OnCrash, RecordId, RecordState } from "../../core/record.ts";
import { decodeResponse, encodeResponse } from "../../core/response.ts";
import type { Row, SqliteValue } from "./driver.ts";

/** The record that a row of `readRecord` is. */
export function recordOf({ scope, key }: RecordId, row: Row): IdempotencyRecord {
  const common = {
    scope,
    key,
    fingerprint: row.fingerprint as string,
    fence: row.fence as number,
    onCrash: row.on_crash as OnCrash,
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
  };
  const state = row.state as RecordState;
  switch (state) {
    case "pending":
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
      return { ...common, state, reason: row.reason as string };
    case "unknown":
      return {
        ...common,
        state,
        reason: row.reason as string,
        reconcileAfter: row.reconcile_after as number,
      };
    default:
      return state satisfies never;
  }
}

/** The parameters of `writeRecord`. */
export function rowOf(record: IdempotencyRecord, owner: string | null): SqliteValue[] {
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
    owner,
    state === "in_progress" ? moment(record.leaseUntil) : null,
    state === "unknown" ? moment(record.reconcileAfter) : null,
    state === "unknown" || state === "failed_retryable" ? record.reason : null,
    state === "completed" ? moment(record.completedAt) : null,
    response?.status ?? null,
    response?.head ?? null,
    response?.body ?? null,
  ];
}

/** A time as it can be stored: a retention that never ends, ends as late as there are dates. */
export function moment(ms: number): number {
  return Math.min(ms, momentMax);
}

/** The last time that a JavaScript Date can hold; also an integer that every driver returns exactly. */
const momentMax = 8_640_000_000_000_000;
