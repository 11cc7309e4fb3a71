import { Readable } from "node:stream";
import { createGunzip, gzipSync } from "node:zlib";
import createFastify, { type FastifyRequest } from "fastify";
import { describe, expect, it } from "vitest";
import { idempotent } from "../../../src/adapters/fastify.ts";
import { ConfigError, createLatchkey } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { deferred } from "../../support/deferred.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { itServes } from "../custom.ts";
import { until } from "../harness.ts";
import { serving } from "./fastify-serving.ts";

function latchkeyInMemory() {
  return createLatchkey({ store: memoryStore(), tenant: "single" });
}

describe("fastify", () => {
  itServes(
    "a route can be left alone, or have a policy of its own",
    serving(async (app, { latchkey }) => {
      await app.register(idempotent(latchkey, { mismatchStatus: 409 }));
      app.post("/free", { config: { idempotency: false } }, async () => ({ free: true }));
      app.post("/strict", { config: { idempotency: { mismatchStatus: 400 } } }, async () => ({}));
      app.post("/default", { config: { idempotency: true } }, async () => ({}));
    }),
    {},
    async (site) => {
      expect((await site.send({ path: "/free", key: null })).text).toBe('{"free":true}');
      expect(site.store.calls.reserve).toBe(0);
      await site.send({ path: "/strict", key: "a" });
      expectProblem(await site.send({ path: "/strict", key: "a", json: { amount: 1 } }), 400, "key-reused");
      await site.send({ path: "/default", key: "b" });
      expectProblem(await site.send({ path: "/default", key: "b", json: { amount: 1 } }), 409, "key-reused");
    },
  );

  itServes(
    "it protects the context that it is registered in, and no other",
    serving(async (app, { latchkey }) => {
      await app.register(async (inside) => {
        await inside.register(idempotent(latchkey));
        inside.post("/inside", async () => ({}));
        await inside.register(async (below) => {
          below.post("/below", async () => ({}));
        });
      });
      app.post("/outside", async () => ({}));
    }),
    {},
    async (site) => {
      expectProblem(await site.send({ path: "/inside", key: null }), 400, "key-missing");
      expectProblem(await site.send({ path: "/below", key: null }), 400, "key-missing");
      expect((await site.send({ path: "/outside", key: null })).status).toBe(200);
    },
  );

  it("a policy that cannot be kept fails when it is registered", async () => {
    const latchkey = latchkeyInMemory();
    expect(() => idempotent(latchkey, { onInFlight: "accept" })).toThrow(ConfigError);
    expect(() => idempotent(latchkey, { retentionMs: -1 })).toThrow(ConfigError);
    const app = createFastify();
    await app.register(idempotent(latchkey));
    expect(() =>
      app.post("/x", { config: { idempotency: { onCrash: "resume" } } }, async () => ({})),
    ).toThrow(ConfigError);
    await app.close();
  });

  itServes(
    "a request that Fastify refuses is neither stored nor executed",
    serving(async (app, { latchkey }) => {
      await app.register(idempotent(latchkey));
      const schema = {
        body: { type: "object", required: ["amount"], properties: { amount: { type: "integer" } } },
      };
      app.post("/charges", { schema, bodyLimit: 1000 }, async (request) => request.body);
    }),
    {},
    async (site) => {
      const headers = { "content-type": "application/json" };
      expect((await site.send({ json: { amount: "a lot" } })).status).toBe(400);
      expect((await site.send({ headers, body: "{" })).status).toBe(400);
      expect((await site.send({ headers, body: "" })).status).toBe(400);
      expect((await site.send({ headers: { "content-type": "text/csv" }, body: "a;b" })).status).toBe(415);
      expect((await site.send({ json: { amount: 1, note: "x".repeat(1000) } })).status).toBe(413);
      expect(site.store.calls.reserve).toBe(0);
      const first = await site.send({ json: { amount: 10 } });
      expect(first).toMatchObject({ status: 200, text: '{"amount":10}' });
      expectReplay(first, await site.send({ json: { amount: 10 } }));
    },
  );

  itServes(
    "callers are authenticated by hooks before the tenant is asked for",
    serving(async (app, { latchkey }) => {
      app.decorateRequest("account", "");
      await app.register(
        idempotent(latchkey, { tenant: (request) => (request as unknown as { account: string }).account }),
      );
      const authenticate = async (request: FastifyRequest) => {
        Object.assign(request, { account: String(request.headers["x-api-key"] ?? "") });
      };
      app.post("/charges", { preHandler: authenticate }, async () => ({}));
      await app.register(async (context) => {
        context.addHook("preHandler", authenticate);
        context.post("/refunds", async () => ({}));
      });
    }),
    {},
    async (site) => {
      const headers = { "x-api-key": "acme" };
      for (const path of ["/charges", "/refunds"]) {
        const sending = { path, key: path.slice(1) };
        expectProblem(await site.send(sending), 401, "tenant-missing");
        expectReplay(await site.send({ ...sending, headers }), await site.send({ ...sending, headers }));
      }
    },
  );

  itServes(
    "an onSend hook sees the first answer and the replay",
    serving(async (app, { latchkey }) => {
      await app.register(idempotent(latchkey));
      app.addHook("onSend", async (_request, reply) => {
        reply.header("x-served-by", "node-1");
      });
      app.post("/charges", async () => ({ charged: 10 }));
    }),
    {},
    async (site) => {
      const first = await site.send();
      expect(first.headers["x-served-by"]).toBe("node-1");
      expectReplay(first, await site.send());
    },
  );

  itServes(
    "a body that a hook decompresses is compared, limited and parsed as what it is",
    serving(async (app, { latchkey }) => {
      app.addHook("preParsing", (request, _reply, payload, done) => {
        if (request.headers["content-encoding"] === "gzip") done(null, payload.pipe(createGunzip()));
        else done(null, payload);
      });
      await app.register(idempotent(latchkey, { requestBytesMax: 1000 }));
      app.post("/charges", async (request) => request.body);
    }),
    {},
    async (site) => {
      const headers = { "content-type": "application/json", "content-encoding": "gzip" };
      const zipped = (value: unknown) => [gzipSync(JSON.stringify(value))];
      const first = await site.send({ headers, chunks: zipped({ amount: 10 }) });
      expect(first).toMatchObject({ status: 200, text: '{"amount":10}' });
      expectReplay(first, await site.send({ headers, chunks: zipped({ amount: 10 }) }));
      expectProblem(await site.send({ headers, chunks: zipped({ amount: 11 }) }), 422, "key-reused");
      const bomb = await site.send({ key: "bomb", headers, chunks: zipped("0".repeat(100_000)) });
      expectProblem(bomb, 413, "body-too-large");
    },
  );

  const go = deferred();
  itServes(
    "a web stream is stored whole although its client is gone",
    serving(async (app, { latchkey, routes }) => {
      await app.register(idempotent(latchkey));
      app.post("/charges", async (_request, reply) => {
        routes["/ran"]?.({} as never);
        const source = async function* () {
          yield Buffer.from("first");
          await go;
          yield Buffer.from(" and last");
        };
        return reply.send(Readable.toWeb(Readable.from(source())));
      });
    }),
    { routes: { "/ran": () => ({ kind: "empty", status: 200, fields: [] }) } },
    async (site) => {
      const exchange = site.open();
      await until("the handler to run", () => site.executions === 1);
      exchange.abort();
      await site.disconnected();
      go.resolve();
      await site.happened("settled", (event) => event.as === "completed");
      expect(await site.send()).toMatchObject({ status: 200, text: "first and last" });
      expect(site.executions).toBe(1);
    },
  );

  describe("without a socket, through app.inject", () => {
    it("requests are executed once, whatever their body is", async () => {
      const app = createFastify();
      await app.register(idempotent(latchkeyInMemory(), { requestBytesMax: 100 }));
      let runs = 0;
      app.post("/charges", async (request, reply) => {
        runs += 1;
        reply.code(201);
        return { body: request.body ?? null };
      });
      const inject = (key: string, payload?: string | object, headers = {}) =>
        app.inject({
          method: "POST",
          url: "/charges",
          headers: { "idempotency-key": key, ...headers },
          ...(payload === undefined ? {} : { payload }),
        });
      for (const [key, payload] of [["a"], ["b", { amount: 10 }], ["c", {}]] as const) {
        const first = await inject(key, payload);
        expect(first.json()).toEqual({ body: payload ?? null });
        const second = await inject(key, payload);
        expect(second).toMatchObject({ statusCode: 201, body: first.body });
        expect(second.headers["idempotency-replayed"]).toBe("true");
      }
      expect(runs).toBe(3);
      expect((await inject("b", { amount: 11 })).statusCode).toBe(422);
      expect((await inject("d", { amount: "x".repeat(200) })).statusCode).toBe(413);

      // A stream says nothing about its length, and is read nevertheless.
      const streamed = (amount: number) =>
        inject("e", Readable.from([`{"amount":${amount}}`]), { "content-type": "application/json" });
      expect((await streamed(10)).json()).toEqual({ body: { amount: 10 } });
      expect((await streamed(10)).headers["idempotency-replayed"]).toBe("true");
      expect((await streamed(11)).statusCode).toBe(422);
      expect(runs).toBe(4);
      await app.close();
    });
  });
});
