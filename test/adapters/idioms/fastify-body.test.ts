import { type IncomingMessage, request } from "node:http";
import type { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { describe, expect } from "vitest";
import { idempotent } from "../../../src/adapters/fastify.ts";
import { deferred } from "../../support/deferred.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { readAnswer } from "../client.ts";
import { itServes } from "../custom.ts";
import type { Site } from "../harness.ts";
import { serving } from "./fastify-serving.ts";

/** The body is compared as it was sent, whoever reads it and whenever that begins. */
describe("fastify, the body", () => {
  const bytes = (fill: number) => new Uint8Array(300_000).fill(fill);
  const headers = { "content-type": "application/octet-stream" };

  itServes(
    "is compared when all of it arrived before the hooks were done",
    serving(async (app, { latchkey }) => {
      app.addHook("onRequest", async (request) => {
        while (!request.raw.complete) await new Promise((resolve) => setImmediate(resolve));
      });
      await app.register(idempotent(latchkey));
      app.post("/charges", async (request) => request.body);
    }),
    {},
    async (site) => {
      const first = await site.send({ json: { amount: 10 } });
      expect(first).toMatchObject({ status: 200, text: '{"amount":10}' });
      expectReplay(first, await site.send({ json: { amount: 10 } }));
      expectProblem(await site.send({ json: { amount: 11 } }), 422, "key-reused");
    },
  );

  itServes(
    "is compared when its parser leaves it to the handler",
    serving(async (app, { latchkey }) => {
      await app.register(idempotent(latchkey));
      app.addContentTypeParser("application/octet-stream", (_request, payload, done) => done(null, payload));
      app.post("/charges", async (request) => {
        const body = await buffer(request.body as Readable);
        return { bytes: body.byteLength, first: body[0] };
      });
    }),
    {},
    async (site) => {
      const first = await site.send({ headers, body: bytes(1) });
      expect(first).toMatchObject({ status: 200, text: '{"bytes":300000,"first":1}' });
      expectReplay(first, await site.send({ headers, body: bytes(1) }));
      expectProblem(await site.send({ headers, body: bytes(2) }), 422, "key-reused");
    },
  );

  /** Hands the body over before it is there, as parsers of uploads do. */
  const readingOn = (began: () => void) =>
    serving(async (app, { latchkey, routes }) => {
      await app.register(idempotent(latchkey));
      app.addContentTypeParser("application/octet-stream", (_request, payload, done) => {
        const reading = buffer(payload);
        reading.catch(() => {});
        payload.once("data", () => {
          done(null, { reading });
          began();
        });
      });
      app.post("/charges", async (request) => {
        routes["/ran"]?.({} as never);
        return { bytes: (await (request.body as { reading: Promise<Buffer> }).reading).byteLength };
      });
    });
  const counting = { routes: { "/ran": () => ({ kind: "empty", status: 200, fields: [] }) as const } };

  /** A request of which only the first bytes are sent. */
  const begin = (site: Site) => {
    const sent = request(`${site.origin}/charges`, {
      method: "POST",
      agent: false,
      headers: { ...headers, "idempotency-key": "key-1", "content-length": "300000" },
    });
    sent.on("error", () => {});
    sent.write(bytes(1).subarray(0, 1000));
    return sent;
  };

  const waiting = deferred();
  itServes(
    "is waited for when its parser reads on while the request is let in",
    readingOn(() => waiting.resolve()),
    counting,
    async (site) => {
      const sent = begin(site);
      const response = new Promise<IncomingMessage>((resolve) => sent.on("response", resolve));
      await waiting;
      await new Promise((resolve) => setImmediate(resolve));
      expect(site.store.calls.reserve).toBe(0);
      sent.end(bytes(1).subarray(1000));
      const first = await readAnswer(await response);
      expect(first).toMatchObject({ status: 200, text: '{"bytes":300000}' });
      expectReplay(first, await site.send({ headers, body: bytes(1) }));
      expectProblem(await site.send({ headers, body: bytes(2) }), 422, "key-reused");
    },
  );

  const begun = deferred();
  itServes(
    "leaves nothing behind when its client goes away in the middle of it",
    readingOn(() => begun.resolve()),
    counting,
    async (site) => {
      const sent = begin(site);
      await begun;
      sent.destroy();
      await site.disconnected();
      expect(site.store.calls.reserve).toBe(0);
      expect(await site.send({ headers, body: bytes(2) })).toMatchObject({ status: 200 });
      expect(site.executions).toBe(1);
    },
  );
});
