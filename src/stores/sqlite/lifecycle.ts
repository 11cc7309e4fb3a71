import { auditReasons } from "../../core/audit.ts";
import { decideBust } from "../../core/bust.ts";
import { answerOf, type Decision, decide, isAnswer } from "../../core/decide.ts";
import type { IdempotencyRecord, RecordId } from "../../core/record.ts";
import type {
  Bust,
  BustAnswer,
  Lease,
  PhaseCommit,
  Reservation,
  ReserveRequest,
  Resolution,
  ResolveAnswer,
  SettleAnswer,
  Settlement,
} from "../../core/store.ts";
import {
  accepted,
  crashed,
  crashReason,
  expired,
  reserved,
  resolved,
  settled,
  settledStates,
} from "../../core/transition.ts";
import type { Records } from "./records.ts";
import { moment } from "./row.ts";

/*
 * What moves one record: core/decide.ts and core/transition.ts say where to. Each function is called in a transaction
 * that nobody else writes beside, so that what was read is still true when the answer to it is written.
 */

export function reserve(records: Records, request: ReserveRequest, now: number): Reservation {
  // Most requests are new, and whether this one is, the insertion itself can tell.
  const ifNew = decide(undefined, request, now);
  if (ifNew.kind === "execute" && request.request === undefined) {
    const { fence } = ifNew;
    const isNew = records.insert(reserved(undefined, request, { fence, isNewUse: true }, now));
    if (isNew) return granted(ifNew, request);
  }
  const entry = records.get(request);
  const record = entry?.record;
  const decision = decide(record, request, now);
  if (isAnswer(decision)) return answerOf(decision);
  const { owner } = request;
  switch (decision.kind) {
    case "execute": {
      const { fence, after } = decision;
      const isNewUse = after === "expired";
      const next = reserved(record, request, { fence, isNewUse }, now);
      const requestHead = isNewUse ? null : (entry?.requestHead ?? null);
      if (requestHead !== null) records.put(next, { lastOwner: owner, requestHead });
      else records.putWithRequest(next, { lastOwner: owner, request: request.request });
      if (after === "failed_retryable" || after === "crash")
        auditAgain(records, record, next, { owner, now });
      return granted(decision, request);
    }
    case "accept": {
      const next = accepted(record, request, decision, now);
      records.putWithRequest(next, { lastOwner: null, request: request.request });
      if (!decision.isNewUse) auditAgain(records, record, next, { owner, now });
      return { kind: "pending" };
    }
    case "suspend": {
      const requestHead = entry?.requestHead ?? null;
      const crash = crashed(decision.record, now, { isRequestKept: requestHead !== null });
      const found = { record: decision.record, lastOwner: null, requestHead };
      records.move(found, crash, { by: owner, reason: crashReason, at: now });
      return { kind: "unknown", retryAfterMs: decision.record.reconcileAfterMs, discovered: true };
    }
    default:
      return decision satisfies never;
  }
}

/** The lease of a request that may execute, once that is written down. */
function granted(decision: Extract<Decision, { kind: "execute" }>, request: ReserveRequest): Reservation {
  const { after, progress, createdAt, fence } = decision;
  const { scope, key, owner } = request;
  return { kind: "execute", after, progress, createdAt, lease: { scope, key, fence, owner } };
}

export function settle(records: Records, lease: Lease, settlement: Settlement, now: number): SettleAnswer {
  if (settlement.kind === "complete") {
    const expiresAt = moment(now + settlement.retentionMs);
    const isHeld = records.complete(lease, settlement.response, { now, expiresAt });
    if (isHeld) return { kind: "settled", expiresAt };
  }
  const entry = records.getOf(lease);
  if (entry === undefined) return { kind: "lost" };
  const { record } = entry;
  if (record.state === "in_progress" && settlement.kind !== "complete") {
    const next = settled(record, settlement, now);
    records.put(next, entry);
    records.audit(record, next, { by: lease.owner, reason: settlement.reason, at: now });
    return { kind: "settled", expiresAt: moment(next.expiresAt) };
  }
  // The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
  return record.state === settledStates[settlement.kind]
    ? { kind: "settled", expiresAt: record.expiresAt }
    : { kind: "lost" };
}

/** Answers with the record as it is now; undefined if the lease is not held any more. */
export function advance(
  records: Records,
  lease: Lease,
  { progress, onCrash, response }: Omit<PhaseCommit, "messages">,
  now: number,
): IdempotencyRecord | undefined {
  const entry = records.getOf(lease);
  if (entry?.record.state !== "in_progress") return undefined;
  const advanced = { ...entry.record, progress, onCrash };
  const next = response === undefined ? advanced : settled(advanced, response, now);
  records.put(next, entry);
  return next;
}

export function resolve(
  records: Records,
  said: {
    readonly id: RecordId;
    readonly fence: number;
    readonly resolution: Resolution;
    readonly by: string;
  },
  now: number,
): ResolveAnswer {
  const { id, fence, resolution, by } = said;
  const entry = records.get(id);
  if (entry?.record.state !== "unknown" || entry.record.fence !== fence) {
    return { kind: "not-unknown", state: entry?.record.state ?? "absent" };
  }
  const isRequestKept = entry.requestHead !== null;
  const next = resolved(entry.record, resolution, now, { isRequestKept });
  const reason = resolution.kind === "complete" ? auditReasons.foundOut : resolution.reason;
  records.move(entry, next, { by, reason, at: now });
  return { kind: "resolved", expiresAt: moment(next.expiresAt) };
}

export function bust(
  records: Records,
  { id, by, reason, attempt }: Bust & { readonly id: RecordId },
  now: number,
): BustAnswer {
  const entry = records.get(id);
  const answer = decideBust(entry?.record, attempt);
  if (answer.kind === "busted" && entry !== undefined) {
    records.move(entry, expired(entry.record), { by, reason, at: now });
  }
  return answer;
}

/** A request that failed, or whose owner is gone, is tried again. */
function auditAgain(
  records: Records,
  from: IdempotencyRecord | undefined,
  to: IdempotencyRecord,
  { owner, now }: { readonly owner: string; readonly now: number },
): void {
  if (from === undefined) return;
  const reason = from.state === "in_progress" ? auditReasons.takenOver : auditReasons.retried;
  records.audit(from, to, { by: owner, reason, at: now });
}
