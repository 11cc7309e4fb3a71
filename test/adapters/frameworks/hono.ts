import type { Server } from "node:http";
import { serve } from "@hono/node-server";
import { type Context, Hono, type MiddlewareHandler } from "hono";
import { HTTPException } from "hono/http-exception";
import { stream } from "hono/streaming";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { idempotent, statusResource } from "../../../src/adapters/hono.ts";
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
import { webStream } from "./fetch.ts";

export const hono: Framework = {
  name: "hono",
  kind: "hono",
  parserFirst: false,
  async start(application) {
    const { latchkey, mount, routes } = application;
    const app = new Hono();
    const protection = (): MiddlewareHandler =>
      idempotent(latchkey, { ...application.policy, ...callers(application) });
    if (mount === "application" || mount === "both") app.use("*", protection());
    if (latchkey.statusPath !== undefined) {
      app.get(`${latchkey.statusPath}/:key`, statusResource(latchkey, callers(application)));
    }
    for (const [path, handler] of Object.entries(routes)) {
      if (mount === "route" || mount === "both") app.on([...methods], path, protection());
      app.on([...methods], path, handlerOf(handler, application.parse));
    }
    app.onError((error, c) => {
      if (error instanceof HTTPException) return c.json({ error: error.message }, error.status);
      const { status, body } = errorBody(error);
      return c.json(body, status as ContentfulStatusCode);
    });
    return new Promise((resolve) => {
      const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, () =>
        resolve(server as Server),
      );
    });
  },
};

function callers(application: Application) {
  return callersOf(application, (c: Context, name) => c.req.header(name));
}

function handlerOf(handler: Handler, parse: boolean) {
  return (c: Context): Response | Promise<Response> => {
    const reply = handler({
      method: c.req.method,
      path: c.req.path,
      header: (name) => c.req.header(name),
      body: async () => {
        const type = parse ? (c.req.header("content-type") ?? "") : "";
        if (type.startsWith("application/json")) return c.req.json();
        if (type.startsWith("application/x-www-form-urlencoded")) return c.req.parseBody();
        return Buffer.from(await c.req.arrayBuffer());
      },
    });
    return reply instanceof Promise ? reply.then((it) => give(c, it)) : give(c, reply);
  };
}

function give(c: Context, reply: Reply): Response {
  switch (reply.kind) {
    case "json":
      head(c, reply);
      return c.json(reply.value as object);
    case "text":
      head(c, reply);
      return c.text(reply.text);
    case "bytes":
      head(c, reply);
      return c.body(new Uint8Array(reply.bytes), { headers: { "content-type": "application/octet-stream" } });
    case "empty":
      head(c, reply);
      return c.body(null);
    case "pieces":
      head(c, reply);
      return stream(c, async (out) => {
        for (const piece of reply.pieces) await out.write(piece);
      });
    case "stream":
      head(c, reply);
      return c.body(webStream(reply.source) as ReadableStream);
    case "fail":
      throw new HTTPException(reply.status as ContentfulStatusCode, { message: reply.message });
    case "twice":
      throw new Error("a function that returns its answer cannot answer twice");
    default:
      return reply satisfies never;
  }
}

function head(c: Context, reply: { readonly status: number; readonly fields: Fields }): void {
  c.status(reply.status as ContentfulStatusCode);
  for (const [name, value] of reply.fields) c.header(name, value, { append: true });
}
