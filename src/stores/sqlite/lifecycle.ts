import { auditReasons } from "../../core/audit.ts";
import { decideBust } from "../../core/bust.ts";
import { answerOf, decide, isAnswer } from "../../core/decide.ts";
import type { IdempotencyRecord, InProgressRecord, RecordId } from "../../core/record.ts";
import { encodeResponse } from "../../core/response.ts";
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
import { moment } from "../record-row.ts";
import { type Completion, completeAll, insertAll } from "./bunches.ts";
import type { Records } from "./records.ts";

/*
 * What moves one record: core/decide.ts and core/transition.ts say where to. Each function is called in a transaction
 * that nobody else writes beside, so that what was read is still true when the answer to it is written. Those that
 * read nothing say so.
 */

export function reserve(records: Records, request: ReserveRequest, now: number): Reservation {
  return reserveNew(records, request, now) ?? reserveKnown(records, request, now);
}

/** Undefined if it is not new, or keeps something for a worker. One statement, which needs no transaction around it. */
export function reserveNew(records: Records, request: ReserveRequest, now: number): Reservation | undefined {
  const fresh = ifNew(request, now);
  return fresh !== undefined && records.insert(fresh) ? granted(fresh) : undefined;
}

/** The same for many: most requests are new, and are inserted with few statements. */
export function reserveAll(
  records: Records,
  requests: readonly ReserveRequest[],
  now: number,
): readonly Reservation[] {
  // Of duplicates the first comes first, which only one after the other can promise.
  const areDistinct = new Set(requests.map(({ key }) => key)).size === requests.length;
  if (!areDistinct) return requests.map((request) => reserve(records, request, now));
  const fresh = requests.map((request) => ifNew(request, now));
  const isNew = insertAll(records, fresh);
  return requests.map((request, index) => {
    const record = fresh[index];
    return record !== undefined && isNew[index] === true
      ? granted(record)
      : reserveKnown(records, request, now);
  });
}

/** What is written down if the request is new, and keeps nothing for a worker: then the insertion can tell. */
function ifNew(request: ReserveRequest, now: number): InProgressRecord | undefined {
  const decision = decide(undefined, request, now);
  if (decision.kind !== "execute" || request.request !== undefined) return undefined;
  return reserved(undefined, request, { fence: decision.fence, isNewUse: true }, now);
}

/** The answer to a new request, once it is written down. */
function granted({ scope, key, fence, owner, progress, createdAt }: InProgressRecord): Reservation {
  return { kind: "execute", after: "absent", progress, createdAt, lease: { scope, key, fence, owner } };
}

/** Reads the record first. */
function reserveKnown(records: Records, request: ReserveRequest, now: number): Reservation {
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
      const { progress, createdAt } = decision;
      const { scope, key } = request;
      return { kind: "execute", after, progress, createdAt, lease: { scope, key, fence, owner } };
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

export function settle(records: Records, lease: Lease, settlement: Settlement, now: number): SettleAnswer {
  const answer = settlement.kind === "complete" ? complete(records, { lease, settlement }, now) : undefined;
  return answer ?? settleKnown(records, lease, settlement, now);
}

/** Undefined if the lease is not held. Each statement is tried only after one that has changed nothing. */
export function complete(records: Records, call: CompleteCall, now: number): SettleAnswer | undefined {
  const completion = completionOf(call, now);
  return records.complete(completion) ? { kind: "settled", expiresAt: completion.expiresAt } : undefined;
}

/** What the holder of a lease says in most cases. */
export interface CompleteCall {
  readonly lease: Lease;
  readonly settlement: Extract<Settlement, { kind: "complete" }>;
}

/** The same for many completions, with few statements. */
export function settleAll(
  records: Records,
  calls: readonly CompleteCall[],
  now: number,
): readonly SettleAnswer[] {
  const completions = calls.map((call) => completionOf(call, now));
  const isHeld = completeAll(records, completions);
  return calls.map(({ lease, settlement }, index) => {
    const expiresAt = completions[index]?.expiresAt;
    return isHeld[index] === true && expiresAt !== undefined
      ? { kind: "settled", expiresAt }
      : settleKnown(records, lease, settlement, now);
  });
}

function completionOf({ lease, settlement }: CompleteCall, now: number): Completion {
  return {
    lease,
    response: encodeResponse(settlement.response),
    completedAt: now,
    expiresAt: moment(now + settlement.retentionMs),
  };
}

/** Reads the record first. */
function settleKnown(records: Records, lease: Lease, settlement: Settlement, now: number): SettleAnswer {
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
