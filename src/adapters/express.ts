import type { Request, RequestHandler } from "express";
import { isPromiseLike } from "../core/when-known.ts";
import { type Arrival, Gate, type RoutePolicy } from "../http/gate.ts";
import { nodeRequest } from "../http/node-request.ts";
import { captureNodeResponse, writeNodeAnswer } from "../http/node-response.ts";
import { peek } from "../http/peek.ts";
import { answerStatus, type StatusOptions } from "../http/status.ts";
import type { Latchkey } from "../latchkey.ts";

/**
 * Middleware for Express 4 and 5, for one route or for all of them, before or after the body parser.
 *
 * @example
 * ```ts
 * app.post("/charges", express.json(), idempotent(latchkey), async (req, res) => {
 *   res.status(201).json(await charge(req.body));
 * });
 * ```
 */
export function idempotent(latchkey: Latchkey, policy?: RoutePolicy<Request>): RequestHandler {
  const gate = new Gate(latchkey, policy);
  return (req, res, next) => {
    if (!gate.protects(peek(req, "method"))) return next();
    const admit = (arrival: Arrival) => {
      if (arrival.kind === "pass") return next();
      if (arrival.kind === "answer") return writeNodeAnswer(res, arrival.answer);
      if (captureNodeResponse(res, arrival.exchange) !== undefined) arrival.exchange.run(next);
    };
    // Express 4 does not look at a returned promise, so every path ends in a call of `next` or an answer.
    const arrival = gate.arrive(nodeRequest(req, req));
    if (isPromiseLike(arrival)) arrival.then(admit, next);
    else admit(arrival);
  };
}

/** Mount it at `statusPath`: `app.get("/idempotency/:key", statusResource(latchkey))`. */
export function statusResource(latchkey: Latchkey, options: StatusOptions<Request> = {}): RequestHandler {
  return (req, res, next) => {
    answerStatus(latchkey, nodeRequest(req, req), options).then(
      (answer) => writeNodeAnswer(res, answer),
      next,
    );
  };
}
