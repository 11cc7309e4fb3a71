import { expect } from "vitest";
import { asRecorded } from "../../../src/index.ts";
import { completer, dispatchTo } from "../../../src/workers/workers.ts";
import { deferred } from "../../support/deferred.ts";
import { json } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import type { Case, SiteOptions } from "../harness.ts";

/** Keys belong to the session that a header names; the worker is known by a header of its own. */
const bySession: SiteOptions = {
  routeBinding: (header) => (header("x-worker") === "yes" ? asRecorded : header("x-session")),
  latchkey: { statusPath: "/idempotency", tenant: () => "acme" },
};

const from = (session: string) => ({ headers: { "x-session": session } });

export const bindingCases: readonly Case[] = [
  {
    name: "a key answers the session that made it, and is another request to every other one",
    async run(trial) {
      const site = await trial.start(bySession);
      const first = await site.send(from("s1"));
      expect(first.status).toBe(201);
      expectReplay(first, await site.send(from("s1")));
      const stolen = await site.send(from("s2"));
      expectProblem(stolen, 422, "key-reused", "new-key");
      // Nothing in the refusal says whether it was the session or the body.
      const wrong = await site.send({ ...from("s2"), json: { amount: 11 } });
      expect(wrong.text).toBe(stolen.text);
      expectReplay(first, await site.send(from("s1")));
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a key that is in use by one session cannot be joined by another",
    async run(trial) {
      const go = deferred();
      const site = await trial.start({
        ...bySession,
        policy: { onInFlight: "wait" },
        handler: async () => {
          await go;
          return json(201, { secret: 42 });
        },
      });
      const first = site.send(from("s1"));
      while (site.executions === 0) await new Promise((resolve) => setImmediate(resolve));
      expectProblem(await site.send(from("s2")), 422, "key-reused");
      go.resolve();
      expect((await first).status).toBe(201);
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a request without the session that its route asks for is refused, and nothing runs",
    async run(trial) {
      const site = await trial.start(bySession);
      expectProblem(await site.send(), 401, "session-missing", "same-key");
      // Only a worker's claim goes on under the session of the record.
      expectProblem(await site.send({ headers: { "x-worker": "yes" } }), 401, "session-missing");
      expect(site.executions).toBe(0);
      expect(site.store.calls.reserve).toBe(0);
    },
  },
  {
    name: "the status resource shows a session its own requests, and of others nothing",
    async run(trial) {
      const site = await trial.start(bySession);
      await site.send(from("s1"));
      const ask = (session: string, key = "key-1") =>
        site.send({ method: "GET", path: `/idempotency/${key}`, key: null, ...from(session) });
      expect((await ask("s1")).status).toBe(201);
      const foreign = await ask("s2");
      const absent = await ask("s2", "key-2");
      expectProblem(foreign, 404, "key-not-found");
      expect(foreign.text).toBe(absent.text);
      expectProblem(
        await site.send({ method: "GET", path: "/idempotency/key-1", key: null }),
        401,
        "session-missing",
      );
    },
  },
  {
    name: "a worker finishes what a session began, and nobody else does by posing as one",
    async run(trial) {
      const site = await trial.start({ ...bySession, policy: { onInFlight: "accept" } });
      expect((await site.send(from("s1"))).status).toBe(202);
      const posing = await site.send({ headers: { "x-session": "s2", "latchkey-claim": "true" } });
      expectProblem(posing, 422, "key-reused");
      expect(site.executions).toBe(0);
      const worker = completer(site.latchkey, {
        dispatch: dispatchTo(site.origin, () => ({ "x-worker": "yes" })),
      });
      expect(await worker.runOnce()).toEqual({ dispatched: 1, failed: 0, gaveUp: 0 });
      expect(site.executions).toBe(1);
      expect((await site.send(from("s1"))).headers["idempotency-replayed"]).toBe("true");
      expectProblem(await site.send(from("s2")), 422, "key-reused");
    },
  },
];
