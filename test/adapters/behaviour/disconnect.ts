import { connect } from "node:net";
import { expect } from "vitest";
import { type Deferred, deferred } from "../../support/deferred.ts";
import { type Handler, json, pieces, type Reply, stream } from "../application.ts";
import { type Case, type Site, until } from "../harness.ts";
import { hangs } from "../server-like-store.ts";

/** More than any buffer between a handler and its client holds, so that back-pressure is felt. */
const large = { parts: 64, partBytes: 16 * 1024 };
const largeBytes = large.parts * large.partBytes;

async function* manyParts(): AsyncGenerator<Uint8Array> {
  for (let index = 0; index < large.parts; index++) yield new Uint8Array(large.partBytes).fill(index);
}

/** Ways to answer, each as something that begins only when `go` is there. */
const answers: Readonly<Record<string, (go: Deferred) => Handler>> = {
  "answers in one piece": (go) => async () => {
    await go;
    return json(201, { charged: 10 });
  },
  "writes in pieces": (go) => async () => {
    await go;
    return pieces(["one ", "two ", "three"]);
  },
  "begins a stream": (go) => async () => {
    await go;
    return stream(manyParts);
  },
  "is in the middle of a stream": (go) => () =>
    stream(async function* () {
      yield "the first part";
      await go;
      yield* manyParts();
    }),
};

/** Sends a request, and is gone before the handler is told to go on. */
async function sendAndVanish(site: Site, go: Deferred): Promise<void> {
  const exchange = site.open();
  await until("the handler to run", () => site.executions === 1);
  exchange.abort();
  await site.disconnected();
  go.resolve();
}

async function expectStored(site: Site): Promise<void> {
  await site.happened("settled", (event) => event.as === "completed");
  const retry = await site.send();
  expect(retry.headers["idempotency-replayed"]).toBe("true");
  expect(retry.body.equals((await site.send()).body)).toBe(true);
  expect(site.executions).toBe(1);
}

export const disconnectCases: readonly Case[] = [
  ...Object.entries(answers).map(
    ([way, handler]): Case => ({
      name: `a client that is gone when its handler ${way}: the answer is stored, and the retry gets it`,
      async run(trial) {
        const go = deferred();
        const site = await trial.start({
          handler: handler(go),
          policy: { responseBytesMax: 4 * largeBytes },
        });
        await sendAndVanish(site, go);
        await expectStored(site);
        if (way.includes("stream"))
          expect((await site.send()).body.byteLength).toBeGreaterThanOrEqual(largeBytes);
      },
    }),
  ),
  {
    name: "a client that is gone in the middle of a streaming answer: all of it is stored",
    async run(trial) {
      const go = deferred();
      const site = await trial.start({
        policy: { streaming: true, responseBytesMax: 4 * largeBytes },
        handler: () =>
          stream(async function* () {
            yield "the first part";
            await go;
            yield* manyParts();
          }),
      });
      const exchange = site.open();
      const response = await exchange.response;
      response.on("error", () => {});
      await new Promise((resolve) => response.once("data", resolve));
      exchange.abort();
      await site.disconnected();
      go.resolve();
      await expectStored(site);
      expect((await site.send()).body.byteLength).toBe("the first part".length + largeBytes);
    },
  },
  {
    name: "a client that is gone while it does not read a streaming answer: all of it is stored",
    async run(trial) {
      const site = await trial.start({
        policy: { streaming: true, responseBytesMax: 64 * 1024 * 1024 },
        handler: () =>
          stream(async function* () {
            for (let index = 0; index < 16; index++) yield* manyParts();
          }),
      });
      const exchange = site.open();
      // Nobody listens to the data, so the kernel's buffers fill up and the server has to wait.
      const response = await exchange.response;
      response.on("error", () => {});
      exchange.abort();
      await expectStored(site);
      expect((await site.send()).body.byteLength).toBe(16 * largeBytes);
    },
  },
  {
    name: "a client that is gone before its handler has read the body: the handler reads it all the same",
    async run(trial) {
      const site = await trial.start({
        handler: async (visit): Promise<Reply> => json(201, await visit.body()),
      });
      site.breakStore((verb) => (verb === "reserve" ? hangs : { kind: "none" }));
      const exchange = site.open({ json: { amount: 10 } });
      await until("the reservation", () => site.store.calls.reserve === 1);
      exchange.abort();
      await site.disconnected();
      site.repairStore();
      await site.happened("settled");
      const retry = await site.send({ json: { amount: 10 } });
      expect(retry).toMatchObject({ status: 201, text: '{"amount":10}' });
      expect(retry.headers["idempotency-replayed"]).toBe("true");
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a client that is gone before it has sent the whole body: nothing is reserved",
    async run(trial) {
      const site = await trial.start();
      for (const headers of [{ "content-length": "13" }, { "transfer-encoding": "chunked" }]) {
        const never = new Promise<void>(() => {});
        const exchange = site.open({
          headers: { "content-type": "application/json", ...headers },
          chunks: (async function* () {
            yield '{"amount"';
            await never;
          })(),
        });
        await until("the connection", () => exchange.request.socket?.bytesWritten !== undefined);
        await until("the first part", () => (exchange.request.socket?.bytesWritten ?? 0) > 100);
        await until("the server to have it", () => site.received > 100);
        exchange.abort();
        await site.disconnected();
      }
      expect(site.store.calls.reserve).toBe(0);
      expect((await site.send()).status).toBe(201);
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a client that breaks off hard does not answer in its handler's place",
    async run(trial) {
      const go = deferred();
      const site = await trial.start({
        handler: async () => {
          await go;
          return json(201, {});
        },
      });
      const exchange = site.open();
      await until("the handler to run", () => site.executions === 1);
      // Without the polite farewell: the server's socket fails with ECONNRESET.
      exchange.request.socket?.resetAndDestroy();
      await site.disconnected();
      expect(site.events.some((event) => event.type === "settled")).toBe(false);
      expect((await site.send()).status).toBe(409);
      go.resolve();
      await expectStored(site);
    },
  },
  {
    name: "a client that is gone after the first of two requests that it sent at once: the second is stored",
    async run(trial) {
      const go = deferred();
      const site = await trial.start({
        handler: async (visit) => {
          if (visit.header("x-order") === "first") return json(201, { order: "first" });
          await go;
          return stream(manyParts);
        },
        policy: { responseBytesMax: 4 * largeBytes },
      });
      const request = (order: string) =>
        `POST /charges HTTP/1.1\r\nhost: localhost\r\nidempotency-key: ${order}\r\nx-order: ${order}\r\n` +
        "content-length: 0\r\n\r\n";
      const client = connect(site.port, "127.0.0.1", () =>
        client.write(request("first") + request("second")),
      );
      const firstAnswer = new Promise((resolve) => client.once("data", resolve));
      await until("both handlers to run", () => site.executions === 2);
      await firstAnswer;
      client.destroy();
      await site.disconnected();
      go.resolve();
      await site.happened("settled", (event) => event.key === "second" && event.as === "completed");
      const retry = await site.send({ key: "second", headers: { "x-order": "second" }, body: "" });
      expect(retry.headers["idempotency-replayed"]).toBe("true");
      expect(retry.body.byteLength).toBe(largeBytes);
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "a client that vanishes does not free the key while its handler runs",
    async run(trial) {
      const go = deferred();
      const site = await trial.start({
        handler: async () => {
          await go;
          return json(201, {});
        },
      });
      const exchange = site.open();
      await until("the handler to run", () => site.executions === 1);
      exchange.abort();
      await site.disconnected();
      expect((await site.send()).status).toBe(409);
      go.resolve();
      await expectStored(site);
    },
  },
];
