import type { Policy } from "./policy.ts";

/** What the client should do next. */
export type RetryAdvice = "same-key" | "new-key" | "never";

interface ProblemKind {
  readonly status: number;
  readonly title: string;
  readonly retry: RetryAdvice;
}

/** Every answer that Latchkey gives in its own name. Codes are stable; docs/problems.md has a section for each. */
export const problemKinds = {
  "key-missing": { status: 400, title: "This request needs an Idempotency-Key header", retry: "new-key" },
  "key-invalid": { status: 400, title: "The Idempotency-Key header cannot be used", retry: "new-key" },
  "request-time-invalid": {
    status: 400,
    title: "The request does not say when it was first sent",
    retry: "same-key",
  },
  "request-refused": {
    status: 400,
    title: "The request can be read in more than one way",
    retry: "same-key",
  },
  "body-ambiguous": { status: 400, title: "The body can be read in more than one way", retry: "same-key" },
  "tenant-missing": { status: 401, title: "The caller is not known", retry: "same-key" },
  "session-missing": { status: 401, title: "The session is not known", retry: "same-key" },
  "key-not-found": { status: 404, title: "There is no request under this key", retry: "new-key" },
  "not-claimed": { status: 408, title: "Nobody executed the request in time", retry: "new-key" },
  "in-flight": { status: 409, title: "The first request with this key is still running", retry: "same-key" },
  "outcome-unknown": { status: 409, title: "The outcome is not known yet", retry: "same-key" },
  "lease-lost": { status: 409, title: "Another process has taken this request over", retry: "same-key" },
  "response-not-stored": { status: 409, title: "Done, but the answer was not kept", retry: "never" },
  "no-answer": { status: 409, title: "The request has no answer", retry: "same-key" },
  "key-expired": { status: 410, title: "The answer under this key has expired", retry: "new-key" },
  "late-arrival": { status: 412, title: "The request is too old to be run", retry: "new-key" },
  "body-too-large": { status: 413, title: "The body is too large", retry: "never" },
  "key-reused": { status: 422, title: "The key was used for another request", retry: "new-key" },
  "rate-limited": { status: 429, title: "Too many requests", retry: "same-key" },
  "handler-failed": { status: 500, title: "The request failed", retry: "same-key" },
  "upstream-unanswered": {
    status: 502,
    title: "The service gave no answer that counts",
    retry: "same-key",
  },
  "upstream-busy": { status: 503, title: "The service has too much to do", retry: "same-key" },
  "upstream-unreachable": { status: 503, title: "The service cannot be reached", retry: "same-key" },
  "caller-unavailable": {
    status: 503,
    title: "It cannot be told right now who is calling",
    retry: "same-key",
  },
  "store-unavailable": {
    status: 503,
    title: "Idempotency cannot be guaranteed right now",
    retry: "same-key",
  },
  "upstream-timeout": { status: 504, title: "The service did not answer in time", retry: "same-key" },
  "execution-timeout": { status: 504, title: "The request took too long", retry: "same-key" },
  "loop-detected": { status: 508, title: "The request goes in circles", retry: "never" },
} as const satisfies Record<string, ProblemKind>;

export type ProblemCode = keyof typeof problemKinds;

/** An RFC 9457 problem document, with what the client should do as a machine can read it. */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: ProblemCode;
  readonly retry: RetryAdvice;
  /** With `response-not-stored`: the status of the answer that was not kept. */
  readonly originalStatus?: number;
}

/** Where problem types are documented unless `problemTypeBase` says otherwise; docs/problems.md is the page. */
export const defaultProblemTypeBase = "https://latchkey.dev/problems/";

export function problem(
  code: ProblemCode,
  options: {
    readonly detail: string;
    readonly typeBase: string;
    readonly policy?: Pick<Policy, "mismatchStatus">;
    readonly originalStatus?: number;
  },
): Problem {
  const kind = problemKinds[code];
  const status = code === "key-reused" && options.policy ? options.policy.mismatchStatus : kind.status;
  return {
    type: options.typeBase + code,
    title: kind.title,
    status,
    detail: options.detail,
    code,
    retry: kind.retry,
    ...(options.originalStatus === undefined ? {} : { originalStatus: options.originalStatus }),
  };
}
