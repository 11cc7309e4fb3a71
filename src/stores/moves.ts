import { type AuditEntry, auditActors, auditReasons } from "../core/audit.ts";
import { decideBust } from "../core/bust.ts";
import { answerOf, decide, isAnswer } from "../core/decide.ts";
import type {
  FailedRetryableRecord,
  IdempotencyRecord,
  PendingRecord,
  RecordId,
  UnknownRecord,
} from "../core/record.ts";
import type { StoredResponse } from "../core/response.ts";
import type {
  Bust,
  BustAnswer,
  ClaimOptions,
  Lease,
  Reservation,
  ReserveRequest,
  Resolution,
  ResolveAnswer,
  SettleAnswer,
  Settlement,
  SweepCounts,
} from "../core/store.ts";
import type { StoredRequest } from "../core/stored-request.ts";
import {
  abandoned,
  accepted,
  backoffMs,
  crashed,
  crashReason,
  expired,
  gaveUp,
  reserved,
  resolved,
  settled,
  settledStates,
  unclaimed,
} from "../core/transition.ts";
import { moment, type RowExtras } from "./record-row.ts";

/*
 * What a store that reads a record, locks it and writes it has to write, verb by verb, and what it answers then. All of
 * it is pure: how a record is read, locked and written is the store's own business.
 */

/** A record with what else its row says. */
export interface Entry extends RowExtras {
  readonly record: IdempotencyRecord;
}

/** What a verb answers; `move` is there where something has to be written first. */
export interface Moved<Answer> {
  readonly answer: Answer;
  readonly move?: Move;
}

/** One change of a record. */
export interface Move {
  readonly to: IdempotencyRecord;
  /** Who may still have a word on it; null where somebody else than the owner has moved the record on. */
  readonly lastOwner: string | null;
  /** In place of the request that was kept; where it is left out, that stays. */
  readonly request?: { readonly kept: StoredRequest | undefined };
  /** Left out on the happy path. */
  readonly audit?: Omit<AuditEntry, "id">;
}

/** A new record is in the answer's move, too, for stores that insert it here. */
export function reserving(
  entry: Entry | undefined,
  request: ReserveRequest,
  now: number,
): Moved<Reservation> {
  const record = entry?.record;
  const decision = decide(record, request, now);
  if (isAnswer(decision)) return { answer: answerOf(decision) };
  const { scope, key, owner } = request;
  switch (decision.kind) {
    case "execute": {
      const { fence, after, progress, createdAt } = decision;
      const isNewUse = after === "expired";
      const to = reserved(record, request, { fence, isNewUse }, now);
      const isKept = !isNewUse && entry !== undefined && entry.requestHead !== null;
      return {
        answer: { kind: "execute", after, progress, createdAt, lease: { scope, key, fence, owner } },
        move: {
          to,
          lastOwner: owner,
          ...(isKept ? {} : { request: { kept: request.request } }),
          ...(after === "failed_retryable" || after === "crash" ? again(record, to, owner, now) : {}),
        },
      };
    }
    case "accept": {
      const to = accepted(record, request, decision, now);
      return {
        answer: { kind: "pending" },
        move: {
          to,
          lastOwner: null,
          request: { kept: request.request },
          ...(decision.isNewUse ? {} : again(record, to, owner, now)),
        },
      };
    }
    case "suspend": {
      const isRequestKept = entry !== undefined && entry.requestHead !== null;
      const to = crashed(decision.record, now, { isRequestKept });
      return {
        answer: { kind: "unknown", retryAfterMs: decision.record.reconcileAfterMs, discovered: true },
        move: byAnother(decision.record, to, { by: owner, reason: crashReason, at: now }),
      };
    }
    default:
      return decision satisfies never;
  }
}

export function settling(
  entry: Entry | undefined,
  lease: Lease,
  settlement: Settlement,
  now: number,
): Moved<SettleAnswer> {
  if (entry === undefined || entry.record.fence !== lease.fence || entry.lastOwner !== lease.owner) {
    return { answer: { kind: "lost" } };
  }
  const { record } = entry;
  const { owner } = lease;
  if (record.state === "in_progress") {
    const to = settled(record, settlement, now);
    const why =
      settlement.kind === "complete" ? {} : { audit: told(record, to, owner, settlement.reason, now) };
    return {
      answer: { kind: "settled", expiresAt: moment(to.expiresAt) },
      move: { to, lastOwner: owner, ...why },
    };
  }
  // The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
  return record.state === settledStates[settlement.kind]
    ? { answer: { kind: "settled", expiresAt: record.expiresAt } }
    : { answer: { kind: "lost" } };
}

export function resolving(
  entry: Entry | undefined,
  said: { readonly fence: number; readonly resolution: Resolution; readonly by: string },
  now: number,
): Moved<ResolveAnswer> {
  const { fence, resolution, by } = said;
  if (entry?.record.state !== "unknown" || entry.record.fence !== fence) {
    return { answer: { kind: "not-unknown", state: entry?.record.state ?? "absent" } };
  }
  const to = resolved(entry.record, resolution, now, { isRequestKept: entry.requestHead !== null });
  const reason = resolution.kind === "complete" ? auditReasons.foundOut : resolution.reason;
  return {
    answer: { kind: "resolved", expiresAt: moment(to.expiresAt) },
    move: byAnother(entry.record, to, { by, reason, at: now }),
  };
}

export function busting(entry: Entry | undefined, bust: Bust, now: number): Moved<BustAnswer> {
  const answer = decideBust(entry?.record, bust.attempt);
  if (answer.kind !== "busted" || entry === undefined) return { answer };
  const { by, reason } = bust;
  return { answer, move: byAnother(entry.record, expired(entry.record), { by, reason, at: now }) };
}

/** Which of the sweeper's counts the record belongs to; undefined if there is nothing to be done about it. */
export function sweeping(
  { record, requestHead }: Entry,
  answer: StoredResponse,
  now: number,
): Moved<keyof SweepCounts | undefined> {
  const by = auditActors.sweeper;
  if (record.state === "in_progress" && record.leaseUntil <= now) {
    const to = crashed(record, now, { isRequestKept: requestHead !== null });
    return {
      answer: to.state === "unknown" ? "unknown" : "retryable",
      move: byAnother(record, to, { by, reason: crashReason, at: now }),
    };
  }
  if (record.state === "pending" && record.expiresAt <= now) {
    const to = unclaimed(record, answer, now);
    return {
      answer: "unclaimed",
      move: byAnother(record, to, { by, reason: auditReasons.unclaimed, at: now }),
    };
  }
  if (isAbandoned(record, now)) {
    const to = abandoned(record, now);
    return {
      answer: "unknown",
      move: byAnother(record, to, { by, reason: auditReasons.abandoned, at: now }),
    };
  }
  return { answer: undefined };
}

/** The record as it is handed to a worker, or that it was given up; undefined if it is not for a worker now. */
export function claimingResumable(
  { record, requestHead, lastOwner }: Entry,
  options: ClaimOptions,
  now: number,
): Moved<PendingRecord | FailedRetryableRecord | "gave up" | undefined> {
  if (requestHead === null || (record.state !== "pending" && record.state !== "failed_retryable")) {
    return { answer: undefined };
  }
  const { claims, fence, resumeAfter } = record;
  if (resumeAfter === undefined || resumeAfter > now) return { answer: undefined };
  if (record.state === "pending" && record.expiresAt <= now) return { answer: undefined };
  if (record.state === "failed_retryable" && Math.max(fence, claims) >= options.attemptsMax) {
    const why = { by: auditActors.completer, reason: auditReasons.gaveUp, at: now };
    return { answer: "gave up", move: byAnother(record, gaveUp(record, now), why) };
  }
  const hiddenUntil = moment(now + backoffMs(options.backoff, fence + claims));
  const to = { ...record, claims: claims + 1, resumeAfter: hiddenUntil };
  return { answer: to, move: { to, lastOwner } };
}

/** The record as it is handed to reconciliation; undefined if it may not be asked about now. */
export function claimingUnknown(
  { record, lastOwner }: Entry,
  options: Pick<ClaimOptions, "backoff">,
  now: number,
): Moved<UnknownRecord | undefined> {
  if (record.state !== "unknown" || record.escalatedAt !== undefined || record.reconcileAfter > now) {
    return { answer: undefined };
  }
  const { reconcileAttempts } = record;
  const to = {
    ...record,
    reconcileAttempts: reconcileAttempts + 1,
    reconcileAfter: moment(now + backoffMs(options.backoff, reconcileAttempts)),
  };
  return { answer: to, move: { to, lastOwner } };
}

/** Somebody else than the owner moves a record on, off the happy path: the owner's word counts no more. */
function byAnother(
  from: IdempotencyRecord,
  to: IdempotencyRecord,
  { by, reason, at }: Pick<AuditEntry, "by" | "reason" | "at">,
): Move {
  return { to, lastOwner: null, audit: told(from, to, by, reason, at) };
}

/** A request that failed, or whose owner is gone, is tried again. */
function again(
  from: IdempotencyRecord | undefined,
  to: IdempotencyRecord,
  owner: string,
  now: number,
): Pick<Move, "audit"> {
  if (from === undefined) return {};
  const reason = from.state === "in_progress" ? auditReasons.takenOver : auditReasons.retried;
  return { audit: told(from, to, owner, reason, now) };
}

function told(
  from: IdempotencyRecord,
  to: IdempotencyRecord,
  by: string,
  reason: string,
  at: number,
): Omit<AuditEntry, "id"> {
  const { scope, key, fence }: RecordId & { readonly fence: number } = to;
  return { scope, key, fence, from: from.state, to: to.state, by, reason, at };
}

/** Half done, past its retention, and nobody is going to go on with it. */
function isAbandoned(record: IdempotencyRecord, now: number): record is FailedRetryableRecord {
  return (
    record.state === "failed_retryable" &&
    record.progress.length > 0 &&
    record.resumeAfter === undefined &&
    record.expiresAt <= now
  );
}
