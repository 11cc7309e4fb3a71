import { type Policy, profileHeaders } from "../core/policy.ts";
import { type ProblemCode, problem } from "../core/problem.ts";
import type { HeaderPair, StoredResponse } from "../core/response.ts";

/** An answer that Latchkey gives in the handler's place. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: readonly HeaderPair[];
  readonly body: Uint8Array;
}

/** What every answer on one route has in common. */
export interface AnswerContext {
  readonly policy: Pick<Policy, "profile" | "mismatchStatus">;
  readonly typeBase: string;
  readonly key: string | undefined;
}

export function problemAnswer(
  context: AnswerContext,
  code: ProblemCode,
  options: { readonly detail: string; readonly retryAfterMs?: number; readonly originalStatus?: number },
): HttpAnswer {
  const { detail, retryAfterMs, originalStatus } = options;
  const { policy, typeBase } = context;
  const document = problem(code, {
    detail,
    typeBase,
    policy,
    ...(originalStatus === undefined ? {} : { originalStatus }),
  });
  return {
    status: document.status,
    headers: [
      ["content-type", "application/problem+json"],
      ["cache-control", "no-store"],
      ...(retryAfterMs === undefined ? [] : [retryAfter(retryAfterMs)]),
      ...firstAnswerHeaders(context, undefined),
    ],
    body: encoder.encode(JSON.stringify(document)),
  };
}

/** The stored answer again, marked as what it is. */
export function replayAnswer(
  context: AnswerContext,
  response: StoredResponse,
  expiresAt: number,
): HttpAnswer {
  const marks: HeaderPair[] = [
    replayedMarks[context.policy.profile],
    ...firstAnswerHeaders(context, expiresAt),
  ];
  switch (response.kind) {
    case "full":
      return { status: response.status, headers: response.headers.concat(marks), body: response.body };
    case "omitted": {
      const answer = problemAnswer(context, "response-not-stored", {
        detail:
          `The request was executed once and answered ${response.status}${omittedSentence(response)} ` +
          "Do not send it again: read the result from the resource that it created.",
        originalStatus: response.status,
      });
      return { ...answer, headers: [...answer.headers, ...marks] };
    }
    default:
      return response satisfies never;
  }
}

const replayedMarks: Record<Policy["profile"], HeaderPair> = {
  ietf: [profileHeaders.ietf.replayed, "true"],
  stripe: [profileHeaders.stripe.replayed, "true"],
  acp: [profileHeaders.acp.replayed, "true"],
};

function omittedSentence({ because, bodyBytes }: Extract<StoredResponse, { kind: "omitted" }>): string {
  switch (because) {
    case undefined:
      return ` with ${bodyBytes} bytes, more than are kept.`;
    case "not-redactable":
      return ", and parts of the answer that must not be kept could not be told from the rest.";
    case "shredded":
      return ", and the answer was made unreadable on the caller's behalf.";
    default:
      return because satisfies never;
  }
}

/** It is under way; `location` says where to ask. */
export function acceptedAnswer(
  context: AnswerContext,
  options: { readonly location: string | undefined; readonly retryAfterMs: number },
): HttpAnswer {
  const { location } = options;
  return {
    status: 202,
    headers: [
      ["content-type", "application/json"],
      ["cache-control", "no-store"],
      ...(location === undefined ? [] : [["location", location] as const]),
      retryAfter(options.retryAfterMs),
      ...firstAnswerHeaders(context, undefined),
    ],
    body: encoder.encode(JSON.stringify({ status: "in_progress", location })),
  };
}

/** What is added to the first answer of a key. */
export function firstAnswerHeaders(context: AnswerContext, expiresAt: number | undefined): HeaderPair[] {
  const headers: HeaderPair[] = [];
  if (expiresAt !== undefined) headers.push(expires(expiresAt));
  const { key, policy } = context;
  if (key !== undefined && profileHeaders[policy.profile].echoKey) headers.push(["Idempotency-Key", key]);
  return headers;
}

/** The headers by name, with all values of a repeated one together: what most frameworks can set in one call. */
export function headersByName(
  headers: readonly HeaderPair[],
): readonly (readonly [name: string, value: string | string[]])[] {
  if (!hasRepeated(headers)) return headers;
  const byName = new Map<string, [name: string, value: string | string[]]>();
  for (const [name, value] of headers) {
    const entry = byName.get(name.toLowerCase());
    if (entry === undefined) byName.set(name.toLowerCase(), [name, value]);
    else entry[1] = [entry[1], value].flat();
  }
  return [...byName.values()];
}

/** Compares texts only where the lengths are equal, which leaves next to nothing to do. */
function hasRepeated(headers: readonly HeaderPair[]): boolean {
  for (let index = 1; index < headers.length; index += 1) {
    const name = (headers[index] as HeaderPair)[0];
    for (let earlier = 0; earlier < index; earlier += 1) {
      const other = (headers[earlier] as HeaderPair)[0];
      if (other.length === name.length && other.toLowerCase() === name.toLowerCase()) return true;
    }
  }
  return false;
}

const encoder = new TextEncoder();

function expires(expiresAt: number): HeaderPair {
  const second = Math.floor(Math.min(expiresAt, lastDateMs) / 1000);
  if (lastExpiry.second !== second) {
    lastExpiry = { second, header: ["Idempotency-Expires", new Date(second * 1000).toUTCString()] };
  }
  return lastExpiry.header;
}

/** Answers of one second expire in one second, and making the text costs more than all other headers together. */
let lastExpiry: { readonly second: number; readonly header: HeaderPair } = {
  second: Number.NaN,
  header: ["", ""],
};

/** The end of the year 9999: an HTTP date has four digits for the year. */
const lastDateMs = 253_402_300_799_000;

/** Whole seconds, and never 0: a client that takes it literally must not spin. */
function retryAfter(ms: number): HeaderPair {
  return ["Retry-After", String(Math.max(1, Math.ceil(ms / 1000)))];
}
