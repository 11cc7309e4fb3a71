import type { Context, Middleware } from "koa";
import { type HttpAnswer, headersByName } from "../http/answer.ts";
import { Gate, type RoutePolicy } from "../http/gate.ts";
import { nodeRequest } from "../http/node-request.ts";
import { captureNodeResponse } from "../http/node-response.ts";
import { answerStatus, type StatusOptions } from "../http/status.ts";
import type { Latchkey } from "../latchkey.ts";

/**
 * Middleware for Koa, for one route or for all of them, before or after the body parser.
 *
 * @example
 * ```ts
 * app.use(idempotent(latchkey));
 * router.post("/charges", async (ctx) => {
 *   ctx.status = 201;
 *   ctx.body = await charge(ctx.request.body);
 * });
 * ```
 */
export function idempotent(latchkey: Latchkey, policy?: RoutePolicy<Context>): Middleware {
  const gate = new Gate(latchkey, policy);
  return async (ctx, next) => {
    if (!gate.protects(ctx.method)) return next();
    const arrival = await gate.arrive(koaRequest(ctx));
    if (arrival.kind === "pass") return next();
    if (arrival.kind === "answer") return answer(ctx, arrival.answer);
    // Koa answers when all middleware is done; who answers earlier has given up on it.
    let isRunning = true;
    const { exchange } = arrival;
    if (captureNodeResponse(ctx.res, exchange, () => isRunning) === undefined) return;
    try {
      await exchange.runWatched(() => exchange.end.watch(next), "framework");
    } finally {
      isRunning = false;
    }
  };
}

/** Middleware for `statusPath`. */
export function statusResource(latchkey: Latchkey, options: StatusOptions<Context> = {}): Middleware {
  return async (ctx) => answer(ctx, await answerStatus(latchkey, koaRequest(ctx), options));
}

/** Koa's body parsers leave what they read on `ctx.request`, where the Node request does not have it. */
function koaRequest(ctx: Context) {
  const request = ctx.request as { body?: unknown; rawBody?: unknown };
  const req = ctx.req as { body?: unknown; rawBody?: unknown };
  req.body ??= request.body;
  req.rawBody ??= request.rawBody;
  (ctx.req as { originalUrl?: string }).originalUrl ??= ctx.originalUrl;
  return nodeRequest(ctx.req, ctx);
}

function answer(ctx: Context, given: HttpAnswer): void {
  ctx.status = given.status;
  ctx.body = Buffer.from(given.body);
  // Koa guesses a type from the body; what was stored is what counts.
  ctx.remove("content-type");
  for (const [name, value] of headersByName(given.headers)) ctx.set(name, value);
}
