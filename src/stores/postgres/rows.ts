import type { IdempotencyRecord, OnCrash, RecordId, RecordState } from "../../core/record.ts";
import { decodeResponse, encodeResponse } from "../../core/response.ts";
import type { Settlement } from "../../core/store.ts";
import type { Parameter, Row } from "./database.ts";

/** A record, or only nulls; the time comes in any case. Which columns a state has is checked by the table. */
export interface RecordRow extends Row {
  readonly now: number;
  readonly state: RecordState | null;
  readonly fingerprint: string;
  readonly fence: number;
  readonly crash: OnCrash;
  readonly owner: string;
  readonly lease: number;
  readonly reconcile: number;
  readonly reason: string;
  readonly status: number;
  readonly head: string;
  readonly body: Uint8Array | null;
  readonly created: number;
  readonly completed: number;
  readonly expires: number;
}

/** A record was inserted, or one was found, or neither. */
export interface ReserveRow extends RecordRow {
  readonly inserted: boolean;
}

export interface SettledRow extends Row {
  readonly state: RecordState;
  readonly expires: number;
}

export function recordOf(id: RecordId, row: RecordRow): IdempotencyRecord | undefined {
  const { state } = row;
  const common = {
    scope: id.scope,
    key: id.key,
    fingerprint: row.fingerprint,
    fence: row.fence,
    onCrash: row.crash,
    createdAt: row.created,
    expiresAt: row.expires,
  };
  switch (state) {
    case null:
      return undefined;
    case "pending":
    case "expired":
      return { ...common, state };
    case "in_progress":
      return { ...common, state, owner: row.owner, leaseUntil: row.lease };
    case "completed": {
      const { status, head, body } = row;
      return {
        ...common,
        state,
        completedAt: row.completed,
        response: decodeResponse({ status, head, body }),
      };
    }
    case "failed_retryable":
      return { ...common, state, reason: row.reason };
    case "unknown":
      return { ...common, state, reason: row.reason, reconcileAfter: row.reconcile };
    default:
      return state satisfies never;
  }
}

/** What a settlement says, in the order in which `statements.settle` takes it. */
export function settlementParameters(settlement: Settlement): Parameter[] {
  switch (settlement.kind) {
    case "complete": {
      const { status, head, body } = encodeResponse(settlement.response);
      return [null, status, head, body, durationMs(settlement.retentionMs), null];
    }
    case "release":
      return [settlement.reason, null, null, null, durationMs(settlement.retentionMs), null];
    case "suspend":
      return [settlement.reason, null, null, null, null, durationMs(settlement.reconcileAfterMs)];
    default:
      return settlement satisfies never;
  }
}

/**
 * A duration as a parameter. What is meant to last for ever lasts for a thousand years: Postgres knows no endless
 * interval before version 17, and an HTTP date has four digits for the year.
 */
export function durationMs(ms: number): number {
  return Math.min(ms, durationMsMax);
}

const durationMsMax = 1000 * 365 * 24 * 60 * 60 * 1000;

/** An array as text, since drivers disagree on arrays and agree on text. */
export function arrayLiteral(values: readonly (string | number)[]): string {
  return `{${values.map((value) => `"${String(value).replace(/["\\]/g, "\\$&")}"`).join(",")}}`;
}
