import { decide } from "../core/decide.ts";
import { isBegun } from "../core/phase.ts";
import type { IdempotencyRecord } from "../core/record.ts";
import type { Reading } from "../core/store.ts";
import type { Engine } from "./engine.ts";
import { type Arrival, inFlightRetryAfterMs, outcomeOf, type Verdict } from "./verdict.ts";

/**
 * What is known of a request that may not be begun any more: the verdict that its record gives it, without changing
 * anything; `late` where there is none; `due` for a worker, where the record waits for one.
 */
export async function recall(engine: Engine, arrival: Arrival): Promise<Verdict | "late" | "due"> {
  const reading = await engine.read(arrival);
  // Also where the route runs without a store: what is old is not run without knowing.
  if (reading === undefined) return { kind: "storeDown" };
  const recalled = verdictOf(reading, arrival);
  if (typeof recalled !== "string" && reading.record !== undefined && engine.events.areHeard) {
    // By the name that it is stored under, which may be a digest of what the client sent.
    const { scope, key } = reading.record;
    const outcome = outcomeOf(recalled);
    engine.events.emit({
      type: "reserved",
      scope,
      key,
      outcome,
      joined: false,
      cached: false,
      discovered: false,
    });
  }
  return recalled;
}

function verdictOf({ record, now }: Reading, arrival: Arrival): Verdict | "late" | "due" {
  const decision = decide(record, { fingerprint: arrival.fingerprint, mode: "execute" }, now);
  switch (decision.kind) {
    case "replay":
    case "mismatch":
    case "unknown":
      return decision;
    case "inFlight":
      return underWay(arrival);
    case "pending":
      return arrival.isClaim ? "due" : { kind: "accepted", retryAfterMs: inFlightRetryAfterMs };
    case "suspend":
      return { kind: "unknown", retryAfterMs: decision.record.reconcileAfterMs };
    case "execute":
    case "accept":
    case "absent":
      // A worker is about to go on with it, so nobody may be told to begin anew with another key.
      if (record !== undefined && waitsForWorker(record, arrival)) {
        return arrival.isClaim ? "due" : underWay(arrival);
      }
      // Begun, and not finished: a new key would begin it a second time.
      if (record !== undefined && mayHaveBegun(record)) {
        return { kind: "unknown", retryAfterMs: arrival.policy.reconcileAfterMs };
      }
      return "late";
    default:
      return decision satisfies never;
  }
}

function underWay({ policy }: Arrival): Verdict {
  return {
    kind: policy.onInFlight === "accept" ? "accepted" : "inFlight",
    retryAfterMs: inFlightRetryAfterMs,
  };
}

/** Asked of what could be executed now: what is in progress there has lost its owner. */
function waitsForWorker(record: IdempotencyRecord, { request }: Arrival): boolean {
  if (record.state === "failed_retryable") return record.resumeAfter !== undefined;
  // The sweeper leaves to a worker what the route has kept, whatever its `onCrash`.
  return record.state === "in_progress" && request !== undefined;
}

/** With `onCrash: "retry"` a second execution does no harm, unless there is something that it must not repeat. */
function mayHaveBegun({ state, progress, onCrash }: IdempotencyRecord): boolean {
  return progress.some(isBegun) || (state === "in_progress" && onCrash !== "retry");
}
