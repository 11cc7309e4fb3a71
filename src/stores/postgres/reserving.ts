import { auditReasons } from "../../core/audit.ts";
import { answerOf, type Decision, decide, isAnswer } from "../../core/decide.ts";
import { StoreError } from "../../core/errors.ts";
import { noProgress } from "../../core/phase.ts";
import type { IdempotencyRecord, InProgressRecord } from "../../core/record.ts";
import type { Reservation, ReserveRequest } from "../../core/store.ts";
import { encodeRequest } from "../../core/stored-request.ts";
import { crashReason } from "../../core/transition.ts";
import { PlacedLease } from "../placed-lease.ts";
import type { Parameter } from "./database.ts";
import type { Queries } from "./queries.ts";
import { durationMs, type ReadRow, type ReserveRow, recordOf } from "./rows.ts";
import { read, suspendCrashed, takeOver } from "./statements/records.ts";
import { recordName } from "./statements/sql.ts";

/** A reservation in the name of a session, or of none. */
export interface ReserveCall {
  readonly request: ReserveRequest;
  readonly session: number | null;
  /** What is under way and held by a lease is told of when it ends, without anybody having to ask for that. */
  readonly tells: boolean;
}

/** One reservation, whatever state its record is in. `statement` inserts a new record or finds the old. */
export async function reserve(queries: Queries, statement: string, call: ReserveCall): Promise<Reservation> {
  for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
    const reservation = await tryToReserve(queries, statement, call);
    if (reservation !== undefined) return reservation;
  }
  throw new StoreError(`the record changed during each of ${attemptsMax} attempts to reserve it`);
}

/** Each attempt but the first means that another request changed the record meanwhile. Two suffice almost always. */
const attemptsMax = 10;

/** Undefined when another request changed the record meanwhile. */
async function tryToReserve(
  queries: Queries,
  statement: string,
  call: ReserveCall,
): Promise<Reservation | undefined> {
  const { request } = call;
  const parameters = newRecordParameters(call);
  const row = await look(queries, statement, request, parameters);
  if (row.inserted) {
    return newReservation(request, row.now);
  }
  const record = recordOf(request, row);
  if (record === undefined) return request.mode === "claim" ? { kind: "absent" } : undefined;
  const decision = decide(record, request, row.now);
  if (isAnswer(decision)) return answerOf(decision);
  if (decision.kind === "suspend") return suspend(queries, request, decision.record);
  const taken = await queries.all(takeOver, [
    ...parameters,
    ...takeOverParameters(request, record, decision),
  ]);
  if (taken.length === 0) return undefined;
  return decision.kind === "accept" ? { kind: "pending" } : reservationOf(request, decision);
}

/** A worker comes for a record that is there, and must not make one. */
async function look(
  queries: Queries,
  statement: string,
  request: ReserveRequest,
  parameters: readonly Parameter[],
): Promise<ReserveRow> {
  if (request.mode !== "claim") return queries.one<ReserveRow>(statement, parameters);
  const row = await queries.one<ReadRow>(read, [request.scope, request.key]);
  return { ...row, inserted: false };
}

type Taking = Extract<Decision, { kind: "execute" | "accept" }>;

/** What a record is to the request that has just inserted it, and where its row is, if that was told. */
export function newReservation(request: ReserveRequest, now: number, place?: string): Reservation {
  if (request.mode === "accept") return { kind: "pending" };
  const { scope, key, owner } = request;
  const held = { scope, key, fence: 1, owner };
  const lease = place === undefined ? held : new PlacedLease(held, place);
  return { kind: "execute", after: "absent", lease, progress: noProgress, createdAt: now };
}

/** What an inserted or taken record is to the request: a lease, or nothing but accepted. */
function reservationOf(
  { scope, key, owner, mode }: ReserveRequest,
  { fence, after, progress, createdAt }: Omit<Extract<Decision, { kind: "execute" }>, "kind">,
): Reservation {
  if (mode === "accept") return { kind: "pending" };
  return { kind: "execute", after, lease: { scope, key, fence, owner }, progress, createdAt };
}

/** What of a new record its request decides. What is only accepted has no owner, no session and no lease. */
export function newRecordOf({ request, session }: Pick<ReserveCall, "request" | "session">) {
  const accepts = request.mode === "accept";
  return {
    onCrash: request.onCrash,
    owner: accepts ? null : request.owner,
    session: accepts ? null : session,
    leaseMs: accepts ? null : durationMs(request.leaseMs),
    retentionMs: durationMs(request.retentionMs),
    state: accepts ? "pending" : "in_progress",
    route: request.route ?? null,
    reconcileMs: durationMs(request.reconcileAfterMs),
  } as const;
}

/** As `newRecord` takes them. */
function newRecordParameters(call: ReserveCall): Parameter[] {
  const { request } = call;
  const { onCrash, owner, session, leaseMs, retentionMs, state, route, reconcileMs } = newRecordOf(call);
  const encoded = request.request && encodeRequest(request.request);
  return [
    request.scope,
    request.key,
    request.fingerprint,
    onCrash,
    owner,
    session,
    leaseMs,
    retentionMs,
    state,
    route,
    encoded?.head ?? null,
    encoded?.body ?? null,
    reconcileMs,
  ];
}

function takeOverParameters(request: ReserveRequest, found: IdempotencyRecord, taking: Taking): Parameter[] {
  const isNewUse = taking.kind === "accept" ? taking.isNewUse : taking.after === "expired";
  const reason = isNewUse ? null : auditReason(found);
  return [found.fence, found.state, isNewUse, taking.fence, request.owner, reason];
}

/** Why this is worth an entry in the audit trail; null where it is the happy path. */
function auditReason({ state }: IdempotencyRecord): string | null {
  switch (state) {
    case "failed_retryable":
      return auditReasons.retried;
    case "in_progress":
      return auditReasons.takenOver;
    case "pending":
    case "completed":
    case "unknown":
    case "expired":
      return null;
    default:
      return state satisfies never;
  }
}

async function suspend(
  queries: Queries,
  request: ReserveRequest,
  crashed: InProgressRecord,
): Promise<Reservation | undefined> {
  const suspended = await queries.all(suspendCrashed, [
    request.scope,
    request.key,
    crashed.fence,
    crashed.owner,
    crashReason,
    recordName(request),
    request.owner,
  ]);
  if (suspended.length === 0) return undefined;
  return { kind: "unknown", retryAfterMs: crashed.reconcileAfterMs, discovered: true };
}
