import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { currentOperation, NoOperationError } from "../../../src/index.ts";
import { sqliteStore } from "../../../src/stores/sqlite/store.ts";
import { manualClock } from "../../../src/testing/index.ts";
import { completer, dispatchTo } from "../../../src/workers/workers.ts";
import { deferred } from "../../support/deferred.ts";
import { untilItIsOver } from "../../support/operation.ts";
import { json } from "../application.ts";
import { expectProblem, expectReplay, expectRetryAfter } from "../assertions.ts";
import { type Case, type Site, type SiteOptions, type Trial, until } from "../harness.ts";

/** A site on a store with transactions, which is gone after the case. */
async function durable(trial: Trial, options: SiteOptions): Promise<Site> {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-adapter-"));
  trial.onClose(() => rmSync(folder, { recursive: true, force: true }));
  return trial.start({ ...options, store: sqliteStore(join(folder, "latchkey.db")) });
}

/** A worker that sends what was kept to the site, on behalf of a tenant. */
function workerOf(site: Site, headers: Readonly<Record<string, string>> = {}) {
  const dispatch = dispatchTo(site.origin, () => headers);
  return completer(site.latchkey, { dispatch, backoff: { baseMs: 60_000, capMs: 60_000 } });
}

const answersOutside = "what the handler returns is made an answer outside of what it ran in";

export const operationCases: readonly Case[] = [
  {
    name: "what is left of a handler that is over has no operation any more",
    except: { express: "nobody can tell when its handlers are over" },
    async run(trial) {
      const goOn = deferred();
      let left: Promise<never> | undefined;
      const site = await trial.start({
        handler: async () => {
          const { key } = currentOperation();
          left = goOn.then(untilItIsOver);
          await sleep(1);
          return json(201, { isItself: currentOperation().key === key });
        },
      });
      const first = await site.send();
      expect([first.status, first.text]).toEqual([201, '{"isItself":true}']);
      goOn.resolve();
      await expect(left).rejects.toThrow(NoOperationError);
      expectReplay(first, await site.send());
    },
  },
  {
    name: "a handler that goes on after its time is up finds its operation, and what is left of it does not",
    except: { express: "nobody can tell when its handlers are over" },
    async run(trial) {
      const [goOn, isOver, goOnOnceMore] = [deferred(), deferred(), deferred()];
      let aborted: boolean | undefined;
      let left: Promise<never> | undefined;
      const site = await trial.start({
        policy: { executionTimeoutMs: 20 },
        handler: async () => {
          left = goOnOnceMore.then(untilItIsOver);
          await goOn;
          aborted = currentOperation().signal.aborted;
          isOver.resolve();
          return json(201, {});
        },
      });
      expect((await site.send()).status).toBe(504);
      goOn.resolve();
      await isOver;
      expect(aborted).toBe(true);
      goOnOnceMore.resolve();
      await expect(left).rejects.toThrow(NoOperationError);
    },
  },
  {
    name: "what is kept of an answer may depend on whose it is",
    except: { koa: answersOutside, hono: answersOutside, fetch: answersOutside },
    async run(trial) {
      const site = await trial.start({
        policy: { redact: { body: () => Buffer.from(`{"key":"${currentOperation().key}"}`) } },
        handler: async () => json(201, { card: "4242" }),
      });
      expect((await site.send({ key: "key-1" })).text).toBe('{"card":"4242"}');
      expect((await site.send({ key: "key-1" })).text).toBe('{"key":"key-1"}');
    },
  },
  {
    name: "a handler that failed half-way goes on where it stopped",
    async run(trial) {
      let calls = 0;
      const site = await durable(trial, {
        policy: { onCrash: "resume" },
        handler: async () => {
          const op = currentOperation();
          const ride = await op.atomic("ride", () => ({ id: `ride-${++calls}` }));
          const charge = await op.effect("charge", ({ idempotencyKey }) => ({ key: idempotencyKey }));
          return op.attempt === 1 ? json(500, { error: "half-way" }) : json(201, { ...ride, ...charge });
        },
      });
      expect((await site.send()).status).toBe(500);
      const second = await site.send();
      expect(second.status).toBe(201);
      expect(JSON.parse(second.text)).toMatchObject({ id: "ride-1", key: expect.stringMatching(/^lk_/) });
      expectReplay(second, await site.send());
      expect(calls).toBe(1);
    },
  },
  {
    name: "an answer that was committed with a business write is what the client gets, whatever follows",
    async run(trial) {
      const site = await durable(trial, {
        policy: { onCrash: "resume", replayHeaders: ["x-ride"] },
        handler: async () => {
          const op = currentOperation();
          await op.atomic("finished", (tx) =>
            op.respond(tx, {
              status: 201,
              headers: { "X-Ride": "7", "Set-Cookie": "no=1" },
              body: { ride: 7 },
            }),
          );
          return json(200, { ride: "something else" });
        },
      });
      const first = await site.send();
      expect({ status: first.status, body: first.text }).toEqual({ status: 201, body: '{"ride":7}' });
      expect(first.headers).toMatchObject({
        "x-ride": "7",
        "content-type": "application/json; charset=utf-8",
      });
      expect(first.headers["set-cookie"]).toBeUndefined();
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a committed answer is sent although the handler never comes back",
    async run(trial) {
      const site = await durable(trial, {
        handler: async () => {
          const op = currentOperation();
          await op.atomic("finished", (tx) => op.respond(tx, { status: 202, body: "done\n" }));
          return new Promise<never>(() => {});
        },
      });
      const first = await site.send();
      expect({ status: first.status, body: first.text }).toEqual({ status: 202, body: "done\n" });
      expectReplay(first, await site.send());
    },
  },
  {
    name: "a resumed handler that was changed meanwhile is told to nobody as done",
    async run(trial) {
      const site = await durable(trial, {
        policy: { onCrash: "resume" },
        handler: async () => {
          const op = currentOperation();
          if (op.attempt > 1) return json(201, { fine: true });
          await op.atomic("ride", () => 1);
          return json(500, {});
        },
      });
      expect((await site.send()).status).toBe(500);
      expectProblem(await site.send(), 409, "outcome-unknown", "same-key");
      expectProblem(await site.send(), 409, "outcome-unknown", "same-key");
    },
  },
  {
    name: "accept: the request is kept, answered 202, executed by a worker, and asked for at its address",
    async run(trial) {
      const finish = deferred();
      const bodies: unknown[] = [];
      const site = await trial.start({
        policy: { onInFlight: "accept" },
        latchkey: { statusPath: "/idempotency", tenant: (request) => request.header("x-tenant") },
        handler: async (visit) => {
          bodies.push(await visit.body());
          await finish;
          return json(201, { charged: 10 }, [["location", "/charges/1"]]);
        },
      });
      const headers = { "x-tenant": "acme" };
      const key = "key/1 ?";
      const sending = { key: `"${key}"`, headers, json: { amount: 10 } };
      const accepted = await site.send(sending);
      expect(accepted.status).toBe(202);
      expectRetryAfter(accepted);
      const address = String(accepted.headers.location);
      expect(address).toBe(`/idempotency/${encodeURIComponent(key)}`);
      expect(site.executions).toBe(0);
      const status = (tenant: Record<string, string> = headers) =>
        site.send({ method: "GET", path: address, key: null, headers: tenant });
      expect((await status()).status).toBe(202);
      expectProblem(await site.send({ ...sending, json: { amount: 11 } }), 422, "key-reused");

      const worker = workerOf(site, headers);
      const round = worker.runOnce();
      await until("the handler to run", () => site.executions === 1);
      expect((await site.send(sending)).status).toBe(202);
      const running = await status();
      expect(running.status).toBe(202);
      expect(running.headers.location).toBe(address);
      expectRetryAfter(running);
      expectProblem(await status({ "x-tenant": "zenith" }), 404, "key-not-found");
      expectProblem(await status({}), 401, "tenant-missing");
      expect(await worker.runOnce()).toEqual({ dispatched: 0, failed: 0, gaveUp: 0 });

      finish.resolve();
      expect(await round).toEqual({ dispatched: 1, failed: 0, gaveUp: 0 });
      const answer = await status();
      expect({ status: answer.status, body: answer.text }).toEqual({ status: 201, body: '{"charged":10}' });
      expect(answer.headers).toMatchObject({ location: "/charges/1", "idempotency-replayed": "true" });
      expect((await site.send(sending)).text).toBe('{"charged":10}');
      expect(bodies).toEqual([{ amount: 10 }]);
    },
  },
  {
    name: "accept: the address works where keys belong to an endpoint",
    async run(trial) {
      const site = await trial.start({
        policy: { onInFlight: "accept", scope: "tenant+endpoint" },
        latchkey: { statusPath: "/idempotency" },
      });
      const address = String((await site.send()).headers.location);
      const status = () => site.send({ method: "GET", path: address, key: null });
      expect((await status()).status).toBe(202);
      await workerOf(site).runOnce();
      expect((await status()).status).toBe(201);
    },
  },
  {
    name: "accept: a worker whose requests are not let in is told what to look at",
    async run(trial) {
      const site = await trial.start({
        policy: { onInFlight: "accept" },
        latchkey: { statusPath: "/idempotency", tenant: (request) => request.header("x-tenant") },
      });
      expect((await site.send({ headers: { "x-tenant": "acme" } })).status).toBe(202);
      expect(await workerOf(site).runOnce()).toEqual({ dispatched: 0, failed: 1, gaveUp: 0 });
      await site.happened("worker_error", ({ error }) =>
        /answered 401 tenant-missing to a kept request/.test(String(error)),
      );
      expect(site.executions).toBe(0);
    },
  },
  {
    name: "accept: a worker that comes in another tenant's name executes nothing",
    async run(trial) {
      const site = await trial.start({
        policy: { onInFlight: "accept" },
        latchkey: { statusPath: "/idempotency", tenant: (request) => request.header("x-tenant") ?? "public" },
      });
      expect((await site.send({ headers: { "x-tenant": "acme" } })).status).toBe(202);
      expect(await workerOf(site).runOnce()).toEqual({ dispatched: 0, failed: 1, gaveUp: 0 });
      await site.happened("worker_error", ({ error }) => /404 key-not-found/.test(String(error)));
      expect(site.executions).toBe(0);
    },
  },
  {
    name: "accept: what was accepted is executed although its route accepts nothing any more, and its key is old",
    async run(trial) {
      const clock = manualClock();
      const before = await trial.start({
        clock: clock.now,
        policy: { onInFlight: "accept" },
        latchkey: { statusPath: "/idempotency" },
      });
      const key = "01890000-0000-7000-8000-000000000001";
      expect((await before.send({ key })).status).toBe(202);
      const after = await trial.start({ store: before.store, policy: { lateArrivals: "reject" } });
      const pending = await after.send({ key, path: "/charges" });
      expect(pending.status).toBe(202);
      expect(await workerOf(after).runOnce()).toEqual({ dispatched: 1, failed: 0, gaveUp: 0 });
      expect(after.executions).toBe(1);
      expect((await before.send({ key })).headers["idempotency-replayed"]).toBe("true");
    },
  },
  {
    name: "accept: without a place to ask the answer names none",
    async run(trial) {
      const before = await trial.start({
        policy: { onInFlight: "accept" },
        latchkey: { statusPath: "/status" },
      });
      expect((await before.send()).headers.location).toBe("/status/key-1");
      const after = await trial.start({ store: before.store });
      const pending = await after.send();
      expect(pending.status).toBe(202);
      expect(pending.headers.location).toBeUndefined();
    },
  },
  {
    name: "a worker finishes what its client does not come back for",
    async run(trial) {
      let charges = 0;
      const site = await durable(trial, {
        policy: { onCrash: "resume", name: "rides" },
        handler: async (visit) => {
          const op = currentOperation();
          const charge = await op.effect("charge", () => `ch_${++charges}`);
          if (op.attempt === 1) return json(503, {});
          return json(201, { charge, body: await visit.body() });
        },
      });
      expect((await site.send({ json: { ride: 1 } })).status).toBe(503);
      const worker = workerOf(site);
      let dispatched = 0;
      while (dispatched === 0) ({ dispatched } = await worker.runOnce());
      const answer = await site.send({ json: { ride: 1 } });
      expect(answer.headers["idempotency-replayed"]).toBe("true");
      expect(JSON.parse(answer.text)).toEqual({ charge: "ch_1", body: { ride: 1 } });
      expect(site.executions).toBe(2);
    },
  },
];
