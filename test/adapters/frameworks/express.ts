import { createServer, type RequestListener } from "node:http";
import { pipeline, Readable } from "node:stream";
import express5, {
  type ErrorRequestHandler,
  type NextFunction,
  type Request,
  type RequestHandler,
  type Response,
} from "express";
import { idempotent, statusResource } from "../../../src/adapters/express.ts";
import {
  type Application,
  callersOf,
  errorBody,
  type Fields,
  type Framework,
  type Handler,
  listening,
  methods,
  type Reply,
} from "../application.ts";
import { isParsed, readBytes, writePieces } from "./node-answers.ts";

/** Express 4 and 5 have the same interface as far as these applications use it; the types are those of 5. */
export type Express = typeof express5;

// There are no types under the alias, and those of Express 5 describe all that is used here.
export const express4 = ((await import("express4" as string)) as { default: Express }).default;

export { express5 };

export const expressVersions: readonly Framework[] = [
  framework("express 5, Latchkey before the parser", express5, "latchkey first"),
  framework("express 5, Latchkey after the parser", express5, "parser first"),
  framework("express 4, Latchkey before the parser", express4, "latchkey first"),
  framework("express 4, Latchkey after the parser", express4, "parser first"),
];

type Order = "latchkey first" | "parser first";

function framework(name: string, express: Express, order: Order): Framework {
  return {
    name,
    kind: "express",
    parserFirst: order === "parser first",
    async start(application) {
      const { latchkey, mount, routes } = application;
      const app = express();
      app.disable("x-powered-by");
      const parsers: RequestHandler[] = application.parse
        ? [
            express.json({ limit: "4mb" }),
            express.urlencoded({ extended: false, limit: "4mb" }),
            express.raw({ limit: "4mb", type: "application/octet-stream" }),
          ]
        : [];
      const inOrder = (protection: RequestHandler[]) =>
        order === "parser first" ? [...parsers, ...protection] : [...protection, ...parsers];
      const protection = () => idempotent(latchkey, { ...application.policy, ...callers(application) });

      const onApplication = mount === "application" || mount === "both";
      for (const middleware of onApplication ? inOrder([protection()]) : []) app.use(middleware);
      if (latchkey.statusPath !== undefined) {
        app.get(`${latchkey.statusPath}/:key`, statusResource(latchkey, callers(application)));
      }
      for (const [path, handler] of Object.entries(routes)) {
        const onRoute = mount === "route" || mount === "both" ? [protection()] : [];
        const chain = onApplication ? onRoute : inOrder(onRoute);
        for (const method of methods) {
          app[method.toLowerCase() as "post"](path, ...chain, handlerOf(handler, application.parse));
        }
      }
      const onError: ErrorRequestHandler = (error, _req, res, next) => {
        if (res.headersSent) return next(error);
        const { status, body } = errorBody(error);
        res.status(status).json(body);
      };
      app.use(onError);
      return listening(createServer(app as RequestListener));
    },
  };
}

function callers(application: Application) {
  return callersOf(application, (req: Request, name) => req.get(name));
}

function handlerOf(handler: Handler, parse: boolean): RequestHandler {
  return (req, res, next) => {
    const reply = handler({
      method: req.method,
      path: req.path,
      header: (name) => req.get(name),
      body: async () => (parse && isParsed(req.get("content-type")) ? req.body : readBytes(req)),
    });
    // What Express 4 needs from every asynchronous handler, and Express 5 does not mind.
    if (reply instanceof Promise) reply.then((it) => give(res, next, it)).catch(next);
    else give(res, next, reply);
  };
}

function give(res: Response, next: NextFunction, reply: Reply): void {
  switch (reply.kind) {
    case "json":
      head(res, reply).json(reply.value);
      return;
    case "text":
      head(res, reply).type("text/plain").send(reply.text);
      return;
    case "bytes":
      head(res, reply).type("application/octet-stream").send(Buffer.from(reply.bytes));
      return;
    case "empty":
      res.status(reply.status).end();
      return;
    case "pieces":
      writePieces(res, reply.status, reply.fields, reply.pieces);
      return;
    case "stream":
      pipeline(Readable.from(reply.source(), { objectMode: false }), head(res, reply), (error) => {
        if (error) next(error);
      });
      return;
    case "fail":
      next(Object.assign(new Error(reply.message), { status: reply.status }));
      return;
    case "twice":
      give(res, next, reply.first);
      give(res, next, reply.second);
      return;
    default:
      reply satisfies never;
  }
}

function head(res: Response, reply: { readonly status: number; readonly fields: Fields }): Response {
  res.status(reply.status);
  for (const [name, value] of reply.fields) res.append(name, value);
  return res;
}
