import type { Reservation, SettleAnswer } from "../../core/store.ts";
import type { Verb } from "../gathering.ts";
import { PlacedLease } from "../placed-lease.ts";
import { reserveOne } from "./batches.ts";
import { type CompleteCall, completeOne, completionOf } from "./completing.ts";
import type { Queries } from "./queries.ts";
import { newRecordOf, newReservation, type ReserveCall, reserve } from "./reserving.ts";
import { settle } from "./settling.ts";
import { completeAtPlace, insertUnderWay } from "./statements/records.ts";

/*
 * Calls that are alone. What nearly all of them are has a short statement, whose plan is kept; what those do not find out is left
 * to the functions of the migrations, unless these are not to be used, and then to the statements that know all states. To enter
 * a function, with the settings that keep its plans good, was measured to be a twentieth of a lone request's time; to plan a
 * statement that knows all states takes several times as long as to execute it.
 */

export interface AloneOptions {
  /** Whether what is left goes to the functions for one call. */
  readonly byFunctions: boolean;
  readonly partitioned: boolean;
  readonly callsOfNewMin?: number | undefined;
  readonly pagesMin?: number | undefined;
}

/** `statement` reserves whatever state the record is in. */
export function reservingAlone(
  queries: Queries,
  statement: string,
  { byFunctions, partitioned, callsOfNewMin = callsOfNewUsual }: AloneOptions,
): Verb<ReserveCall, Reservation>["alone"] {
  let callsOfNew = 0;
  return async (call, { isLeft }) => {
    // Kept requests are rare, and partitions have a way of their own to insert.
    const isUsual = call.request.request === undefined && !partitioned;
    if (isLeft || !isUsual) return reserve(queries, statement, call);
    const isExpectedNew = callsOfNew >= callsOfNewMin && isInsertable(queries, call);
    const inserted = isExpectedNew ? await insertOne(queries, call) : undefined;
    const answer = inserted ?? (byFunctions ? await reserveOne(queries, call) : undefined);
    const known = answer ?? (await reserve(queries, statement, call));
    callsOfNew = isNew(known) ? callsOfNew + 1 : 0;
    return known;
  };
}

/** Whether there was no record, as far as the answer tells. */
export function isNew(answer: Reservation | undefined): boolean {
  return answer?.kind === "execute" ? answer.after === "absent" : answer?.kind === "pending";
}

/** One that is not new costs an insertion in vain, so it takes some calls to believe that there are none. */
const callsOfNewUsual = 8;

export function completingAlone(
  queries: Queries,
  { byFunctions, pagesMin = pagesOfLargeTable }: AloneOptions,
): Verb<CompleteCall, SettleAnswer>["alone"] {
  return async (call, { isLeft }) => {
    if (isLeft) return settle(queries, call.lease, call.settlement);
    const place = farPlaceOf(queries, call, pagesMin);
    const atPlace = place === undefined ? undefined : await completeFar(queries, call, place);
    const answer = atPlace ?? (byFunctions ? await completeOne(queries, call) : undefined);
    return answer ?? settle(queries, call.lease, call.settlement);
  };
}

/** Whether a request may be reserved by `insertOne`: it is to be executed now, in the name of no session. */
function isInsertable(queries: Queries, { request, session }: ReserveCall): boolean {
  return request.mode === "execute" && session === null && queries.keepsPlans();
}

/** Undefined if there is a record already. */
async function insertOne(queries: Queries, call: ReserveCall): Promise<Reservation | undefined> {
  const { request } = call;
  const { onCrash, owner, leaseMs, retentionMs, route, reconcileMs } = newRecordOf(call);
  const row = await queries.planned<{ place: string; now: number }>(insertUnderWay, [
    request.scope,
    request.key,
    request.fingerprint,
    onCrash,
    owner,
    leaseMs,
    retentionMs,
    route,
    reconcileMs,
  ]);
  return row && newReservation(request, row.now, row.place);
}

/**
 * The place of a row that may be completed by `completeFar`. A plan that is made while the table is nearly empty goes through
 * all of it, and is kept when it has grown. A row so far back says that it is not, whenever the plan is made.
 */
function farPlaceOf(queries: Queries, { lease }: CompleteCall, pagesMin: number): string | undefined {
  const place = PlacedLease.placeOf<string>(lease);
  const isFar = place !== undefined && Number.parseInt(place.slice(1), 10) >= pagesMin;
  return isFar && queries.keepsPlans() ? place : undefined;
}

/** To read so many pages is many times as expensive, by the planner's reckoning, as to read the one that a place is on. */
const pagesOfLargeTable = 64;

/** Undefined if the row is not there any more, or the lease does not hold it. */
async function completeFar(
  queries: Queries,
  call: CompleteCall,
  place: string,
): Promise<SettleAnswer | undefined> {
  const { lease } = call;
  const { status, head, body, retentionMs } = completionOf(call);
  const row = await queries.planned<{ expires: number }>(completeAtPlace, [
    lease.scope,
    lease.key,
    lease.fence,
    lease.owner,
    status,
    head,
    body,
    retentionMs,
    place,
  ]);
  return row && { kind: "settled", expiresAt: row.expires };
}
