import { ConfigError } from "../core/errors.ts";
import type { ProblemCode } from "../core/problem.ts";
import type { RecordId } from "../core/record.ts";
import type { Resumable } from "../core/store.ts";
import type { StoredRequest } from "../core/stored-request.ts";
import { claimHeader } from "../http/stored-request.ts";
import type { Latchkey } from "../latchkey.ts";
import { loopOf, type Worker } from "./loop.ts";

/** A request that was kept, ready to be sent to the service that executes it. */
export interface DispatchRequest extends StoredRequest, RecordId {
  /** How often it has been executed so far. */
  readonly attempts: number;
}

/**
 * Sends a kept request to the service, as its client would have done. Whoever identifies callers by a header that is
 * not kept adds it here, for the tenant that is named.
 */
export type Dispatch = (
  request: DispatchRequest,
  context: { readonly signal: AbortSignal },
) => Promise<unknown>;

export interface CompleterOptions {
  readonly dispatch: Dispatch;
  /** How many requests are executed at once. */
  readonly batch?: number;
  /** How often one operation is tried, by clients and workers together, before it is given up. */
  readonly attemptsMax?: number;
  /** For how long a request that was sent is left alone: `baseMs`, then twice as long each time. */
  readonly backoff?: { readonly baseMs: number; readonly capMs: number };
  /** A service that takes longer is not waited for; what it does still counts. */
  readonly dispatchTimeoutMs?: number;
  readonly intervalMs?: number;
}

export interface CompleterCounts {
  /** Sent to the service. What came of it is in the record. */
  readonly dispatched: number;
  /** The service could not be reached. */
  readonly failed: number;
  readonly gaveUp: number;
}

const batchDefault = 10; // Each is a request to the service, beside those of its clients.
const attemptsMaxDefault = 15; // With the back-off below: about half a day.
const backoffDefault = { baseMs: 5_000, capMs: 3_600_000 };
const dispatchTimeoutMsDefault = 60_000;
const intervalMsDefault = 1_000; // Accepted work waits for this long when no other work woke the worker.

/**
 * Executes what was accepted, and finishes what a crash or a failure left half done, without waiting for the client.
 */
export function completer(latchkey: Latchkey, options: CompleterOptions): Worker<CompleterCounts> {
  const {
    dispatch,
    batch = batchDefault,
    attemptsMax = attemptsMaxDefault,
    backoff = backoffDefault,
    dispatchTimeoutMs = dispatchTimeoutMsDefault,
    intervalMs = intervalMsDefault,
  } = options;
  if (typeof dispatch !== "function") {
    throw new ConfigError(
      'a completer needs to know how a kept request is sent to the service: pass dispatch: dispatchTo("http://127.0.0.1:3000")',
    );
  }
  const { engine, store } = latchkey;

  async function send({ record, request }: Resumable): Promise<"dispatched" | "failed"> {
    const { scope, key, fence } = record;
    const headers = [...request.headers, [claimHeader, "true"] as const];
    const timeOut = new AbortController();
    const cancel = engine.runtime.setTimer(() => timeOut.abort(), dispatchTimeoutMs);
    try {
      await dispatch({ ...request, headers, scope, key, attempts: fence }, { signal: timeOut.signal });
      return "dispatched";
    } catch (error) {
      engine.events.emit({ type: "worker_error", worker: name, error });
      return "failed";
    } finally {
      cancel();
    }
  }

  return loopOf<CompleterCounts>({
    name,
    latchkey,
    async runOnce() {
      const claim = await engine.ask("claim", () =>
        store.claimResumable({ limit: batch, backoff, attemptsMax }),
      );
      const counts = { dispatched: 0, failed: 0, gaveUp: claim.gaveUp };
      for (const outcome of await Promise.all(claim.claimed.map(send))) counts[outcome] += 1;
      return counts;
    },
    isIdle: ({ dispatched, failed, gaveUp }) => dispatched + failed + gaveUp === 0,
    intervalMs,
  });
}

const name = "completer";

/**
 * Sends kept requests to a service over HTTP.
 *
 * @example
 * ```ts
 * completer(latchkey, {
 *   dispatch: dispatchTo("http://127.0.0.1:3000", ({ tenant }) => ({ authorization: `Bearer ${tokenFor(tenant)}` })),
 * });
 * ```
 */
export function dispatchTo(
  baseUrl: string | URL,
  headersFor: (
    request: DispatchRequest,
  ) => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>> = () => ({}),
): Dispatch {
  return async (request, { signal }) => {
    const { method, target, headers, body } = request;
    const all = new Headers(headers.map(([header, value]): [string, string] => [header, value]));
    for (const [header, value] of Object.entries(await headersFor(request))) all.set(header, value);
    const response = await fetch(urlOf(baseUrl, target), {
      method,
      headers: all,
      body: body.byteLength === 0 ? null : Buffer.from(body),
      signal,
      redirect: "manual",
    });
    const refusal = await refusalOf(response);
    if (refusal !== undefined) {
      throw new Error(
        `the service answered ${refusal} to a kept request (${method}): see that dispatchTo names the ` +
          "right address, and that the request carries what identifies its caller",
      );
    }
  };
}

/** The target comes from a client, and must not lead anywhere else than to the service. */
function urlOf(baseUrl: string | URL, target: string): URL {
  const { origin } = new URL(baseUrl);
  const url = target.startsWith("/") ? new URL(origin + target) : undefined;
  // What its client wrote stays out of the sentence, which is logged.
  if (url?.origin !== origin) throw new Error(`a kept request is for something that is no path of ${origin}`);
  return url;
}

/** Why the request did not get as far as its handler; undefined if it may have. Its answer, if any, is stored. */
async function refusalOf(response: Response): Promise<string | undefined> {
  const { status, headers } = response;
  const isProblem = headers.get("content-type")?.startsWith("application/problem+json") === true;
  if (!isProblem || headers.has("idempotency-replayed") || headers.has("idempotent-replayed")) {
    await response.body?.cancel();
    return [401, 403, 404].includes(status) ? String(status) : undefined;
  }
  const { code } = ((await response.json().catch(() => ({}))) ?? {}) as { code?: unknown };
  return passingCodes.has(String(code)) ? undefined : `${status} ${code}`;
}

/** What only means that somebody else is at it, or that what came of it is not known, which is written down. */
const passingCodes: ReadonlySet<string> = new Set<ProblemCode>([
  "in-flight",
  "lease-lost",
  "outcome-unknown",
  "handler-failed",
  "execution-timeout",
]);
