import { randomBytes } from "node:crypto";
import { encodeProgress } from "../../../core/phase.ts";
import type { IdempotencyRecord } from "../../../core/record.ts";
import { encodeResponse } from "../../../core/response.ts";
import { decodeRequest, encodeRequest, type StoredRequest } from "../../../core/stored-request.ts";
import type { Parameter } from "../database.ts";
import { type ReadRow, recordOf } from "../rows.ts";

/** A record as it was found, and everything that is kept with it. */
export interface Entry {
  readonly record: IdempotencyRecord;
  /** Who holds or held the latest lease; null where somebody else has moved the record on. */
  readonly owner: string | null;
  readonly request: StoredRequest | undefined;
  readonly revision: string;
  /** When it was found, by the engine's clock. */
  readonly now: number;
}

/** What a changed record is written with. */
export type Kept = Pick<Entry, "owner" | "request">;

export interface EntryRow extends ReadRow {
  readonly scope: string;
  readonly key: string;
  readonly revision: string;
  readonly requesthead: string | null;
  readonly requestbody: Uint8Array | null;
}

export function entryOf(row: EntryRow): Entry[] {
  const record = recordOf(row, row);
  if (record === undefined) return [];
  const { requesthead: head, requestbody: body, owner, revision, now } = row;
  const request = head === null || body === null ? undefined : decodeRequest({ head, body });
  return [{ record, owner, request, revision, now }];
}

/** Never used twice. */
export function newRevision(): string {
  return randomBytes(12).toString("base64url");
}

/** A record as the parameters of `changed`. What does not belong to its state is NULL. */
export function columnsOf(record: IdempotencyRecord, { owner, request }: Kept): Parameter[] {
  const { state, fingerprint, fence, onCrash, createdAt, expiresAt, route, progress, reconcileAfterMs } =
    record;
  const encoded = request && encodeRequest(request);
  const waits = state === "pending" || state === "failed_retryable";
  const response = state === "completed" ? encodeResponse(record.response) : undefined;
  return [
    newRevision(),
    state,
    fingerprint,
    fence,
    onCrash,
    createdAt,
    expiresAt,
    owner,
    state === "in_progress" ? record.leaseUntil : null,
    route ?? null,
    encodeProgress(progress),
    encoded?.head ?? null,
    encoded?.body ?? null,
    waits ? (record.resumeAfter ?? null) : null,
    claimsOf(record),
    reconcileAfterMs,
    state === "unknown" ? record.reconcileAfter : null,
    state === "unknown" ? (record.escalatedAt ?? null) : null,
    state === "unknown" || state === "failed_retryable" ? record.reason : null,
    state === "completed" ? record.completedAt : null,
    response?.status ?? null,
    response?.head ?? null,
    response?.body ?? null,
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
