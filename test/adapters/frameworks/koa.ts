import { createServer } from "node:http";
import { Readable } from "node:stream";
import Koa, { type Context, type Middleware } from "koa";
import { idempotent, statusResource } from "../../../src/adapters/koa.ts";
import {
  type Application,
  callersOf,
  errorBody,
  type Fields,
  type Framework,
  type Handler,
  listening,
  type Reply,
} from "../application.ts";
import { isParsed, parsed, readBytes, writePieces, writeReply } from "./node-answers.ts";

export const koaOrders: readonly Framework[] = [
  framework("koa, Latchkey before the parser", "latchkey first"),
  framework("koa, Latchkey after the parser", "parser first"),
];

type Order = "latchkey first" | "parser first";

function framework(name: string, order: Order): Framework {
  return {
    name,
    kind: "koa",
    parserFirst: order === "parser first",
    async start(application) {
      const { latchkey, mount, routes } = application;
      const app = new Koa();
      app.silent = true;
      app.use(renderErrors);
      const parser = application.parse ? [parseBody] : [];
      const protection = () => idempotent(latchkey, { ...application.policy, ...callers(application) });
      const inOrder = (middleware: Middleware[]) =>
        order === "parser first" ? [...parser, ...middleware] : [...middleware, ...parser];

      const onApplication = mount === "application" || mount === "both";
      for (const middleware of onApplication ? inOrder([protection()]) : []) app.use(middleware);
      if (latchkey.statusPath !== undefined)
        app.use(below(latchkey.statusPath, statusResource(latchkey, callers(application))));
      for (const [path, handler] of Object.entries(routes)) {
        const onRoute = mount === "route" || mount === "both" ? [protection()] : [];
        for (const middleware of onApplication ? onRoute : inOrder(onRoute)) app.use(at(path, middleware));
        app.use(at(path, handlerOf(handler, application.parse)));
      }
      const callback = app.callback();
      return listening(createServer((req, res) => void callback(req, res)));
    },
  };
}

/** What a router does, for one path. */
function at(path: string, middleware: Middleware): Middleware {
  return (ctx, next) => (ctx.path === path ? middleware(ctx, next) : next());
}

function below(path: string, middleware: Middleware): Middleware {
  return (ctx, next) => (ctx.path.startsWith(`${path}/`) ? middleware(ctx, next) : next());
}

/** What Koa applications have outermost, to answer errors in their own way. */
const renderErrors: Middleware = async (ctx, next) => {
  try {
    await next();
  } catch (error) {
    const { status, body } = errorBody(error);
    ctx.status = status;
    ctx.body = body;
  }
};

/** Leaves what it read where all of Koa's parsers do. */
const parseBody: Middleware = async (ctx, next) => {
  if (isParsed(ctx.get("content-type"))) {
    const bytes = await readBytes(ctx.req);
    (ctx.request as { body?: unknown }).body = parsed(bytes, ctx.get("content-type"));
  }
  await next();
};

function callers(application: Application) {
  return callersOf(application, (ctx: Context, name) => ctx.get(name) || undefined);
}

function handlerOf(handler: Handler, parse: boolean): Middleware {
  return (ctx) => {
    const reply = handler({
      method: ctx.method,
      path: ctx.path,
      header: (name) => ctx.get(name) || undefined,
      body: async () =>
        parse && isParsed(ctx.get("content-type"))
          ? (ctx.request as { body?: unknown }).body
          : readBytes(ctx.req),
    });
    return reply instanceof Promise ? reply.then((it) => give(ctx, it)) : give(ctx, reply);
  };
}

function give(ctx: Context, reply: Reply): void {
  switch (reply.kind) {
    case "json":
      head(ctx, reply);
      ctx.body = reply.value;
      return;
    case "text":
      head(ctx, reply);
      ctx.body = reply.text;
      return;
    case "bytes":
      head(ctx, reply);
      ctx.body = Buffer.from(reply.bytes);
      return;
    case "empty":
      ctx.status = reply.status;
      if (reply.status !== 204) ctx.body = "";
      return;
    case "pieces":
      ctx.respond = false;
      writePieces(ctx.res, reply.status, reply.fields, reply.pieces);
      return;
    case "stream":
      head(ctx, reply);
      ctx.body = Readable.from(reply.source(), { objectMode: false });
      return;
    case "fail":
      ctx.throw(reply.status, reply.message);
      return;
    case "twice":
      ctx.respond = false;
      void writeReply(ctx.res, reply);
      return;
    default:
      reply satisfies never;
  }
}

function head(ctx: Context, reply: { readonly status: number; readonly fields: Fields }): void {
  ctx.status = reply.status;
  for (const [name, value] of reply.fields) ctx.append(name, value);
}
