import { Readable } from "node:stream";
import createFastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { idempotent, statusResource } from "../../../src/adapters/fastify.ts";
import {
  type Application,
  callersOf,
  errorBody,
  type Fields,
  type Framework,
  type Handler,
  methods,
  type Reply,
} from "../application.ts";
import { parsed, writePieces } from "./node-answers.ts";

export const fastify: Framework = {
  name: "fastify",
  kind: "fastify",
  parserFirst: false,
  async start(application) {
    const app = await fastifyApp(application);
    await app.listen({ port: 0, host: "127.0.0.1" });
    return app.server;
  },
};

/** The application without a socket, for what Fastify can do beside listening. */
export async function fastifyApp(application: Application): Promise<FastifyInstance> {
  const { latchkey, mount, routes } = application;
  // Larger than what Latchkey lets in, so that its answer is the one that is tested.
  const app = createFastify({ bodyLimit: 4 * 1024 * 1024, forceCloseConnections: true });
  addParsers(app, application.parse);
  app.setErrorHandler((error, _request, reply) => {
    const { status, body } = errorBody(error);
    reply.code(status).send(body);
  });
  const protect = async (context: FastifyInstance) => {
    await context.register(idempotent(latchkey, { ...application.policy, ...callers(application) }));
  };
  if (mount === "application" || mount === "both") await protect(app);
  if (latchkey.statusPath !== undefined) {
    app.get(`${latchkey.statusPath}/:key`, statusResource(latchkey, callers(application)));
  }
  // A plugin's context is what Fastify has in place of middleware on some routes.
  await app.register(async (context) => {
    if (mount === "route" || mount === "both") await protect(context);
    for (const [url, handler] of Object.entries(routes)) {
      context.route({ method: [...methods], url, exposeHeadRoute: false, handler: handlerOf(handler) });
    }
  });
  return app;
}

function addParsers(app: FastifyInstance, parse: boolean): void {
  if (parse) {
    app.addContentTypeParser(
      "application/x-www-form-urlencoded",
      { parseAs: "buffer" },
      (request, body, done) => done(null, parsed(body as Buffer, request.headers["content-type"])),
    );
  } else {
    app.removeAllContentTypeParsers();
  }
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
}

function callers(application: Application) {
  return callersOf(
    application,
    (request: FastifyRequest, name) => request.headers[name] as string | undefined,
  );
}

function handlerOf(handler: Handler) {
  return (request: FastifyRequest, reply: FastifyReply) => {
    const answer = handler({
      method: request.method,
      path: request.url,
      header: (name) => request.headers[name] as string | undefined,
      body: async () => request.body,
    });
    return answer instanceof Promise ? answer.then((it) => give(reply, it)) : give(reply, answer);
  };
}

function give(reply: FastifyReply, answer: Reply): FastifyReply {
  switch (answer.kind) {
    case "json":
      return head(reply, answer).send(answer.value);
    case "text":
      return head(reply, answer).type("text/plain; charset=utf-8").send(answer.text);
    case "bytes":
      return head(reply, answer).type("application/octet-stream").send(Buffer.from(answer.bytes));
    case "empty":
      return reply.code(answer.status).send();
    case "pieces":
      reply.hijack();
      writePieces(reply.raw, answer.status, answer.fields, answer.pieces);
      return reply;
    case "stream":
      return head(reply, answer).send(Readable.from(answer.source(), { objectMode: false }));
    case "fail":
      throw Object.assign(new Error(answer.message), { statusCode: answer.status });
    case "twice":
      give(reply, answer.first);
      return give(reply, answer.second);
    default:
      return answer satisfies never;
  }
}

function head(reply: FastifyReply, answer: { readonly status: number; readonly fields: Fields }) {
  reply.code(answer.status);
  for (const [name, value] of answer.fields) {
    // Fastify collects cookies by itself.
    const before = name === "set-cookie" ? undefined : (reply.getHeader(name) as string | undefined);
    reply.header(name, before === undefined ? value : [before, value].flat());
  }
  return reply;
}
