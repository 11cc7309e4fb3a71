import type { Policy } from "../core/policy.ts";
import type { Verdict } from "../engine/verdict.ts";
import type { Latchkey } from "../latchkey.ts";
import {
  type AnswerContext,
  acceptedAnswer,
  type HttpAnswer,
  problemAnswer,
  replayAnswer,
} from "./answer.ts";
import { storeDownRetryAfterMs, unknownRetryAfterMsMin } from "./exchange.ts";
import { limitedAnswer } from "./limited.ts";
import type { HttpRequest } from "./request.ts";
import { statusLocation } from "./status.ts";

/** A verdict by which nothing is executed. */
export type Answered = Exclude<Verdict, { kind: "execute" | "unprotected" }>;

/** What a client is told in the handler's place. */
export function answerOf(
  verdict: Answered,
  key: string,
  about: {
    readonly latchkey: Latchkey;
    readonly policy: Policy;
    readonly context: AnswerContext;
    readonly request: HttpRequest;
    /** Whether keys are tied to sessions on this route. */
    readonly isBound: boolean;
  },
): HttpAnswer {
  const { context } = about;
  switch (verdict.kind) {
    case "replay":
      return replayAnswer(context, verdict.response, verdict.expiresAt);
    case "inFlight":
      return problemAnswer(context, "in-flight", {
        detail: "Wait, and send the same request with the same key again to get its answer.",
        retryAfterMs: verdict.retryAfterMs,
      });
    case "accepted": {
      const { method, path } = about.request;
      const location = statusLocation(about.latchkey, about.policy, { key, method, path });
      return acceptedAnswer(context, { location, retryAfterMs: verdict.retryAfterMs });
    }
    case "absent":
      return problemAnswer(context, "key-not-found", {
        detail: "A worker came for a request that this caller has not sent: see on whose behalf it asks.",
      });
    case "mismatch":
      return problemAnswer(context, "key-reused", {
        // Which of them it was is nobody's business who has only the key.
        detail:
          `This key came first with another method, path, query or body${about.isBound ? ", or from another session" : ""}. ` +
          "Use a new key for a new request; to retry, send exactly the first one.",
      });
    case "unknown":
      return problemAnswer(context, "outcome-unknown", {
        detail:
          "The request may have been executed, and it is not known yet whether it was. Do not use a new key, which " +
          "could do it twice; ask again later with this one.",
        retryAfterMs: Math.max(verdict.retryAfterMs, unknownRetryAfterMsMin),
      });
    case "limited":
      return limitedAnswer(context, verdict.refusal);
    case "storeDown":
      return problemAnswer(context, "store-unavailable", {
        detail: "Nothing was executed. Send the request again with the same key.",
        retryAfterMs: verdict.retryAfterMs ?? storeDownRetryAfterMs,
      });
    default:
      return verdict satisfies never;
  }
}
