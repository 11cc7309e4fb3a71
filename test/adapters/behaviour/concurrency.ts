import { expect } from "vitest";
import { currentOperation } from "../../../src/index.ts";
import { manualClock } from "../../../src/testing/index.ts";
import { deferred } from "../../support/deferred.ts";
import { json } from "../application.ts";
import { expectProblem, expectReplay, expectRetryAfter } from "../assertions.ts";
import { type Case, until } from "../harness.ts";

const fifty = Array.from({ length: 50 });

export const concurrencyCases: readonly Case[] = [
  {
    name: "of fifty identical requests at once one executes, and 49 are told to come back",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        handler: async () => {
          await finish;
          return json(201, { charged: 10 });
        },
      });
      const answers = fifty.map(() => site.send());
      await until("49 duplicates", () => reserved(site.events, "in_progress") === 49);
      finish.resolve();
      const settled = await Promise.all(answers);
      const refused = settled.filter((answer) => answer.status === 409);
      expect(refused).toHaveLength(49);
      for (const answer of refused) {
        expectProblem(answer, 409, "in-flight", "same-key");
        expectRetryAfter(answer);
      }
      const first = settled.find((answer) => answer.status === 201);
      if (first === undefined) throw new Error("nobody got the answer");
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "fifty identical requests that wait all get the one answer",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        policy: { onInFlight: "wait" },
        handler: async () => {
          await finish;
          return json(201, { charged: 10 });
        },
      });
      const answers = fifty.map(() => site.send());
      await until("the handler to run", () => site.executions === 1);
      finish.resolve();
      const settled = await Promise.all(answers);
      const first = settled.find((answer) => answer.headers["idempotency-replayed"] === undefined);
      if (first === undefined) throw new Error("nobody executed");
      for (const answer of settled) if (answer !== first) expectReplay(first, answer);
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a wait that takes too long ends in 409",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        policy: { onInFlight: "wait", waitMs: 20 },
        handler: async () => {
          await finish;
          return json(201, {});
        },
      });
      const first = site.send();
      await until("the handler to run", () => site.executions === 1);
      const waited = await site.send();
      expectProblem(waited, 409, "in-flight", "same-key");
      expectRetryAfter(waited);
      finish.resolve();
      expectReplay(await first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "another request under a key that is in flight is refused, not answered",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        policy: { onInFlight: "wait" },
        handler: async () => {
          await finish;
          return json(201, {});
        },
      });
      const first = site.send();
      await until("the handler to run", () => site.executions === 1);
      expectProblem(await site.send({ json: { amount: 11 } }), 422, "key-reused", "new-key");
      finish.resolve();
      expectReplay(await first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a refusal while in flight is never stored",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        handler: async () => {
          await finish;
          return json(201, { charged: 10 });
        },
      });
      const first = site.send();
      await until("the handler to run", () => site.executions === 1);
      expectProblem(await site.send(), 409, "in-flight");
      finish.resolve();
      expectReplay(await first, await site.send());
    },
  },
  {
    name: "a handler that takes longer than its lease keeps the key all the while",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        latchkey: { leaseMs: 100 },
        handler: async () => {
          await finish;
          return json(201, {});
        },
      });
      const first = site.send();
      await until("the handler to run", () => site.executions === 1);
      // Three renewals are one lease, so with seven the first lease has been over for long.
      await until("seven renewals", () => site.store.calls.renew >= 7);
      expectProblem(await site.send(), 409, "in-flight");
      finish.resolve();
      expectReplay(await first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "an answer is replayed for as long as it is kept, and then the key is new",
    async run(trial) {
      const clock = manualClock();
      const site = await trial.start({ clock: clock.now, policy: { retentionMs: 60_000 } });
      const first = await site.send();
      await clock.advance(59_000);
      expectReplay(first, await site.send());
      await clock.advance(2_000);
      expect((await site.send({ json: { amount: 11 } })).headers["idempotency-replayed"]).toBeUndefined();
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "the status resource answers 410 once the answer has expired",
    async run(trial) {
      const clock = manualClock();
      const site = await trial.start({
        clock: clock.now,
        latchkey: { statusPath: "/idempotency", expiry: "soft" },
        handler: async () => {
          currentOperation().retainFor(1000);
          return json(201, {});
        },
      });
      const status = () => site.send({ method: "GET", path: "/idempotency/key-1", key: null });
      expectProblem(await status(), 404, "key-not-found");
      const first = await site.send();
      expectReplay(first, await status());
      await clock.advance(1001);
      expectProblem(await status(), 410, "key-expired", "new-key");
      expect(await site.latchkey.reap()).toEqual({ deleted: 0, expired: 1 });
      expectProblem(await status(), 410, "key-expired", "new-key");
      expect((await site.send()).headers["idempotency-replayed"]).toBeUndefined();
      expect(site.executions).toBe(2);
    },
  },
];

function reserved(events: readonly { type: string }[], outcome: string): number {
  return events.filter(
    (event) => event.type === "reserved" && (event as { outcome?: string }).outcome === outcome,
  ).length;
}
