import { isSettled } from "../../core/record.ts";
import type { Reading } from "../../core/store.ts";
import { type Arrival, modeOf, type Verdict } from "../verdict.ts";
import type { Limits } from "./limits.ts";
import type { Refusal } from "./options.ts";

/** What the engine does for the first request of a key in this process; made once for all of them. */
export interface Leading {
  readonly limits: Limits;
  /** Asks the store, and answers with what `next` makes of what it said. */
  reserve(
    arrival: Arrival,
    next: (verdict: Verdict) => Verdict | Promise<Verdict>,
    now?: number,
  ): Verdict | Promise<Verdict>;
  /** Or what it means that the store did not answer. */
  read(arrival: Arrival): Promise<Reading | Verdict>;
  /** Whether there may be a record; left out where reading it is the shortest way to know. */
  readonly mayExist?: ((arrival: Arrival) => Promise<boolean>) | undefined;
  /** The limits themselves have failed. */
  failed(error: unknown): void;
}

/** Ends what was begun for one request: those who have joined it learn its verdict. */
type Conclude = (verdict: Verdict) => Verdict | Promise<Verdict>;

/**
 * Reserves under the limits of the tenant. Only a new key takes anything from them; whether it is new only the store
 * knows, so that is taken first and given back if it is not. Where nothing is left, the store is asked whether there is a
 * record: whoever retries gets the answer, however many new keys its tenant has used.
 */
export function leadWithinLimits(
  leading: Leading,
  arrival: Arrival,
  conclude: Conclude,
  /** What time it is, from whoever has just looked. */
  now: number,
): Verdict | Promise<Verdict> {
  // What is accepted is answered alike when it is new and when it is not: that has to be known before.
  if (modeOf(arrival) === "accept") return orFailed(leading, conclude, lookFirst(leading, arrival, conclude));
  let admission: ReturnType<Limits["takeKey"]>;
  try {
    admission = leading.limits.takeKey(arrival, now);
  } catch (error) {
    return failed(leading, conclude, error);
  }
  // Nearly always: on the path of every request each promise, and whatever is made for others, is paid for.
  if (admission === undefined) return reserveTaken(leading, arrival, conclude, now);
  return orFailed(leading, conclude, afterAdmission(leading, arrival, conclude, admission));
}

async function orFailed(leading: Leading, conclude: Conclude, verdict: Promise<Verdict>): Promise<Verdict> {
  try {
    return await verdict;
  } catch (error) {
    return failed(leading, conclude, error);
  }
}

/** Before anything was reserved. Nobody can say how far it came, and duplicates must not wait for it for ever. */
function failed(leading: Leading, conclude: Conclude, error: unknown): Verdict | Promise<Verdict> {
  leading.failed(error);
  return conclude({ kind: "storeDown", isKnown: true });
}

async function afterAdmission(
  leading: Leading,
  arrival: Arrival,
  conclude: Conclude,
  admission: Refusal | Promise<Refusal | undefined>,
): Promise<Verdict> {
  const refusal = await admission;
  if (refusal === undefined) return reserveTaken(leading, arrival, conclude);
  // A flood of keys comes this way: what is certainly new is refused without anything else being asked about it.
  if (leading.mayExist === undefined || (await leading.mayExist(arrival))) {
    return lookFirst(leading, arrival, conclude);
  }
  return refused(leading, arrival, conclude, refusal);
}

function reserveTaken(
  leading: Leading,
  arrival: Arrival,
  conclude: Conclude,
  now?: number,
): Verdict | Promise<Verdict> {
  const next = (verdict: Verdict) => {
    if (!isNew(verdict)) counted(leading, () => leading.limits.giveKeyBack(arrival));
    return conclude(verdict);
  };
  return leading.reserve(arrival, next, now);
}

/** What the store has decided stands, whatever becomes of the counters. */
function counted(leading: Leading, count: () => void): void {
  try {
    count();
  } catch (error) {
    leading.failed(error);
  }
}

function refused(
  { limits }: Leading,
  arrival: Arrival,
  conclude: Conclude,
  refusal: Refusal,
): Verdict | Promise<Verdict> {
  limits.tellRefused(arrival, refusal);
  return conclude({ kind: "limited", refusal });
}

async function lookFirst(leading: Leading, arrival: Arrival, conclude: Conclude): Promise<Verdict> {
  const { limits } = leading;
  const reading = await leading.read(arrival);
  if ("kind" in reading) return conclude(reading);
  if (isThere(reading)) {
    // Between the two questions it may have gone.
    return leading.reserve({ ...arrival, isKnown: true }, (verdict) => {
      if (isNew(verdict)) counted(leading, () => limits.chargeKey(arrival));
      return conclude(verdict);
    });
  }
  const refusal = await limits.takeKey(arrival);
  if (refusal !== undefined) return refused(leading, arrival, conclude, refusal);
  return leading.reserve(arrival, (verdict) => {
    const isCounted = isNew(verdict) || verdict.kind === "accepted";
    if (!isCounted) counted(leading, () => limits.giveKeyBack(arrival));
    return conclude(verdict);
  });
}

function isNew(verdict: Verdict): boolean {
  if (verdict.kind !== "execute") return false;
  const { after } = verdict.execution;
  return after === "absent" || after === "expired";
}

/** Whether a retry has something to come back to, so that no new key is made. */
function isThere({ record, now }: Reading): boolean {
  if (record === undefined || record.state === "expired") return false;
  return !isSettled(record) || record.expiresAt > now;
}
