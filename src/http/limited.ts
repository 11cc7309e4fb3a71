import type { LimitName } from "../engine/events.ts";
import type { Refusal } from "../engine/limits/options.ts";
import { type AnswerContext, type HttpAnswer, problemAnswer } from "./answer.ts";

/**
 * The answer to a tenant that has used up a limit, with the fields of the IETF's RateLimit draft: what the limit is, and
 * when there is something left of it.
 */
export function limitedAnswer(context: AnswerContext, refusal: Refusal): HttpAnswer {
  const { name, max, perMs, retryAfterMs } = refusal;
  const { title, detail } = names[name];
  const answer = problemAnswer(context, "rate-limited", {
    detail: `${detail} Nothing was executed. Wait, and send the request again with the same key.`,
    retryAfterMs,
  });
  // The draft has whole seconds only, and a window is left out rather than wrong.
  const window = perMs !== undefined && perMs % 1000 === 0 ? `;w=${perMs / 1000}` : "";
  return {
    ...answer,
    headers: [
      ...answer.headers,
      ["RateLimit-Policy", `"${title}";q=${max}${window}`],
      ["RateLimit", `"${title}";r=0;t=${Math.max(1, Math.ceil(retryAfterMs / 1000))}`],
    ],
  };
}

const names: Record<LimitName, { readonly title: string; readonly detail: string }> = {
  newKeys: { title: "new-keys", detail: "There were too many requests with new keys." },
  lookUps: { title: "look-ups", detail: "There were too many requests." },
  activeKeys: { title: "active-keys", detail: "Too many keys are still kept." },
  storedBytes: { title: "stored-bytes", detail: "Too much is still kept under earlier keys." },
};
