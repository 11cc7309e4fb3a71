import type { ProblemCode } from "../core/problem.ts";
import type { Events } from "../engine/events.ts";

/** Answers that come from the store's word on the request, or its silence: the engine has told those itself. */
const verdictCodes: ReadonlySet<ProblemCode> = new Set([
  "in-flight",
  "key-not-found",
  "key-reused",
  "outcome-unknown",
  "store-unavailable",
]);

/** Tells that a request was refused, unless that has been told. */
export function tellRefusal(events: Events, code: ProblemCode): void {
  if (events.areHeard && !verdictCodes.has(code)) events.emit({ type: "refused", code });
}
