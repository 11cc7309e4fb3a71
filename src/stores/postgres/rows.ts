import { decodeProgress } from "../../core/phase.ts";
import type { IdempotencyRecord, OnCrash, RecordId, RecordState } from "../../core/record.ts";
import { decodeResponse } from "../../core/response.ts";
import type { Row } from "./database.ts";

/** A record, or only nulls. Which columns a state has is checked by the table. */
export interface RecordRow extends Row {
  readonly state: RecordState | null;
  readonly fingerprint: string;
  readonly fence: number;
  readonly crash: OnCrash;
  readonly owner: string;
  readonly route: string | null;
  readonly progress: string | null;
  readonly lease: number;
  readonly resume: number | null;
  readonly reconcile: number;
  readonly claims: number;
  readonly reconcilems: number;
  readonly escalated: number | null;
  readonly reason: string;
  readonly status: number;
  readonly head: string;
  readonly body: Uint8Array | null;
  readonly created: number;
  readonly completed: number;
  readonly expires: number;
}

/** The time comes in any case. */
export interface ReadRow extends RecordRow {
  readonly now: number;
}

/** A record was inserted, or one was found, or neither. */
export interface ReserveRow extends ReadRow {
  readonly inserted: boolean;
}

export interface SettledRow extends Row {
  readonly state: RecordState;
  readonly expires: number;
}

export function recordOf(id: RecordId, row: RecordRow): IdempotencyRecord | undefined {
  const { state } = row;
  if (state === null) return undefined;
  const common = {
    scope: id.scope,
    key: id.key,
    fingerprint: row.fingerprint,
    fence: row.fence,
    onCrash: row.crash,
    reconcileAfterMs: row.reconcilems,
    route: row.route ?? undefined,
    progress: decodeProgress(row.progress),
    createdAt: row.created,
    expiresAt: row.expires,
  };
  switch (state) {
    case "pending":
      return { ...common, state, resumeAfter: row.resume ?? 0, claims: row.claims };
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
      return {
        ...common,
        state,
        reason: row.reason,
        resumeAfter: row.resume ?? undefined,
        claims: row.claims,
      };
    case "unknown":
      return {
        ...common,
        state,
        reason: row.reason,
        reconcileAfter: row.reconcile,
        reconcileAttempts: row.claims,
        escalatedAt: row.escalated ?? undefined,
      };
    default:
      return state satisfies never;
  }
}

/**
 * A duration as a parameter. What is meant to last for ever lasts for a thousand years: Postgres knows no endless
 * interval before version 17, and an HTTP date has four digits for the year.
 */
export function durationMs(ms: number): number {
  return Math.min(ms, durationMsMax);
}

export function optionalDurationMs(ms: number | undefined): number | null {
  return ms === undefined ? null : durationMs(ms);
}

const durationMsMax = 1000 * 365 * 24 * 60 * 60 * 1000;
