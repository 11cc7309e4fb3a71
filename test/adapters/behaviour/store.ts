import { expect } from "vitest";
import type { Fault } from "../../../src/testing/index.ts";
import { deferred } from "../../support/deferred.ts";
import { json } from "../application.ts";
import { expectProblem, expectReplay, expectRetryAfter } from "../assertions.ts";
import { type Case, until } from "../harness.ts";
import { hangs } from "../server-like-store.ts";

/** The given verb fails, the others work. */
function failing(verb: string, kind: "failBefore" | "failAfter" = "failBefore") {
  return (called: string): Fault => ({ kind: called === verb ? kind : "none" });
}

export const storeCases: readonly Case[] = [
  {
    name: "a store that fails to reserve is a 503, and nothing runs until it is back",
    async run(trial) {
      const site = await trial.start();
      site.breakStore(failing("reserve"));
      const refused = await site.send();
      expectProblem(refused, 503, "store-unavailable", "same-key");
      expectRetryAfter(refused);
      expect(site.executions).toBe(0);
      site.repairStore();
      const first = await site.send();
      expect(first.status).toBe(201);
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a store that hangs is a 503 once its time is up, and nothing runs",
    async run(trial) {
      const site = await trial.start({ latchkey: { storeTimeoutMs: 50 } });
      site.breakStore(() => hangs);
      expectProblem(await site.send(), 503, "store-unavailable", "same-key");
      expect(site.executions).toBe(0);
      site.repairStore();
      // The reservation that came too late is given back, and until then the key is held by it.
      let answer = await site.send();
      while (answer.status === 409) answer = await site.send();
      expect(answer.status).toBe(201);
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "an answer that cannot be stored is not sent; it is replayed when the store is back",
    async run(trial) {
      for (const kind of ["failBefore", "failAfter"] as const) {
        const site = await trial.start({
          latchkey: { leaseMs: 150 },
          policy: { onInFlight: "wait" },
          handler: () => json(201, { charged: 10 }, [["location", "/charges/1"]]),
        });
        site.breakStore(failing("settle", kind));
        const unsent = await site.send();
        expectProblem(unsent, 503, "store-unavailable", "same-key");
        expectRetryAfter(unsent);
        expect(unsent.headers.location).toBeUndefined();
        site.repairStore();
        const retry = await site.send();
        expect(retry).toMatchObject({ status: 201, text: '{"charged":10}' });
        expect(retry.headers.location).toBe("/charges/1");
        expect(retry.headers["idempotency-replayed"]).toBe("true");
        expect(site.executions).toBe(1);
      }
    },
  },
  {
    name: "a failure that cannot be stored is not sent either; the retry executes when the store is back",
    async run(trial) {
      let runs = 0;
      const site = await trial.start({
        latchkey: { leaseMs: 150 },
        policy: { onInFlight: "wait" },
        handler: async () => {
          runs += 1;
          if (runs === 1) throw new Error("boom");
          return json(201, { run: runs });
        },
      });
      site.breakStore(failing("settle"));
      expectProblem(await site.send(), 503, "store-unavailable", "same-key");
      site.repairStore();
      expect(await site.send()).toMatchObject({ status: 201, text: '{"run":2}' });
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "onStoreDown open: the request runs without protection, and an event says so",
    async run(trial) {
      const site = await trial.start({ policy: { onStoreDown: "open" } });
      site.breakStore(failing("reserve"));
      const answer = await site.send();
      expect(answer.status).toBe(201);
      expect(answer.headers["idempotency-expires"]).toBeUndefined();
      expect(site.events).toContainEqual(
        expect.objectContaining({ type: "reserved", outcome: "unprotected", key: "key-1" }),
      );
      expect(site.events).toContainEqual(expect.objectContaining({ type: "store_error", verb: "reserve" }));
      await site.send();
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "the status resource says that it cannot be read while the store is down",
    async run(trial) {
      const site = await trial.start({ latchkey: { statusPath: "/idempotency" } });
      site.breakStore(failing("read"));
      const answer = await site.send({ method: "GET", path: "/idempotency/key-1", key: null });
      expectProblem(answer, 503, "store-unavailable");
      expectRetryAfter(answer);
    },
  },
  {
    name: "a fresh request costs two calls of the store, and a replay one",
    async run(trial) {
      const site = await trial.start();
      await site.send();
      expect(site.store.calls).toMatchObject({ reserve: 1, settle: 1, renew: 0, read: 0 });
      await site.send();
      expect(site.store.calls).toMatchObject({ reserve: 2, settle: 1, renew: 0, read: 0 });
    },
  },
  {
    name: "a duplicate costs nothing while the first request runs in the same process",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        handler: async () => {
          await finish;
          return json(201, {});
        },
      });
      const first = site.send();
      await until("the handler to run", () => site.executions === 1);
      expectProblem(await site.send(), 409, "in-flight");
      expect(site.store.calls).toMatchObject({ reserve: 1, settle: 0, renew: 0, read: 0 });
      finish.resolve();
      await first;
    },
  },
  {
    name: "a request without a key costs nothing where no key is required",
    async run(trial) {
      const site = await trial.start({ policy: { required: false } });
      expect((await site.send({ key: null })).status).toBe(201);
      expect(Object.values(site.store.calls).every((count) => count === 0)).toBe(true);
    },
  },
  {
    name: "methods that are not protected pass untouched, with a key or without",
    async run(trial) {
      const site = await trial.start({
        handler: async (visit) => json(200, { method: visit.method, body: visit.method === "PUT" }),
      });
      for (const method of ["GET", "PUT", "DELETE"]) {
        for (const key of ["key-1", null, 'not;"valid']) {
          const answer = await site.send({ method, key });
          expect(answer.status).toBe(200);
          expect(answer.headers["idempotency-expires"]).toBeUndefined();
        }
      }
      expect(site.executions).toBe(9);
      expect(Object.values(site.store.calls).every((count) => count === 0)).toBe(true);
    },
  },
  {
    name: "a route decides which methods it protects",
    async run(trial) {
      const site = await trial.start({ policy: { methods: ["put"] }, handler: () => json(200, {}) });
      expectReplay(await site.send({ method: "PUT" }), await site.send({ method: "PUT" }));
      expect((await site.send({ method: "POST", key: null })).status).toBe(200);
      expect(site.executions).toBe(2);
    },
  },
];
