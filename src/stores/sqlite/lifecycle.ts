import { decide } from "../../core/decide.ts";
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
import { reserved, settled } from "../../core/transition.ts";
import { busting, reserving, resolving, settling } from "../moves.ts";
import { PlacedLease } from "../placed-lease.ts";
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
  if (fresh === undefined || records.insert(fresh) === undefined) return undefined;
  const { scope, key, fence, owner } = fresh;
  // What comes alone is mostly completed alone, and that finds its record by its name.
  return granted(fresh, { scope, key, fence, owner });
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
  const rows = insertAll(records, fresh);
  return requests.map((request, index) => {
    const record = fresh[index];
    const row = rows[index];
    return record !== undefined && row !== undefined
      ? granted(record, new PlacedLease(record, row))
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
function granted({ progress, createdAt }: InProgressRecord, lease: Lease): Reservation {
  return { kind: "execute", after: "absent", progress, createdAt, lease };
}

/** Reads the record first. */
function reserveKnown(records: Records, request: ReserveRequest, now: number): Reservation {
  return records.perform(request, (entry) => reserving(entry, request, now));
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
  return records.perform(lease, (entry) => settling(entry, lease, settlement, now));
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
  return records.perform(said.id, (entry) => resolving(entry, said, now));
}

export function bust(
  records: Records,
  { id, ...bust }: Bust & { readonly id: RecordId },
  now: number,
): BustAnswer {
  return records.perform(id, (entry) => busting(entry, bust, now));
}
