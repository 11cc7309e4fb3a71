import { expect } from "vitest";
import { deferred } from "../../support/deferred.ts";
import { type Handler, json, stream } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { readAnswer } from "../client.ts";
import { type Case, until } from "../harness.ts";

const eventStream = [["content-type", "text/event-stream"]] as const;
const modes = { streaming: true, "not streaming": false };

/** Sends something, and then breaks. */
const breaksOff =
  (attempts: { made: number }): Handler =>
  () =>
    stream(async function* () {
      attempts.made += 1;
      yield "the first part";
      // In a later turn, so that the first part has been taken by whoever takes it.
      await new Promise((resolve) => setImmediate(resolve));
      if (attempts.made === 1) throw new Error("the source broke");
      yield " and the second";
    });

export const streamingCases: readonly Case[] = [
  {
    name: "a streaming client has the first event while the handler is still at work",
    async run(trial) {
      const heard = deferred();
      const site = await trial.start({
        policy: { streaming: true },
        handler: () =>
          stream(async function* () {
            yield "data: one\n\n";
            await heard;
            yield "data: two\n\n";
          }, eventStream),
      });
      const exchange = site.open();
      const response = await exchange.response;
      const firstPart = await new Promise<Buffer>((resolve) => response.once("data", resolve));
      response.pause();
      expect(firstPart.toString()).toBe("data: one\n\n");
      expect(site.events.some((event) => event.type === "settled")).toBe(false);
      heard.resolve();
      const rest = await readAnswer(response);
      expect(rest.text).toBe("data: two\n\n");
      expect(rest.headers["content-type"]).toMatch(/^text\/event-stream\b/);

      const replay = await site.send();
      expect(replay.text).toBe("data: one\n\ndata: two\n\n");
      expect(replay.headers["content-type"]).toMatch(/^text\/event-stream\b/);
      expect(replay.headers["idempotency-replayed"]).toBe("true");
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "nothing reaches the client before it is stored, unless the route is streaming",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        handler: () =>
          stream(async function* () {
            yield "data: one\n\n";
            await finish;
            yield "data: two\n\n";
          }, eventStream),
      });
      let answered = false;
      const exchange = site.open();
      void exchange.response.then(() => {
        answered = true;
      });
      await until("the handler to run", () => site.executions === 1);
      // Other requests are answered meanwhile, so there was time enough for a first part to arrive.
      for (let index = 0; index < 5; index++)
        await site.send({ key: `other-${index}`, method: "GET", path: "/x" });
      expect(answered).toBe(false);
      finish.resolve();
      expect((await readAnswer(await exchange.response)).text).toBe("data: one\n\ndata: two\n\n");
    },
  },
  {
    name: "a streaming answer of one piece works like any other",
    async run(trial) {
      const site = await trial.start({
        policy: { streaming: true },
        handler: () => json(201, { charged: 10 }),
      });
      const first = await site.send();
      expect(first).toMatchObject({ status: 201, text: '{"charged":10}' });
      const second = await site.send();
      expect(second).toMatchObject({ status: 201, text: '{"charged":10}' });
      expect(second.headers["content-type"]).toBe(first.headers["content-type"]);
      expect(second.headers["idempotency-replayed"]).toBe("true");
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a streaming route echoes the key where the profile says so",
    async run(trial) {
      const site = await trial.start({
        policy: { streaming: true, profile: "stripe" },
        handler: () =>
          stream(async function* () {
            yield "data: one\n\n";
          }, eventStream),
      });
      expect((await site.send()).headers["idempotency-key"]).toBe("key-1");
    },
  },
  ...Object.entries(modes).flatMap(([mode, streaming]): Case[] => [
    {
      name: `an answer that is too large to keep reaches its client whole; the retry learns that it was (${mode})`,
      async run(trial) {
        const size = 200_000;
        const site = await trial.start({
          policy: { streaming, responseBytesMax: 100_000 },
          handler: () =>
            stream(async function* () {
              for (let sent = 0; sent < size; sent += 10_000)
                yield new Uint8Array(10_000).fill(sent / 10_000);
            }),
        });
        const first = await site.send();
        expect(first.status).toBe(200);
        expect(first.body.byteLength).toBe(size);
        const retry = await site.send();
        expectProblem(retry, 409, "response-not-stored", "never");
        expect(JSON.parse(retry.text)).toMatchObject({ originalStatus: 200 });
        expect(site.executions).toBe(1);
      },
    },
    {
      name: `an answer of exactly the size that is kept is kept (${mode})`,
      async run(trial) {
        const site = await trial.start({
          policy: { streaming, responseBytesMax: 14 },
          handler: () => json(201, { charged: 10 }),
        });
        const first = await site.send();
        expect(first.body.byteLength).toBe(14);
        expect((await site.send()).body.equals(first.body)).toBe(true);
        expect(site.executions).toBe(1);
      },
    },
    {
      name: `a stream that breaks is no answer: its client learns of it, and the retry executes (${mode})`,
      async run(trial) {
        const attempts = { made: 0 };
        const site = await trial.start({ policy: { streaming }, handler: breaksOff(attempts) });
        const first = await site.send().catch((error: Error) => error);
        // Either the connection broke off, or nothing had been sent yet and there is an error page.
        if (!(first instanceof Error)) expect(first.status).toBe(500);
        await site.happened("settled", (event) => event.as === "failed_retryable");
        const second = await site.send();
        expect(second).toMatchObject({ status: 200, text: "the first part and the second" });
        const third = await site.send();
        expect(third.text).toBe(second.text);
        expect(third.headers["idempotency-replayed"]).toBe("true");
        expect(site.executions).toBe(2);
      },
    },
  ]),
  {
    name: "a streaming answer whose end cannot be stored is broken off, and the retry replays it later",
    async run(trial) {
      const site = await trial.start({
        latchkey: { leaseMs: 150 },
        policy: { streaming: true, onInFlight: "wait" },
        handler: () =>
          stream(async function* () {
            yield "data: one\n\n";
          }),
      });
      site.breakStore((verb) => ({ kind: verb === "settle" ? "failBefore" : "none" }));
      await expect(site.send()).rejects.toThrow();
      site.repairStore();
      const retry = await site.send();
      expect(retry.text).toBe("data: one\n\n");
      expect(retry.headers["idempotency-replayed"]).toBe("true");
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a streaming answer keeps its pace with a slow client",
    async run(trial) {
      const part = 64 * 1024;
      const parts = 256;
      let made = 0;
      const site = await trial.start({
        policy: { streaming: true, responseBytesMax: 2 * part * parts },
        handler: () =>
          stream(async function* () {
            for (; made < parts; made++) yield new Uint8Array(part).fill(made);
          }),
      });
      const response = await site.open().response;
      // The client does not read. Other requests show that the server had time to run ahead of it.
      for (let index = 0; index < 20; index++)
        await site.send({ key: `other-${index}`, method: "GET", path: "/x" });
      expect(made).toBeLessThan(parts);
      const first = await readAnswer(response);
      expect(first.body.byteLength).toBe(part * parts);
      expectReplay({ ...first, headers: {}, fields: [] }, { ...(await site.send()), fields: [] });
    },
  },
];
