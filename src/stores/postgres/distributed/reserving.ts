import { StoreError } from "../../../core/errors.ts";
import type { Reservation, ReserveRequest } from "../../../core/store.ts";
import { encodeRequest } from "../../../core/stored-request.ts";
import { reserving } from "../../moves.ts";
import type { Parameter } from "../database.ts";
import { newRecordOf, newReservation } from "../reserving.ts";
import { durationMs } from "../rows.ts";
import type { Records } from "./records.ts";
import { newRevision } from "./rows.ts";
import { records as statements } from "./statements.ts";

/** A new key is inserted without being looked for; one that is there is read, and taken if `decide` lets it be: see stores/moves.ts. */
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
  const { answer, move } = reserving(found, bounded(request), found.now);
  return move === undefined || (await records.apply(found, move)) ? answer : undefined;
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
