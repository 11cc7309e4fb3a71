import { createServer, type RequestListener } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ReadableStream } from "node:stream/web";
import { type FetchHandler, idempotent, statusResource } from "../../../src/adapters/fetch.ts";
import {
  type Application,
  callersOf,
  type Fields,
  type Framework,
  type Handler,
  listening,
  type Piece,
  type Reply,
} from "../application.ts";
import { parsed } from "./node-answers.ts";

type Fetch = (request: Request) => Response | Promise<Response>;

export const fetch: Framework = {
  name: "fetch",
  kind: "fetch",
  parserFirst: false,
  async start(application) {
    const { latchkey, mount, routes } = application;
    const protect = idempotent(latchkey, { ...application.policy, ...callers(application) });
    const onRoute = mount === "route" || mount === "both";
    const handlers = new Map<string, Fetch>();
    for (const [path, handler] of Object.entries(routes)) {
      const plain = handlerOf(handler, application.parse);
      handlers.set(path, onRoute ? protect(plain) : plain);
    }
    const status = statusResource(latchkey, callers(application));
    const route: Fetch = (request) => {
      const { pathname } = new URL(request.url);
      if (latchkey.statusPath !== undefined && pathname.startsWith(`${latchkey.statusPath}/`)) {
        return status(request);
      }
      return handlers.get(pathname)?.(request) ?? new Response(null, { status: 404 });
    };
    const whole = mount === "application" || mount === "both" ? protect(route) : route;
    return listening(createServer(bridge(whole)));
  },
};

function callers(application: Application) {
  return callersOf(application, (request: Request, name) => request.headers.get(name) ?? undefined);
}

function handlerOf(handler: Handler, parse: boolean): FetchHandler<[]> {
  return (request) => {
    const reply = handler({
      method: request.method,
      path: new URL(request.url).pathname,
      header: (name) => request.headers.get(name) ?? undefined,
      body: async () => {
        const bytes = Buffer.from(await request.arrayBuffer());
        return parse ? parsed(bytes, request.headers.get("content-type") ?? undefined) : bytes;
      },
    });
    return reply instanceof Promise ? reply.then(responseOf) : responseOf(reply);
  };
}

/** A reply as a web-standard response. */
export function responseOf(reply: Reply): Response {
  switch (reply.kind) {
    case "json":
      return new Response(JSON.stringify(reply.value), init(reply, "application/json"));
    case "text":
      return new Response(reply.text, init(reply, "text/plain; charset=utf-8"));
    case "bytes":
      return new Response(new Uint8Array(reply.bytes), init(reply, "application/octet-stream"));
    case "empty":
      return new Response(null, { status: reply.status });
    case "pieces":
      return new Response(
        webStream(() => Readable.from(reply.pieces)),
        init(reply),
      );
    case "stream":
      return new Response(webStream(reply.source), init(reply));
    case "fail":
      throw Object.assign(new Error(reply.message), { status: reply.status });
    case "twice":
      throw new Error("a function that returns its answer cannot answer twice");
    default:
      return reply satisfies never;
  }
}

export function webStream(source: () => AsyncIterable<Piece>): ReadableStream<Uint8Array> {
  const iterator = source()[Symbol.asyncIterator]();
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(typeof value === "string" ? encoder.encode(value) : new Uint8Array(value));
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}

function init(head: { readonly status: number; readonly fields: Fields }, type?: string): ResponseInit {
  const headers = new Headers(type === undefined ? {} : { "content-type": type });
  for (const [name, value] of head.fields) headers.append(name, value);
  return { status: head.status, headers };
}

/** The smallest server that a web-standard function can run on. It has no error page but an empty 500. */
function bridge(fetch: Fetch): RequestListener {
  return async (req, res) => {
    const headers = new Headers();
    for (let index = 0; index < req.rawHeaders.length; index += 2) {
      headers.append(String(req.rawHeaders[index]), String(req.rawHeaders[index + 1]));
    }
    const hasBody =
      req.headers["transfer-encoding"] !== undefined || Number(req.headers["content-length"]) > 0;
    const request = new Request(new URL(req.url ?? "/", `http://${req.headers.host}`), {
      method: req.method ?? "GET",
      headers,
      ...(hasBody ? { body: Readable.toWeb(req) as ReadableStream, duplex: "half" } : {}),
    });
    try {
      const response = await fetch(request);
      const cookies = response.headers.getSetCookie();
      res.writeHead(response.status, {
        ...Object.fromEntries(response.headers),
        ...(cookies.length > 0 ? { "set-cookie": cookies } : {}),
      });
      if (response.body === null) res.end();
      else await pipeline(Readable.fromWeb(response.body as ReadableStream), res);
    } catch {
      if (res.headersSent) res.destroy();
      else res.writeHead(500).end();
    } finally {
      // What the function did not read must not stand in the way of the next request on this connection.
      req.removeAllListeners("data").resume();
    }
  };
}
