import { expect } from "vitest";
import { currentOperation } from "../../../src/index.ts";
import { deferred } from "../../support/deferred.ts";
import { empty, fail, type Handler, json, pieces, type Reply, text, twice } from "../application.ts";
import { expectProblem, expectReplay, expectRetryAfter } from "../assertions.ts";
import { type Case, until } from "../harness.ts";

const noHttpErrors = "there are no HTTP errors to throw: a handler answers what it wants to be answered";

/** Fails the first time in the given way, and works from then on. */
function failingOnce(fault: () => Reply | Promise<Reply>): Handler {
  let runs = 0;
  return () => {
    runs += 1;
    return runs === 1 ? fault() : json(201, { run: runs });
  };
}

function thrown(): never {
  throw new Error("boom");
}

async function rejected(): Promise<never> {
  await Promise.resolve();
  throw new Error("boom");
}

const ways = { "that throws": thrown, "whose promise rejects": rejected };

function throwCases(name: string, run: (fault: () => Promise<never>) => Case["run"]): Case[] {
  return Object.entries(ways).map(([way, fault]) => ({
    name: name.replace("that fails", way),
    run: run(fault as () => Promise<never>),
  }));
}

export const failureCases: readonly Case[] = [
  ...throwCases("a handler that fails is a 500 to its client, and the retry executes", (fault) => {
    return async (trial) => {
      const site = await trial.start({ handler: failingOnce(fault) });
      const first = await site.send();
      expect(first.status).toBe(500);
      expect(first.headers["idempotency-replayed"]).toBeUndefined();
      const second = await site.send();
      expect(second).toMatchObject({ status: 201, text: '{"run":2}' });
      expectReplay(second, await site.send());
      expect(site.executions).toBe(2);
    };
  }),
  ...throwCases("with onServerError store, what a handler that fails answered is replayed", (fault) => {
    return async (trial) => {
      const site = await trial.start({
        policy: { onServerError: "store" },
        handler: failingOnce(fault),
      });
      const first = await site.send();
      expect(first.status).toBe(500);
      expect(first.text).not.toBe("");
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    };
  }),
  ...throwCases("with onServerError reconcile, nobody knows what a handler that fails has done", (fault) => {
    return async (trial) => {
      const site = await trial.start({
        policy: { onServerError: "reconcile" },
        handler: failingOnce(fault),
      });
      expect((await site.send()).status).toBe(500);
      const retry = await site.send();
      expectProblem(retry, 409, "outcome-unknown", "same-key");
      expectRetryAfter(retry);
      expect(site.executions).toBe(1);
    };
  }),
  {
    name: "the attempt is counted, so that a handler can look before it leaps",
    async run(trial) {
      const attempts: number[] = [];
      const site = await trial.start({
        handler: async () => {
          attempts.push(currentOperation().attempt);
          if (attempts.length === 1) throw new Error("boom");
          return json(201, {});
        },
      });
      await site.send();
      await site.send();
      expect(attempts).toEqual([1, 2]);
    },
  },
  {
    name: "a handler that answers 503 itself can be tried again",
    async run(trial) {
      const site = await trial.start({ handler: failingOnce(() => json(503, { error: "busy" })) });
      expect((await site.send()).status).toBe(503);
      expect((await site.send()).status).toBe(201);
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "a 500 that the handler answers itself is replayed where server errors are stored",
    async run(trial) {
      const site = await trial.start({
        policy: { onServerError: "store" },
        handler: () => json(500, { error: "the ledger is closed" }),
      });
      const first = await site.send();
      expect(first.text).toBe('{"error":"the ledger is closed"}');
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "an HTTP error below 500 is stored and replayed as the application rendered it",
    except: { node: noHttpErrors, fetch: noHttpErrors },
    async run(trial) {
      for (const later of [false, true]) {
        const site = await trial.start({
          handler: () => {
            const reply = fail(402, "the card was declined");
            return later ? Promise.resolve(reply) : reply;
          },
        });
        const first = await site.send();
        expect(first).toMatchObject({ status: 402, text: '{"error":"the card was declined"}' });
        expect(first.headers["content-type"]).toMatch(/^application\/json\b/);
        expectReplay(first, await site.send());
        expect(site.executions).toBe(1);
      }
    },
  },
  {
    name: "an HTTP error of 500 and above can be tried again",
    except: { node: noHttpErrors, fetch: noHttpErrors },
    async run(trial) {
      const site = await trial.start({ handler: failingOnce(() => fail(503, "the bank is closed")) });
      expect(await site.send()).toMatchObject({ status: 503, text: '{"error":"the bank is closed"}' });
      expect((await site.send()).status).toBe(201);
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "a 429 from a handler is not kept",
    async run(trial) {
      const site = await trial.start({
        handler: failingOnce(() => json(429, { error: "slow down" }, [["retry-after", "1"]])),
      });
      const first = await site.send();
      expect(first.status).toBe(429);
      expect(first.headers["idempotency-expires"]).toBeUndefined();
      expect((await site.send()).status).toBe(201);
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "of two answers the first counts",
    except: {
      fetch: "a function that returns its answer cannot answer twice",
      hono: "a function that returns its answer cannot answer twice",
    },
    async run(trial) {
      const seconds: readonly Reply[] = [
        text(500, "second, and longer", [["location", "/second"]]),
        pieces(["second ", "in pieces"], [["location", "/second"]]),
        empty(200),
      ];
      for (const second of seconds) {
        const site = await trial.start({ handler: () => twice(text(200, "first"), second) });
        const first = await site.send();
        expect(first).toMatchObject({ status: 200, text: "first" });
        expect(first.headers.location).toBeUndefined();
        expectReplay(first, await site.send());
        expect(site.executions).toBe(1);
      }
    },
  },
  {
    name: "a handler that never answers is a 504 to its client, and its outcome is not known",
    async run(trial) {
      const finish = deferred();
      const site = await trial.start({
        // Enough for a service behind a gateway to get the request: what has not been sent by then is not sent.
        policy: { executionTimeoutMs: 200 },
        handler: async () => {
          await finish;
          return json(201, { too: "late" });
        },
      });
      const first = await site.send();
      expectProblem(first, 504, "execution-timeout", "same-key");
      expectRetryAfter(first);
      await site.happened("settled", (event) => event.as === "unknown");
      expectProblem(await site.send(), 409, "outcome-unknown", "same-key");

      finish.resolve();
      await new Promise((resolve) => setImmediate(resolve));
      expectProblem(await site.send(), 409, "outcome-unknown", "same-key");
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a handler that fails after its time is up harms nobody",
    async run(trial) {
      const aborted = deferred();
      const site = await trial.start({
        policy: { executionTimeoutMs: 30 },
        handler: async (visit) => {
          if (visit.method === "GET") return text(200, "still here");
          const { signal } = currentOperation();
          await new Promise((_, reject) =>
            signal.addEventListener("abort", () => reject(signal.reason)),
          ).finally(() => aborted.resolve());
          return json(201, {});
        },
      });
      expectProblem(await site.sendKept(), 504, "execution-timeout");
      await aborted;
      expect((await site.sendKept({ method: "GET" })).text).toBe("still here");
      expectProblem(await site.send(), 409, "outcome-unknown");
    },
  },
  {
    name: "with onCrash retry a handler that never answers is tried again once its lease has run out",
    async run(trial) {
      let runs = 0;
      const site = await trial.start({
        latchkey: { leaseMs: 100 },
        policy: { executionTimeoutMs: 200, onCrash: "retry" },
        handler: () => {
          runs += 1;
          return runs === 1 ? new Promise(() => {}) : json(201, {});
        },
      });
      expectProblem(await site.send(), 504, "execution-timeout");
      let retry = await site.send();
      while (retry.status === 409) {
        expectProblem(retry, 409, "in-flight");
        await until("a moment", () => true);
        retry = await site.send();
      }
      expect(retry.status).toBe(201);
      expect(site.executions).toBe(2);
    },
  },
];
