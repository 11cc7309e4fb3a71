import { isSettled } from "../../core/record.ts";
import type { Reading } from "../../core/store.ts";
import { type Arrival, modeOf, type Verdict } from "../verdict.ts";
import type { Limits } from "./limits.ts";
import type { Refusal } from "./options.ts";

/** What the engine does for the first request of its key in this process. */
export interface Leading {
  /** Asks the store; what `heard` is told is what it said. */
  reserve(heard: (verdict: Verdict) => void, isKnown?: boolean): Verdict | Promise<Verdict>;
  /** Or what it means that the store did not answer. */
  read(): Promise<Reading | Verdict>;
  /** Whether there may be a record; left out where reading it is the shortest way to know. */
  readonly mayExist?: (() => Promise<boolean>) | undefined;
  conclude(verdict: Verdict): Verdict | Promise<Verdict>;
  /** The limits themselves have failed, before anything was reserved. */
  failed(error: unknown): Verdict;
}

/**
 * Reserves under the limits of the tenant. Only a new key takes anything from them; whether it is new only the store
 * knows, so that is taken first and given back if it is not. Where nothing is left, the store is asked whether there is a
 * record: whoever retries gets the answer, however many new keys its tenant has used.
 */
export function leadWithinLimits(
  limits: Limits,
  arrival: Arrival,
  leading: Leading,
): Verdict | Promise<Verdict> {
  const failed = (error: unknown) => leading.failed(error);
  // What is accepted is answered alike when it is new and when it is not: that has to be known before.
  if (modeOf(arrival) === "accept") return lookFirst(limits, arrival, leading).catch(failed);
  let admission: ReturnType<Limits["takeKey"]>;
  try {
    admission = limits.takeKey(arrival);
  } catch (error) {
    return failed(error);
  }
  // Nearly always: on the path of every request each promise is paid for.
  if (admission === undefined) return reserveTaken(limits, arrival, leading);
  if (!(admission instanceof Promise)) return lookRefused(limits, arrival, leading, admission).catch(failed);
  return admission
    .then((refusal) =>
      refusal === undefined
        ? reserveTaken(limits, arrival, leading)
        : lookRefused(limits, arrival, leading, refusal),
    )
    .catch(failed);
}

function reserveTaken(limits: Limits, arrival: Arrival, leading: Leading): Verdict | Promise<Verdict> {
  return leading.reserve((verdict) => {
    if (!isNew(verdict)) limits.giveKeyBack(arrival);
  });
}

/** A flood of keys comes this way: what is certainly new is refused without anything else being asked about it. */
async function lookRefused(
  limits: Limits,
  arrival: Arrival,
  leading: Leading,
  refusal: Refusal,
): Promise<Verdict> {
  if (leading.mayExist === undefined || (await leading.mayExist())) {
    return lookFirst(limits, arrival, leading);
  }
  return refused(limits, arrival, leading, refusal);
}

function refused(
  limits: Limits,
  arrival: Arrival,
  leading: Leading,
  refusal: Refusal,
): Verdict | Promise<Verdict> {
  limits.tellRefused(arrival, refusal);
  return leading.conclude({ kind: "limited", refusal });
}

async function lookFirst(limits: Limits, arrival: Arrival, leading: Leading): Promise<Verdict> {
  const reading = await leading.read();
  if ("kind" in reading) return leading.conclude(reading);
  if (isThere(reading)) {
    // Between the two questions it may have gone.
    return leading.reserve((verdict) => {
      if (isNew(verdict)) limits.chargeKey(arrival);
    }, true);
  }
  const refusal = await limits.takeKey(arrival);
  if (refusal === undefined) {
    return leading.reserve((verdict) => {
      if (!isNew(verdict) && verdict.kind !== "accepted") limits.giveKeyBack(arrival);
    });
  }
  return refused(limits, arrival, leading, refusal);
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
