import { answerOf, decide, isAnswer } from "../../../core/decide.ts";
import { StoreError } from "../../../core/errors.ts";
import type { Reservation, ReserveRequest } from "../../../core/store.ts";
import { encodeRequest } from "../../../core/stored-request.ts";
import { accepted, crashed, crashReason, reserved } from "../../../core/transition.ts";
import type { Parameter } from "../database.ts";
import { auditReason, newRecordOf, newReservation } from "../reserving.ts";
import { durationMs } from "../rows.ts";
import type { Records } from "./records.ts";
import { type Entry, newRevision } from "./rows.ts";
import { records as statements } from "./statements.ts";

/** A new key is inserted without being looked for; one that is there is read, and taken if `decide` lets it be. */
export async function reserve(records: Records, request: ReserveRequest): Promise<Reservation> {
  for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
    const reservation = await tryToReserve(records, request);
    if (reservation !== undefined) return reservation;
  }
  throw new StoreError(`the record changed during each of ${attemptsMax} attempts to reserve it`);
}

/** Each attempt but the first means that another request changed the record meanwhile. */
const attemptsMax = 10;

async function tryToReserve(records: Records, request: ReserveRequest): Promise<Reservation | undefined> {
  // A worker comes for a record that is there, and must not make one.
  if (request.mode !== "claim") {
    const [inserted] = await records.all<{ created: number }>(statements.insert, insertParameters(request));
    if (inserted !== undefined) return newReservation(request, inserted.created);
  }
  const found = await records.find(request);
  if (found === undefined) return request.mode === "claim" ? { kind: "absent" } : undefined;
  const decision = decide(found.record, request, found.now);
  if (isAnswer(decision)) return answerOf(decision);
  switch (decision.kind) {
    case "execute": {
      const { fence, after, progress, createdAt } = decision;
      const isNewUse = after === "expired";
      const next = reserved(found.record, bounded(request), { fence, isNewUse }, found.now);
      if (!(await take(records, found, { next, request, isNewUse, owner: request.owner }))) return undefined;
      const { scope, key, owner } = request;
      return { kind: "execute", after, progress, createdAt, lease: { scope, key, fence, owner } };
    }
    case "accept": {
      const next = accepted(found.record, bounded(request), decision, found.now);
      const { isNewUse } = decision;
      const isTaken = await take(records, found, { next, request, isNewUse, owner: null });
      return isTaken ? { kind: "pending" } : undefined;
    }
    case "suspend": {
      const next = crashed(decision.record, found.now, { isRequestKept: false });
      const why = { by: request.owner, reason: crashReason };
      if (!(await records.move(found, next, why))) return undefined;
      return { kind: "unknown", retryAfterMs: decision.record.reconcileAfterMs, discovered: true };
    }
    default:
      return decision satisfies never;
  }
}

interface Taking {
  readonly next: ReturnType<typeof reserved> | ReturnType<typeof accepted>;
  readonly request: ReserveRequest;
  readonly isNewUse: boolean;
  readonly owner: string | null;
}

function take(records: Records, found: Entry, { next, request, isNewUse, owner }: Taking): Promise<boolean> {
  const reason = isNewUse ? null : auditReason(found.record);
  const kept = request.request ?? (isNewUse ? undefined : found.request);
  const why = reason === null ? undefined : { by: request.owner, reason };
  return records.change(found, next, { owner, request: kept }, why);
}

function insertParameters(request: ReserveRequest): Parameter[] {
  const { onCrash, owner, leaseMs, retentionMs, state, route, reconcileMs } = newRecordOf({
    request,
    session: null,
  });
  const encoded = request.request && encodeRequest(request.request);
  const waits = state === "pending";
  return [
    request.scope,
    request.key,
    newRevision(),
    state,
    request.fingerprint,
    waits ? 0 : 1,
    onCrash,
    retentionMs,
    owner,
    leaseMs,
    route,
    encoded?.head ?? null,
    encoded?.body ?? null,
    waits ? 0 : null,
    reconcileMs,
  ];
}

/** What is meant to last for ever has an end all the same. */
function bounded(request: ReserveRequest): ReserveRequest {
  const { leaseMs, retentionMs, reconcileAfterMs } = request;
  return {
    ...request,
    leaseMs: durationMs(leaseMs),
    retentionMs: durationMs(retentionMs),
    reconcileAfterMs: durationMs(reconcileAfterMs),
  };
}
