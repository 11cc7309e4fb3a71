import type { LatchkeyEvent, ReserveOutcome } from "../../engine/events.ts";
import type { ActivitySeries } from "../views.ts";

/** As what an event counts; undefined if it is about no request, or counted by another event. */
export function seriesOf(event: LatchkeyEvent): ActivitySeries | undefined {
  switch (event.type) {
    case "reserved":
      return seriesOfOutcome[event.outcome];
    case "settled":
      return seriesOfEnd[event.as];
    case "refused":
      return "refused";
    case "limited":
      // The other limits are met by the engine, which says so with the outcome.
      return event.limit === "lookUps" ? "limited" : undefined;
    default:
      return undefined;
  }
}

const seriesOfOutcome: Readonly<Record<ReserveOutcome, ActivitySeries | undefined>> = {
  created: "executed",
  claimed: "executed",
  failed_retry: "executed",
  takeover: "executed",
  expired_retry: "executed",
  unprotected: "executed",
  replay: "replayed",
  in_progress: "inProgress",
  key_misuse: "misused",
  unknown: "unknown",
  limited: "limited",
  store_down: "storeDown",
  // It is executed later, by a worker, and counts then.
  accepted: undefined,
  absent: undefined,
};

const seriesOfEnd = {
  completed: "completed",
  failed_retryable: "failedRetryable",
  unknown: "suspended",
} as const satisfies Record<string, ActivitySeries>;
