import { type AnswerContext, type HttpAnswer, problemAnswer } from "../../http/answer.ts";
import { unknownRetryAfterMsMin } from "../../http/exchange.ts";
import { AmbiguousAnswerError } from "./answer-head.ts";
import type { RequestRefusal } from "./refuse.ts";

/** What became of a request that upstream did not answer, and what its client is told. */
export interface UpstreamFailure {
  /** Nothing was sent, so nothing was executed; or something was, and nobody here can know. */
  readonly outcome: "release" | "suspend";
  /** For the record. */
  readonly reason: string;
  answer(context: AnswerContext): HttpAnswer;
}

/**
 * `isSent` says whether a byte of the request may have left. Nothing else decides: an error's name tells what was seen
 * of a connection, not what upstream has read from it.
 */
export function upstreamFailure(error: unknown, { isSent }: { readonly isSent: boolean }): UpstreamFailure {
  const { message = String(error), code } = error as { message?: string; code?: string };
  const what = code === undefined ? message : `${message} (${code})`;
  if (!isSent) {
    const answer = error instanceof UpstreamBusyError ? busy : unreachable;
    return { outcome: "release", reason: `never sent to upstream: ${what}`, answer };
  }
  const reason = `sent to upstream, and not answered: ${what}`;
  if (timeoutCodes.has(code ?? "")) return { outcome: "suspend", reason, answer: timedOut };
  const answer = error instanceof AmbiguousAnswerError ? ambiguous(error) : unanswered;
  return { outcome: "suspend", reason, answer };
}

/** All connections are taken, and enough requests wait for one. */
export class UpstreamBusyError extends Error {
  constructor() {
    super("all connections are taken, and as many requests wait for one as may");
  }
}

/** What a request is told that was refused before it could be passed on. */
export function refusalAnswer(context: AnswerContext, { status, detail }: RequestRefusal): HttpAnswer {
  return problemAnswer(context, status === 508 ? "loop-detected" : "request-refused", { detail });
}

const timeoutCodes: ReadonlySet<string> = new Set(["UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT"]);

const unreachableRetryAfterMs = 2000; // A service that is being restarted is back within some seconds.

const unreachable = neverSent("upstream-unreachable", "No connection to the service could be made");
const busy = neverSent("upstream-busy", "Too many requests wait for the service already");

function neverSent(code: "upstream-unreachable" | "upstream-busy", why: string): UpstreamFailure["answer"] {
  return (context) =>
    problemAnswer(context, code, {
      detail: `${why}, so nothing was sent and nothing was executed. Send the request again with the same key.`,
      retryAfterMs: unreachableRetryAfterMs,
    });
}

const doNotRepeat =
  "It may have been executed, and is not sent again. Do not use a new key, which could do it twice; ask again later " +
  "with this one.";

function unanswered(context: AnswerContext): HttpAnswer {
  return notAnswered(context, "The connection to the service broke before its answer was complete.");
}

function ambiguous({ message }: AmbiguousAnswerError): UpstreamFailure["answer"] {
  return (context) =>
    notAnswered(context, `The service's answer can be read in more than one way: ${message}.`);
}

function notAnswered(context: AnswerContext, what: string): HttpAnswer {
  return problemAnswer(context, "upstream-unanswered", {
    detail: `${what} ${doNotRepeat}`,
    retryAfterMs: unknownRetryAfterMsMin,
  });
}

function timedOut(context: AnswerContext): HttpAnswer {
  return problemAnswer(context, "upstream-timeout", {
    detail: `The service was sent the request, and did not answer in time. ${doNotRepeat}`,
    retryAfterMs: unknownRetryAfterMsMin,
  });
}
