import { Readable } from "node:stream";
import type {
  FastifyInstance,
  FastifyPluginCallback,
  FastifyReply,
  FastifyRequest,
  preHandlerHookHandler,
  preParsingHookHandler,
  RouteHandlerMethod,
} from "fastify";
import { isPromiseLike } from "../core/when-known.ts";
import { type HttpAnswer, headersByName } from "../http/answer.ts";
import { type Arrival, Gate, type RoutePolicy } from "../http/gate.ts";
import type { HandlerEnd } from "../http/handler-end.ts";
import { tapNodeBody } from "../http/node-body-tap.ts";
import { bufferNodeBody, nodeRequest } from "../http/node-request.ts";
import { captureNodeResponse } from "../http/node-response.ts";
import { answerStatus, type StatusOptions } from "../http/status.ts";
import type { Latchkey } from "../latchkey.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** `false` leaves this route alone; an object overrides the policy for it. */
    idempotency?: boolean | RoutePolicy<FastifyRequest>;
  }
}

/**
 * A plugin: every route that is registered after it in the same context is protected, and a route's
 * `config.idempotency` changes its policy or switches it off.
 *
 * @example
 * ```ts
 * await app.register(idempotent(latchkey));
 * app.post("/charges", { config: { idempotency: { onInFlight: "wait" } } }, async (request, reply) => {
 *   reply.code(201);
 *   return charge(request.body);
 * });
 * ```
 */
export function idempotent(
  latchkey: Latchkey,
  policy: RoutePolicy<FastifyRequest> = {},
): FastifyPluginCallback {
  // A policy that cannot be kept fails here, not when the server starts.
  new Gate(latchkey, policy);
  const plugin: FastifyPluginCallback = (app, _options, done) => {
    app.addHook("onRoute", (route) => {
      const choice = route.config?.idempotency;
      if (choice === false) return;
      const gate = new Gate(latchkey, typeof choice === "object" ? { ...policy, ...choice } : policy);
      const methods = Array.isArray(route.method) ? route.method : [route.method];
      if (!methods.some((method) => gate.protects(method))) return;
      // The body is kept on its way to Fastify's parser, and the request is let in only after it was validated and
      // after the route's own hooks, which are where callers are authenticated.
      route.preParsing = [...listOf(route.preParsing), bufferBody(gate)];
      route.preHandler = [...listOf(route.preHandler), letIn(gate)];
      route.handler = tellingItsEnd(route.handler);
    });
    done();
  };
  return Object.assign(plugin, {
    // Hooks belong to the context that registers the plugin, not to one of its own.
    [Symbol.for("skip-override")]: true,
    [Symbol.for("fastify.display-name")]: "latchkey",
  });
}

/** The handler for `statusPath`: `app.get("/idempotency/:key", statusResource(latchkey))`. */
export function statusResource(
  latchkey: Latchkey,
  options: StatusOptions<FastifyRequest> = {},
): RouteHandlerMethod {
  return async (request, reply) =>
    send(reply, await answerStatus(latchkey, nodeRequest(request.raw, request), options));
}

function bufferBody(gate: Gate<FastifyRequest>): preParsingHookHandler {
  return (request, reply, payload, done) => {
    if (!gate.protects(request.method) || request.headers["idempotency-key"] === undefined) {
      done(null, payload);
      return;
    }
    const { requestBytesMax } = gate.policy;
    if (tapNodeBody(request.raw, payload as Readable, requestBytesMax)) {
      done(null, payload);
      return;
    }
    // Another hook may have replaced the stream, to decompress it for instance: what Fastify parses is what counts.
    bufferNodeBody(request.raw, payload as Readable, requestBytesMax).then((reading) => {
      if (reading.kind === "body") done(null, payload);
      else send(reply, gate.tooLarge(nodeRequest(request.raw, request)));
    }, done);
  };
}

function letIn(gate: Gate<FastifyRequest>): preHandlerHookHandler {
  return (request, reply, done) => {
    const admit = (arrival: Arrival) => {
      if (arrival.kind === "pass") done();
      else if (arrival.kind === "answer") send(reply, arrival.answer);
      else if (captureNodeResponse(reply.raw, arrival.exchange) !== undefined) {
        (request as Executed)[endOf] = arrival.exchange.end;
        arrival.exchange.runWatched(done, "framework");
      }
    };
    const arrival = gate.arrive(nodeRequest(request.raw, request));
    if (isPromiseLike(arrival)) arrival.then(admit, done);
    else admit(arrival);
  };
}

const endOf = Symbol("latchkey.end");

interface Executed extends FastifyRequest {
  [endOf]?: HandlerEnd;
}

/**
 * A handler that gives its answer, or a promise, and does not only hand it to the reply, is over when that is there. Other
 * plugins may wrap it, look at it, or call it in their own way.
 */
function tellingItsEnd(handler: RouteHandlerMethod): RouteHandlerMethod {
  // Fastify says what is wrong with it.
  if (typeof handler !== "function") return handler;
  const telling = function (this: FastifyInstance, ...args: Parameters<RouteHandlerMethod>) {
    const end = (args[0] as Executed)[endOf];
    if (end === undefined) return handler.apply(this, args);
    const given = end.watch(() => handler.apply(this, args));
    if (given !== undefined && !isPromiseLike(given)) end.returned();
    return given;
  };
  const { name, length } = handler;
  return Object.defineProperties(Object.assign(telling, handler), {
    name: { value: name },
    length: { value: length },
  });
}

function send(reply: FastifyReply, answer: HttpAnswer): FastifyReply {
  reply.code(answer.status);
  for (const [name, value] of headersByName(answer.headers)) reply.header(name, value);
  if (answer.body.byteLength === 0) return reply.send();
  const body = Buffer.from(answer.body);
  if (reply.hasHeader("content-type")) return reply.send(body);
  // Fastify gives every buffer a type, and what was stored has none. A stream is sent as it is.
  return reply.header("content-length", body.byteLength).send(Readable.from([body]));
}

function listOf<Hook>(hooks: Hook | readonly Hook[] | undefined): readonly Hook[] {
  return hooks === undefined ? [] : Array.isArray(hooks) ? hooks : [hooks as Hook];
}
