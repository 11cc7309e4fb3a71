import { createServer } from "node:http";
import { connect, createServer as createHttp2Server, type Http2Server } from "node:http2";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { idempotent, type NodeHandler } from "../../../src/adapters/node.ts";
import { createLatchkey } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { listening } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { custom, itServes } from "../custom.ts";

describe("node", () => {
  itServes(
    "a handler that fails after its answer is reported, and its answer counts",
    custom("node", ({ latchkey }) => {
      const protect = idempotent(latchkey);
      return listening(
        createServer((req, res) => {
          void protect(async () => {
            res.end("done");
            throw new Error("boom");
          })(req, res);
        }),
      );
    }),
    {},
    async (site) => {
      const first = await site.send();
      expect(first.text).toBe("done");
      await site.happened("handler_failed", (event) => (event.error as Error).message === "boom");
      expectReplay(first, await site.send());
    },
  );

  itServes(
    "a tenant function that throws is a 500, and a warning for whoever runs the server",
    custom("node", ({ latchkey }) => {
      const protect = idempotent(latchkey, {
        tenant: () => {
          throw new Error("the directory is down");
        },
      });
      return listening(createServer((req, res) => void protect(() => res.end())(req, res)));
    }),
    {},
    async (site, trial) => {
      trial.expectedWarning = "the directory is down";
      const warned = new Promise<Error>((resolve) => process.once("warning", resolve));
      expectProblem(await site.send(), 500, "handler-failed", "same-key");
      expect((await warned).message).toBe("the directory is down");
    },
  );

  itServes(
    "repeated fields in a list of headers are kept apart",
    custom("node", ({ latchkey }) => {
      const protect = idempotent(latchkey);
      const handler: NodeHandler = (_req, res) => {
        res.setHeader("etag", '"old"');
        res.writeHead(201, "Made", ["link", "</a>", "etag", '"new"', "link", "</b>"]).end("done");
      };
      return listening(createServer((req, res) => void protect(handler)(req, res)));
    }),
    {},
    async (site) => {
      const first = await site.send();
      expect(first.fields.filter(([name]) => name === "link").map(([, value]) => value)).toEqual([
        "</a>",
        "</b>",
      ]);
      expect(first.headers.etag).toBe('"new"');
      expectReplay(first, await site.send());
    },
  );
});

describe("node, where the head is given whole", () => {
  const head = {
    "content-type": "text/plain",
    "content-length": "4",
    etag: '"1"',
    "idempotency-expires": "never",
  };

  itServes(
    "it is sent as it was given, with what is added to it, and replayed",
    serving((_req, res) => void res.writeHead(201, "Made", head).end("done")),
    {},
    async (site) => {
      const first = await site.send();
      expect(first).toMatchObject({
        status: 201,
        text: "done",
        headers: { etag: '"1"', "content-length": "4" },
      });
      expect(first.headers["idempotency-expires"]).toMatch(/GMT$/);
      expectReplay(first, await site.send());
    },
  );

  itServes(
    "what is set, written or given later counts as well",
    serving((req, res) => {
      res.writeHead(201, head);
      if (req.url === "/set") res.setHeader("etag", '"2"').end("done");
      else if (req.url === "/written") res.end("don", () => {});
      else if (req.url === "/pieces") {
        res.write("do");
        res.end("ne");
      } else res.writeHead(500, { "x-page": "1" }).end("an error page");
    }),
    {},
    async (site) => {
      const set = await site.send({ path: "/set", key: "set" });
      expect(set).toMatchObject({ status: 201, text: "done", headers: { etag: '"2"' } });
      expectReplay(set, await site.send({ path: "/set", key: "set" }));
      // A length that is wrong by then would break the connection.
      expect(await site.send({ path: "/written", key: "written" })).toMatchObject({ text: "don" });
      const pieces = await site.send({ path: "/pieces", key: "pieces" });
      expect(pieces).toMatchObject({ text: "done", headers: { etag: '"1"' } });
      expectReplay(pieces, await site.send({ path: "/pieces", key: "pieces" }));
      const page = await site.send({ path: "/page", key: "page" });
      expect(page).toMatchObject({
        status: 500,
        text: "an error page",
        headers: { etag: '"1"', "x-page": "1" },
      });
    },
  );

  itServes(
    "nothing of it is left in what is answered instead",
    serving((_req, res) => void res.writeHead(201, head).end("done")),
    {},
    async (site) => {
      site.breakStore((verb) => ({ kind: verb === "settle" ? "failBefore" : "none" }));
      const unsent = await site.send();
      expectProblem(unsent, 503, "store-unavailable");
      expect(unsent.headers.etag).toBeUndefined();
    },
  );
});

function serving(handler: NodeHandler) {
  return custom("node", ({ latchkey }) => {
    const protect = idempotent(latchkey);
    return listening(createServer((req, res) => void protect(handler)(req, res)));
  });
}

describe("node, over HTTP/2", () => {
  let server: Http2Server | undefined;
  afterEach(() => server?.close());

  /** Sends one request with a body that says nothing about its length, as HTTP/2 allows. */
  function send(body: string): Promise<{ status: number; replayed: unknown; text: string }> {
    if (server === undefined) throw new Error("the server is not there yet");
    const { port } = server.address() as AddressInfo;
    return new Promise((resolve, reject) => {
      const session = connect(`http://127.0.0.1:${port}`);
      const stream = session.request({ ":method": "POST", ":path": "/charges", "idempotency-key": "key-1" });
      let status = 0;
      let replayed: unknown;
      let text = "";
      stream.on("response", (headers) => {
        status = Number(headers[":status"]);
        replayed = headers["idempotency-replayed"];
      });
      stream.setEncoding("utf8");
      stream.on("data", (part) => {
        text += part;
      });
      stream.on("end", () => {
        session.close();
        resolve({ status, replayed, text });
      });
      stream.on("error", reject);
      stream.end(body);
    });
  }

  it("a request is executed once and replayed, and another body is another request", async () => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    let runs = 0;
    const handler: NodeHandler = async (req, res) => {
      runs += 1;
      let body = "";
      for await (const part of req) body += part;
      res.writeHead(201, { "content-type": "text/plain" });
      res.write("you sent ");
      res.end(body);
    };
    const protect = idempotent(latchkey)(handler);
    server = createHttp2Server((req, res) => void protect(req as never, res as never));
    await new Promise<void>((resolve) => server?.listen(0, "127.0.0.1", resolve));
    expect(await send("ten")).toEqual({ status: 201, replayed: undefined, text: "you sent ten" });
    expect(await send("ten")).toEqual({ status: 201, replayed: "true", text: "you sent ten" });
    expect((await send("eleven")).status).toBe(422);
    expect(runs).toBe(1);
    await latchkey.close();
  });
});
