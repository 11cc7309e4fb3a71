import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { serve } from "@hono/node-server";
import { type Context, Hono } from "hono";
import { describe, expect, it } from "vitest";
import { idempotent } from "../../../src/adapters/hono.ts";
import { createLatchkey } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { portOf } from "../application.ts";
import { type Answer, send } from "../client.ts";
import { until } from "../harness.ts";

/** What a handler may answer with. Each is sent twice: by Hono's server for Node, and without a server. */
const handlers: Record<string, (c: Context) => Response | Promise<Response>> = {
  json: (c) => c.json({ charged: 10 }, 201),
  text: (c) => c.text("grüße, 你好"),
  "half a surrogate pair": (c) => c.text("\ud800"),
  "an empty text": (c) => c.text(""),
  bytes: (c) => c.body(new Uint8Array([0, 255, 128]), 200, { "content-type": "application/octet-stream" }),
  "nothing at all": (c) => c.body(null, 204),
  "an empty body": (c) => c.body(null),
  "headers of its own": (c) => c.json({}, 200, { ETag: '"1"', "X-Own": "1", "Content-Language": "de" }),
  "a header set before": (c) => {
    c.header("Link", "</a>; rel=next");
    c.header("Link", "</b>; rel=last", { append: true });
    return c.json({});
  },
  cookies: (c) => {
    c.header("set-cookie", "a=1", { append: true });
    c.header("set-cookie", "b=2", { append: true });
    return c.json({});
  },
  "a value that has to be trimmed": () => new Response("{}", { headers: { etag: ' "1" ' } }),
  "a name in two spellings": () => new Response("{}", { headers: { Vary: "a", vary: "b" } }),
  "a list of headers": () => new Response("{}", { headers: [["etag", '"2"']] }),
  "our own header": () => new Response("{}", { headers: { "idempotency-expires": "never" } }),
  "a redirection": (c) => c.redirect("/elsewhere", 303),
  "a stream": () => new Response(new Blob(["piece by piece"]).stream(), { headers: { etag: '"3"' } }),
};

/** What that server takes from a handler, and can then not send. */
const unsendable: typeof handlers = {
  "a value that is no header": () => new Response("{}", { headers: { etag: "1\n2" } }),
  "a status that is none": (c) => c.json({}, 1000 as 200),
  "a body where none may be": (c) => c.json({}, 204 as 200),
};

function application(options: { readonly outer?: (c: Context) => void } = {}) {
  const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
  const sent: Response[] = [];
  const app = new Hono();
  app.onError((error, c) => c.text(error.name, 500));
  app.use(async (c, next) => {
    options.outer?.(c);
    await next();
    sent.push(c.res);
  });
  app.use(idempotent(latchkey));
  for (const [name, handler] of Object.entries({ ...handlers, ...unsendable }))
    app.post(pathOf(name), handler);
  app.post("/incoming", async (c) => c.text(await text((c.env as { incoming: IncomingMessage }).incoming)));
  return { app, latchkey, sent };
}

function pathOf(name: string): string {
  return `/${name.replaceAll(" ", "-")}`;
}

async function onNode(
  build: ReturnType<typeof application>,
  run: (sending: (path: string) => Promise<Answer>) => Promise<void>,
): Promise<void> {
  const server = await new Promise<Server>((resolve) => {
    const started = serve({ fetch: build.app.fetch, port: 0, hostname: "127.0.0.1" }, () =>
      resolve(started as Server),
    );
  });
  try {
    await run((path) =>
      send(`http://127.0.0.1:${portOf(server)}`, { path, key: path.slice(1), body: '{"amount":10}' }),
    );
  } finally {
    await new Promise((resolve) => server.close(resolve));
    await build.latchkey.close();
  }
}

async function withoutServer(app: Hono, path: string): Promise<Pick<Answer, "status" | "fields" | "body">> {
  const headers = { "idempotency-key": path.slice(1), "content-type": "application/json" };
  const response = await app.request(path, { method: "POST", headers, body: '{"amount":10}' });
  return {
    status: response.status,
    fields: [...response.headers],
    body: Buffer.from(await response.arrayBuffer()),
  };
}

/** What an answer says, but for what a server adds, and for a type that nobody has named. */
function said({ status, fields, body }: Pick<Answer, "status" | "fields" | "body">) {
  const perServer = ["date", "connection", "keep-alive", "content-length", "transfer-encoding"];
  const headers = fields
    .filter(([name]) => !perServer.includes(name) && name !== "idempotency-expires")
    .filter(([name, value]) => name !== "content-type" || !/^text\/plain; ?charset=utf-8$/i.test(value))
    .map(([name, value]) => `${name}: ${value}`)
    .sort();
  return { status, headers, body: body.toString("latin1") };
}

describe("hono on its server for Node", () => {
  for (const name of Object.keys(handlers)) {
    it(`answers as it does without a server, first and again: ${name}`, async () => {
      const path = pathOf(name);
      const apart = application();
      const expected = [await withoutServer(apart.app, path), await withoutServer(apart.app, path)].map(said);
      await apart.latchkey.close();
      await onNode(application(), async (sending) => {
        expect([said(await sending(path)), said(await sending(path))]).toEqual(expected);
      });
    });
  }

  for (const name of Object.keys(unsendable)) {
    it(`does not store what cannot be sent: ${name}`, async () => {
      const build = application();
      const settled: string[] = [];
      build.latchkey.subscribe((event) => {
        if (event.type === "settled") settled.push(event.as);
      });
      await onNode(build, async (sending) => {
        expect((await sending(pathOf(name))).status).toBe(500);
        expect(settled).toEqual(["failed_retryable"]);
      });
    });
  }

  it("sends what was stored without making a stream of it, first and again", async () => {
    const build = application();
    await onNode(build, async (sending) => {
      for (const name of ["json", "text", "bytes", "headers of its own"]) {
        await sending(pathOf(name));
        await sending(pathOf(name));
      }
      expect(build.sent.map(isLight)).toEqual(Array(8).fill(true));
    });
  });

  it("adds what outer middleware has set to a replay, and nothing that the handler set later", async () => {
    const build = application({ outer: (c) => c.header("x-outer", "1") });
    await onNode(build, async (sending) => {
      const path = pathOf("a header set before");
      expect((await sending(path)).headers).toMatchObject({ "x-outer": "1" });
      const replay = await sending(path);
      expect(replay.headers).toMatchObject({ "x-outer": "1", link: "</a>; rel=next, </b>; rel=last" });
    });
  });

  it("leaves the body where it was for a handler that reads the request of Node", async () => {
    await onNode(application(), async (sending) => {
      expect((await sending("/incoming")).text).toBe('{"amount":10}');
    });
  });

  it("lets go of a body that nobody reads before the answer is gone", async () => {
    const ended: boolean[] = [];
    const build = application({
      outer: (c) => {
        const { incoming, outgoing } = c.env as { incoming: IncomingMessage; outgoing: ServerResponse };
        outgoing.once("close", () => ended.push(incoming.readableEnded));
      },
    });
    await onNode(build, async (sending) => {
      await sending(pathOf("json"));
      await sending(pathOf("json"));
      await until("both answers to be gone", () => ended.length === 2);
      expect(ended).toEqual([true, true]);
    });
  });
});

/** Whether a response still is what it was made of. */
function isLight(response: Response): boolean {
  return Object.getOwnPropertySymbols(response).some(
    (name) => Array.isArray(Reflect.get(response, name)) && Reflect.get(response, name).length === 3,
  );
}
