import type { IncomingMessage } from "node:http";
import type { Context, Handler, MiddlewareHandler } from "hono";
import { fetchRequest, readFetchBody, runFetchHandler, toResponse } from "../http/fetch.ts";
import { Gate, type RoutePolicy } from "../http/gate.ts";
import type { BodyReading } from "../http/request.ts";
import { answerStatus } from "../http/status.ts";
import type { Latchkey } from "../latchkey.ts";

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
  return async (c, next) => {
    if (!gate.protects(c.req.method)) return next();
    const body = new ReadableAgain(c);
    const arrival = await gate.arrive(
      fetchRequest(c.req.raw, { native: c, body: (bytesMax) => body.read(bytesMax) }),
    );
    if (arrival.kind === "answer") return settle(c, toResponse(arrival.answer, outerHeaders(c)));
    body.putBack();
    if (arrival.kind === "pass") return next();
    const handler = async () => {
      // Hono turns an error into a response, through the application's own `onError`, before this comes back.
      await next();
      return c.res;
    };
    settle(c, await runFetchHandler(arrival.exchange, handler, outerHeaders(c)));
  };
}

/** The handler for `statusPath`: `app.get("/idempotency/:key", statusResource(latchkey))`. */
export function statusResource(
  latchkey: Latchkey,
  options: Pick<RoutePolicy<Context>, "tenant"> = {},
): Handler {
  return async (c) => {
    const request = fetchRequest(c.req.raw, { native: c, body: async () => ({ kind: "tooLarge" }) });
    return toResponse(await answerStatus(latchkey, request, options.tenant), outerHeaders(c));
  };
}

/** Assigning merges the headers of the old response over those of the new one, so the old one has to go first. */
function settle(c: Context, response: Response): void {
  c.res = undefined;
  c.res = response;
}

/** What outer middleware has set so far. Hono adds it to what a handler makes, and to nothing else. */
function outerHeaders(c: Context): Headers {
  return c.newResponse(null).headers;
}

type Incoming = IncomingMessage & { rawBody?: Uint8Array };

/** What Hono's server for Node makes its request of, if nobody has touched the body. */
function unreadIncoming(c: Context): Incoming | undefined {
  const { incoming } = (c.env ?? {}) as { incoming?: Incoming };
  if (incoming?.httpVersionMajor !== 1 || typeof incoming.unshift !== "function") return undefined;
  return incoming.readableDidRead || "rawBody" in incoming ? undefined : incoming;
}

/** Loaded when the first request comes that needs it: Hono also runs where there is no Node. */
let nodeRequests: typeof import("../http/node-request.ts") | undefined;

/** That server takes a body from here if it is there, which saves making a second request with the body of the first. */
async function readIncoming(incoming: Incoming, bytesMax: number): Promise<BodyReading> {
  nodeRequests ??= await import("../http/node-request.ts");
  const reading = await nodeRequests.readNodeBody(incoming, bytesMax);
  if (reading.kind === "body" && reading.body.kind === "bytes" && reading.body.bytes.byteLength > 0) {
    const { buffer, byteOffset, byteLength } = reading.body.bytes;
    incoming.rawBody = Buffer.from(buffer, byteOffset, byteLength);
  }
  return reading;
}

/** Reads the body, and puts it back for handlers that read through `c.req` and for those that take `c.req.raw`. */
class ReadableAgain {
  readonly #c: Context;
  #bytes: Uint8Array | undefined;

  constructor(c: Context) {
    this.#c = c;
  }

  async read(bytesMax: number): Promise<BodyReading> {
    const { req } = this.#c;
    // What was read through `c.req` before is remembered there, whatever became of the request itself.
    const isRemembered = Object.keys(req.bodyCache).length > 0;
    const incoming = isRemembered || req.raw.bodyUsed ? undefined : unreadIncoming(this.#c);
    if (incoming !== undefined) return readIncoming(incoming, bytesMax);
    const bytes = isRemembered
      ? new Uint8Array(await req.arrayBuffer())
      : await readFetchBody(req.raw, bytesMax);
    if (bytes === undefined || bytes.byteLength > bytesMax) return { kind: "tooLarge" };
    if (!isRemembered) this.#bytes = bytes;
    return { kind: "body", body: { kind: "bytes", bytes } };
  }

  /** Making a request is not cheap, so it is left to those that get as far as the handler. */
  putBack(): void {
    const { req } = this.#c;
    if (this.#bytes !== undefined && req.raw.bodyUsed) req.raw = new Request(req.raw, { body: this.#bytes });
  }
}
