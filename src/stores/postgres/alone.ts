import type { Reservation, SettleAnswer } from "../../core/store.ts";
import { PlacedLease } from "../placed-lease.ts";
import { type CompleteCall, completionOf } from "./completing.ts";
import type { Queries } from "./queries.ts";
import { newRecordOf, newReservation, type ReserveCall } from "./reserving.ts";
import { completeAtPlace, insertUnderWay } from "./statements/records.ts";

/*
 * The plain statements for a call that is alone. The functions of the migrations do the same and more; to enter them, with the
 * settings that keep their plans good, was measured to be a twentieth of a lone request's time. Only where plans are kept: to
 * plan a statement takes longer than to call a function.
 */

/** Whether a request may be reserved by `insertOne`: it is to be executed now, in the name of no session. */
export function isInsertable(queries: Queries, { request, session }: ReserveCall): boolean {
  return request.mode === "execute" && session === null && queries.keepsPlans();
}

/** Undefined if there is a record already. */
export async function insertOne(queries: Queries, call: ReserveCall): Promise<Reservation | undefined> {
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
export function farPlaceOf(queries: Queries, { lease }: CompleteCall, pagesMin: number): string | undefined {
  const place = PlacedLease.placeOf<string>(lease);
  const isFar = place !== undefined && Number.parseInt(place.slice(1), 10) >= pagesMin;
  return isFar && queries.keepsPlans() ? place : undefined;
}

/** To read so many pages is many times as expensive, by the planner's reckoning, as to read the one that a place is on. */
export const pagesOfLargeTable = 64;

/** Undefined if the row is not there any more, or the lease does not hold it. */
export async function completeFar(
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
