import type { Context, Handler, MiddlewareHandler } from "hono";
import { fetchRequest, settleResponse, toResponse } from "../http/fetch.ts";
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
    const arrival = await gate.arrive(
      fetchRequest(c.req.raw, { native: c, body: (bytesMax) => readBody(c, bytesMax) }),
    );
    if (arrival.kind === "pass") return next();
    if (arrival.kind === "answer") return toResponse(arrival.answer);
    const { exchange } = arrival;
    const timedOut = new Promise<Response>((resolve) =>
      exchange.onTimeout((answer) => resolve(toResponse(answer))),
    );
    const handled = exchange
      .run(next)
      // Hono has turned an error into a response by now, the application's own `onError` included.
      .then(() => settleResponse(c.res, exchange));
    const response = await Promise.race([handled, timedOut]);
    // Assigning merges the headers of the old response into the new one, so the old one has to go first.
    c.res = undefined;
    c.res = response;
  };
}

/** The handler for `statusPath`: `app.get("/idempotency/:key", statusResource(latchkey))`. */
export function statusResource(
  latchkey: Latchkey,
  options: Pick<RoutePolicy<Context>, "tenant"> = {},
): Handler {
  return async (c) => {
    const request = fetchRequest(c.req.raw, { native: c, body: async () => ({ kind: "tooLarge" }) });
    return toResponse(await answerStatus(latchkey, request, options.tenant));
  };
}

/** Hono remembers what was read through `c.req`, so that the handler can read it again in any form. */
async function readBody(c: Context, bytesMax: number): Promise<BodyReading> {
  if (Number(c.req.header("content-length")) > bytesMax) return { kind: "tooLarge" };
  const bytes = new Uint8Array(await c.req.arrayBuffer());
  if (bytes.byteLength > bytesMax) return { kind: "tooLarge" };
  return { kind: "body", body: { kind: "bytes", bytes } };
}
