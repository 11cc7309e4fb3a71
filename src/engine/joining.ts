import type { Flight } from "./flight.ts";
import type { Runtime } from "./runtime.ts";
import { type Arrival, inFlightRetryAfterMs, type Verdict } from "./verdict.ts";

/** What the engine does for a duplicate of something under way in this process. */
export interface Joining {
  readonly runtime: Runtime;
  /** Gives the verdict, and tells of it. */
  answer(verdict: Verdict): Verdict;
  /** Begins anew: what was under way is no answer to this one. */
  again(isKnown?: boolean): Promise<Verdict>;
  /** What it means that the store did not answer. */
  storeDown(): Verdict;
  waited(since: number, answered: boolean): void;
}

/** The answer to a duplicate: the store is not asked again. */
export async function join(
  flight: Flight,
  arrival: Arrival,
  waitUntil: number,
  joining: Joining,
): Promise<Verdict> {
  arrival.trace?.joined(flight.trace);
  const verdict = await flight.verdict();
  const same = flight.fingerprint === arrival.fingerprint;
  switch (verdict.kind) {
    case "execute":
      if (!same) return joining.answer({ kind: "mismatch" });
      return joinExecution(flight, arrival, waitUntil, joining);
    case "inFlight":
      // The first one's patience has ended, which is no reason for this one's to end.
      if (same && arrival.policy.onInFlight === "wait" && joining.runtime.now() < waitUntil) {
        return joining.again(true);
      }
      return joining.answer(same ? verdict : { kind: "mismatch" });
    case "replay":
    case "accepted":
    case "unknown":
      // Each of these means that the record carries the fingerprint that the first request had.
      return joining.answer(same ? verdict : { kind: "mismatch" });
    case "absent":
      // There was nothing for a worker; anybody else may be the first.
      return arrival.isClaim ? joining.answer(verdict) : joining.again();
    case "mismatch":
      return same ? joining.answer(verdict) : joining.again(true);
    case "limited":
      return joining.answer(verdict);
    case "storeDown":
      return joining.answer(verdict.isKnown ? verdict : joining.storeDown());
    case "unprotected":
      return joining.answer(joining.storeDown());
    default:
      return verdict satisfies never;
  }
}

async function joinExecution(
  flight: Flight,
  arrival: Arrival,
  waitUntil: number,
  joining: Joining,
): Promise<Verdict> {
  const inFlight: Verdict = { kind: "inFlight", retryAfterMs: inFlightRetryAfterMs };
  switch (arrival.policy.onInFlight) {
    case "reject":
      return joining.answer(inFlight);
    case "accept":
      return joining.answer({ kind: "accepted", retryAfterMs: inFlightRetryAfterMs });
    case "wait":
      break;
    default:
      return arrival.policy.onInFlight satisfies never;
  }
  const since = joining.runtime.now();
  const settled = await flight.settledWithin(joining.runtime, Math.max(0, waitUntil - since));
  joining.waited(since, settled !== undefined);
  if (settled === undefined) return joining.answer(inFlight);
  switch (settled.kind) {
    case "stored":
      return joining.answer({ kind: "replay", response: settled.kept, expiresAt: settled.expiresAt });
    case "suspended":
      return joining.answer({ kind: "unknown", retryAfterMs: settled.retryAfterMs });
    case "released":
      return joining.again();
    case "lost":
    case "timedOut":
    case "storeDown":
      // It was begun, and may have been done.
      return joining.again(true);
    default:
      return settled satisfies never;
  }
}
