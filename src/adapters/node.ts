import type { IncomingMessage, ServerResponse } from "node:http";
import { Gate, type RoutePolicy } from "../http/gate.ts";
import { nodeRequest } from "../http/node-request.ts";
import { captureNodeResponse, writeNodeAnswer } from "../http/node-response.ts";
import { answerStatus, type StatusOptions } from "../http/status.ts";
import type { Latchkey } from "../latchkey.ts";

/** What `http.createServer` takes; it may return a promise. */
export type NodeHandler = (req: IncomingMessage, res: ServerResponse) => unknown;

/**
 * Makes the handlers of a plain `node:http` server idempotent.
 *
 * @example
 * ```ts
 * const protect = idempotent(latchkey);
 * createServer(protect(async (req, res) => res.writeHead(201).end(await charge(req)))).listen(8787);
 * ```
 */
export function idempotent(
  latchkey: Latchkey,
  policy?: RoutePolicy<IncomingMessage>,
): (handler: NodeHandler) => (req: IncomingMessage, res: ServerResponse) => Promise<void> {
  const gate = new Gate(latchkey, policy);
  return (handler) => async (req, res) => {
    if (!gate.protects(req.method ?? "")) {
      await handler(req, res);
      return;
    }
    const arrival = await gate.arriveOrFail(nodeRequest(req, req));
    if (arrival.kind === "pass") {
      await handler(req, res);
      return;
    }
    if (arrival.kind === "answer") return writeNodeAnswer(res, arrival.answer);
    const { exchange } = arrival;
    const capture = captureNodeResponse(res, exchange);
    if (capture === undefined) return;
    try {
      await exchange.runWatched(() => exchange.end.watch(() => handler(req, res)), "itself");
    } catch (error) {
      // With an answer already given, the answer counts. Without one, nobody else would give it.
      if (capture.ended) exchange.failedLate(error);
      else capture.replace((await exchange.fail(error)).answer);
    }
  };
}

/** The handler for `statusPath`: what became of a request that was answered 202. */
export function statusResource(
  latchkey: Latchkey,
  options: StatusOptions<IncomingMessage> = {},
): (req: IncomingMessage, res: ServerResponse) => Promise<void> {
  const gate = new Gate<IncomingMessage>(latchkey);
  return async (req, res) => {
    // No framework answers for an error here, and a rejection that nobody handles would end the process.
    const answering = answerStatus(latchkey, nodeRequest(req, req), options);
    writeNodeAnswer(res, await answering.catch((error) => gate.failureAnswer(error)));
  };
}
