import type { Context, Handler, MiddlewareHandler, Next } from "hono";
import { isPromiseLike } from "../core/when-known.ts";
import {
  fetchRequest,
  type Responses,
  readFetchBody,
  runHandler,
  standardResponses,
  toResponse,
} from "../http/fetch.ts";
import { type Arrival, Gate, type RoutePolicy } from "../http/gate.ts";
import type { BodyReading } from "../http/request.ts";
import { answerStatus, type StatusOptions } from "../http/status.ts";
import type { Latchkey } from "../latchkey.ts";
import type { Incoming } from "./hono-node.ts";

/**
 * Middleware for Hono, for one route or for all of them.
 *
 * @example
 * ```ts
 * app.post("/charges", idempotent(latchkey), async (c) => c.json(await charge(await c.req.json()), 201));
 * ```
 */
export function idempotent(latchkey: Latchkey, policy?: RoutePolicy<Context>): MiddlewareHandler {
  const gate = new Gate(latchkey, policy);
  // Each promise here, and each function that waits for one, is paid for by every request.
  const protect = (c: Context, next: Next): Promise<undefined> => {
    const incoming = incomingOf(c);
    if (incoming !== undefined && onNode === undefined) return loadNode().then(() => protect(c, next));
    const responses = incoming === undefined ? standardResponses : lightResponses();
    const body = new ReadableAgain(c, incoming);
    const admit = (arrival: Arrival): Promise<undefined> => {
      if (arrival.kind === "answer") {
        body.discard();
        settle(c, toResponse(arrival.answer, outerHeaders(c, responses), responses));
        return settled;
      }
      body.putBack();
      if (arrival.kind === "pass") return next() as Promise<undefined>;
      return runHandler(arrival.exchange, next, {
        outer: outerHeaders(c, responses),
        responses,
        // Hono turns an error into a response, through the application's own `onError`, before this comes back.
        answered: () => {
          body.discard();
          return c.res;
        },
        deliver: (response) => settle(c, response),
      });
    };
    const arrival = gate.arrive(
      fetchRequest(c.req.raw, {
        native: c,
        body: (bytesMax) => body.read(bytesMax),
        identity: incoming?.rawHeaders,
      }),
    );
    return isPromiseLike(arrival) ? arrival.then(admit) : admit(arrival);
  };
  return (c, next) => {
    if (!gate.protects(c.req.method)) return next();
    try {
      return protect(c, next);
    } catch (error) {
      return Promise.reject(error);
    }
  };
}

const settled: Promise<undefined> = Promise.resolve(undefined);

/** The handler for `statusPath`: `app.get("/idempotency/:key", statusResource(latchkey))`. */
export function statusResource(latchkey: Latchkey, options: StatusOptions<Context> = {}): Handler {
  return async (c) => {
    const request = fetchRequest(c.req.raw, { native: c, body: async () => ({ kind: "tooLarge" }) });
    const answer = await answerStatus(latchkey, request, options);
    return toResponse(answer, outerHeaders(c, standardResponses));
  };
}

/** Assigning merges the headers of the old response over those of the new one, so the old one has to go first. */
function settle(c: Context, response: Response): undefined {
  c.res = undefined;
  c.res = response;
}

/** What outer middleware has set so far. Hono adds it to what a handler makes, and to nothing else. */
function outerHeaders(c: Context, responses: Responses): Headers | undefined {
  return responses.headersOf(c.newResponse(null));
}

/** What Hono's server for Node makes its request of; undefined elsewhere. */
function incomingOf(c: Context): Incoming | undefined {
  const { incoming } = (c.env ?? {}) as { incoming?: Incoming };
  return incoming?.httpVersionMajor === 1 && typeof incoming.unshift === "function" ? incoming : undefined;
}

/** Loaded when the first request comes that needs it: Hono also runs where there is no Node. */
let onNode: typeof import("./hono-node.ts") | undefined;

async function loadNode(): Promise<void> {
  onNode ??= await import("./hono-node.ts");
}

function lightResponses(): Responses {
  return onNode?.lightResponses ?? standardResponses;
}

/** Reads the body, and puts it back for handlers that read through `c.req` and for those that take `c.req.raw`. */
class ReadableAgain {
  readonly #c: Context;
  readonly #incoming: Incoming | undefined;
  #isLeftAtIncoming = false;
  #bytes: Uint8Array | undefined;

  constructor(c: Context, incoming: Incoming | undefined) {
    this.#c = c;
    this.#incoming = incoming;
  }

  read(bytesMax: number): BodyReading | Promise<BodyReading> {
    const { req } = this.#c;
    const incoming = this.#incoming;
    // What was read through `c.req` before is remembered there, whatever became of the request itself.
    const isRemembered = Object.keys(req.bodyCache).length > 0;
    if (isRemembered || incoming === undefined || onNode === undefined)
      return this.#read(bytesMax, isRemembered);
    if (req.raw.bodyUsed || incoming.readableDidRead || "rawBody" in incoming)
      return this.#read(bytesMax, false);
    this.#isLeftAtIncoming = true;
    return onNode.readIncoming(incoming, bytesMax);
  }

  async #read(bytesMax: number, isRemembered: boolean): Promise<BodyReading> {
    const { req } = this.#c;
    const bytes = isRemembered
      ? new Uint8Array(await req.arrayBuffer())
      : await readFetchBody(req.raw, bytesMax);
    if (bytes === undefined || bytes.byteLength > bytesMax) return { kind: "tooLarge" };
    if (!isRemembered) this.#bytes = bytes;
    return { kind: "body", body: { kind: "bytes", bytes } };
  }

  /** Making a request is not cheap, so it is left to those that get as far as the handler. */
  putBack(): void {
    if (this.#isLeftAtIncoming && this.#incoming !== undefined) onNode?.leaveRawBody(this.#incoming);
    const { req } = this.#c;
    if (this.#bytes !== undefined && req.raw.bodyUsed) req.raw = new Request(req.raw, { body: this.#bytes });
  }

  /** Nobody is going to read it any more. */
  discard(): void {
    if (this.#isLeftAtIncoming && this.#incoming !== undefined) onNode?.discardUnread(this.#incoming);
  }
}
