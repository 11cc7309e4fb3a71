import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  createLatchkey,
  type Latchkey,
  type LatchkeyEvent,
  type OutcomeVerdict,
  type ReconcileHook,
  type ReconcileQuestion,
  UnverifiedError,
} from "../../src/index.ts";
import { reconciler } from "../../src/workers/workers.ts";
import { type Business, businesses } from "../support/business.ts";

const request = { tenant: "acme", key: "key-1", input: 1 };
const id = { scope: "acme", key: "key-1" };
const at = { backoff: { baseMs: 0, capMs: 0 } };

describe.each(businesses)("an unknown outcome on %s", (_name, open) => {
  let business: Business;
  let latchkey: Latchkey;
  let events: LatchkeyEvent[];
  let ask: ReconcileHook;

  beforeEach(async () => {
    business = await open();
    events = [];
    ask = () => ({ kind: "unknown" });
    latchkey = createLatchkey({
      store: business.store,
      tenant: "single",
      onCrash: "resume",
      reconcileAfterMs: 0,
      reconcile: (question) => ask(question),
      onEvent: (event) => events.push(event),
    });
  });
  afterEach(async () => {
    await latchkey.close();
    await business.close();
  });

  const policy = { name: "rides" };
  let attempts = 0;
  /** A ride whose charge got no answer. */
  const ride = (charge: () => unknown) =>
    latchkey.run({ ...request, policy }, async (op) => {
      attempts = op.attempt;
      const booked = await op.atomic("booked", async (tx) => {
        await business.book(tx, "ride");
        return { ride: "ride" };
      });
      const charged = await op.effect("charged", charge, { keyed: false });
      return { ...booked, charged };
    });
  const lost = () => Promise.reject(new Error("the answer was lost"));
  const unknown = () => expect(ride(lost)).rejects.toThrow("the answer was lost");
  const reading = async () => (await business.store.read(id)).record;
  const runOnce = (hook: ReconcileHook, options = {}) => {
    ask = hook;
    return reconciler(latchkey, { ...at, ...options }).runOnce();
  };

  it("is asked about with everything that is known, and goes on when the call has happened", async () => {
    await unknown();
    let question: ReconcileQuestion | undefined;
    const counts = await runOnce((asked) => {
      question = asked;
      return { kind: "effect-done", result: { charge: "ch_9" }, reference: "ch_9" };
    });
    expect(counts).toEqual({ resolved: 1, stillUnknown: 0, escalated: 0 });
    expect(question).toMatchObject({
      ...id,
      route: "rides",
      attempt: 1,
      asked: 1,
      reason: expect.stringContaining("may have happened"),
      phases: [
        { kind: "atomic", name: "booked", state: "done", result: { ride: "ride" } },
        { kind: "effect", name: "charged", state: "begun", idempotencyKey: expect.stringMatching(/^lk_/) },
      ],
    });
    expect(await reading()).toMatchObject({
      state: "failed_retryable",
      progress: [{}, { reference: "ch_9" }],
    });
    expect(await ride(lost)).toEqual({ ride: "ride", charged: { charge: "ch_9" } });
    expect(attempts).toBe(2);
    expect(await business.booked()).toEqual(["ride"]);
  });

  it("is executed again once it is proven that nothing happened", async () => {
    await unknown();
    await runOnce(() => ({ kind: "not-executed" }));
    expect(await ride(() => "ch_2")).toEqual({ ride: "ride", charged: "ch_2" });
    expect(await business.booked()).toEqual(["ride"]);
  });

  it("a verdict about one attempt does not settle the next", async () => {
    await unknown();
    let answer: ((verdict: OutcomeVerdict) => void) | undefined;
    const slow = runOnce(
      () =>
        new Promise((resolve) => {
          answer = resolve;
        }),
    );
    await vi.waitFor(() => expect(answer).toBeDefined());
    while (events.every(({ type }) => type !== "reconciled")) {
      await latchkey.resolve({ of: id, verdict: { kind: "not-executed" }, by: "operator" });
    }
    await unknown();
    answer?.({ kind: "not-executed" });
    expect(await slow).toMatchObject({ resolved: 1 });
    expect(await reading()).toMatchObject({ state: "unknown", fence: 2 });
    const late = await latchkey.resolve({
      of: id,
      attempt: 1,
      verdict: { kind: "not-executed" },
      by: "late",
    });
    expect(late).toEqual({ kind: "not-unknown", state: "unknown" });
  });

  it("that has no open call is gone on with, or its call is said again", async () => {
    const doubt = { kind: "suspend", reason: "the answer was lost", reconcileAfterMs: 0 } as const;
    for (const verdict of [{ kind: "effect-done", result: 1 }, { kind: "resume" }] as const) {
      const key = `known-${verdict.kind}`;
      const known = { scope: "acme", key };
      const flow = (isLost: boolean) =>
        latchkey.run({ ...request, key }, async (op) => {
          const charge = await op.effect("charged", () => "ch_1", { keyed: false });
          const record = (await business.store.read(known)).record;
          if (isLost && record?.state === "in_progress") await business.store.settle({ ...record }, doubt);
          return charge;
        });
      await expect(flow(true)).rejects.toMatchObject({ code: "lease-lost" });
      expect(await latchkey.resolve({ of: known, verdict, by: "test" })).toMatchObject({ kind: "resolved" });
      expect(await flow(false)).toBe("ch_1");
    }
  });

  it("with two open calls needs to be told which has happened", async () => {
    const twice = () =>
      latchkey.run(request, async (op) => {
        await op.effect("first", lost, { keyed: false }).catch(() => {});
        return op.effect("second", lost, { keyed: false });
      });
    await expect(twice()).rejects.toThrow("the answer was lost");
    const done = { kind: "effect-done", result: 2 } as const;
    await expect(latchkey.resolve({ of: id, verdict: done, by: "test" })).rejects.toThrow(
      /more than one call is open/,
    );
    await expect(latchkey.resolve({ of: id, verdict: { kind: "resume" }, by: "test" })).rejects.toThrow(
      /in doubt/,
    );
    await latchkey.resolve({ of: id, verdict: { ...done, phase: "second" }, by: "test" });
    expect(await reading()).toMatchObject({ progress: [{ state: "begun" }, { state: "done", result: "2" }] });
  });

  it("is kept for as long as its own request was to be, and strange words do not stop it", async () => {
    const policy = { retentionMs: 30 * 86_400_000 };
    await expect(
      latchkey.run({ ...request, policy }, (op) => op.effect("charged", lost, { keyed: false })),
    ).rejects.toThrow("the answer was lost");
    const verdict = { kind: "not-executed", reason: "nul \0" } as const;
    await latchkey.resolve({ of: id, verdict, by: "half \ud800" });
    const { record, now } = await business.store.read(id);
    expect((record?.expiresAt ?? 0) - now).toBeGreaterThan(29 * 86_400_000);
    expect((await latchkey.audit(id))[0]).toMatchObject({ by: "half \ufffd", reason: "nul \ufffd" });
  });

  it("is completed with the answer that was found", async () => {
    await unknown();
    await runOnce(() => ({ kind: "completed", response: { status: 200, body: { found: true } } }));
    expect(await reading()).toMatchObject({ state: "completed" });
    expect(await ride(lost)).toEqual({ found: true });
    expect(events).toContainEqual({ type: "reconciled", ...id, outcome: "completed", by: "reconciler" });
  });

  it("is asked about again and again, and goes to an operator in the end", async () => {
    await unknown();
    const hook: ReconcileHook = () => ({ kind: "unknown" });
    const options = { attemptsMax: 3 };
    expect(await runOnce(hook, options)).toEqual({ resolved: 0, stillUnknown: 1, escalated: 0 });
    expect(await runOnce(hook, options)).toEqual({ resolved: 0, stillUnknown: 1, escalated: 0 });
    expect(await runOnce(hook, options)).toEqual({ resolved: 0, stillUnknown: 0, escalated: 1 });
    expect(await runOnce(hook, options)).toEqual({ resolved: 0, stillUnknown: 0, escalated: 0 });
    expect(await reading()).toMatchObject({
      state: "unknown",
      escalatedAt: expect.any(Number),
      reason: expect.stringContaining("after 3 questions the provider cannot tell"),
    });
    await expect(ride(lost)).rejects.toMatchObject({ code: "outcome-unknown" });
    const answer = await latchkey.resolve({ of: id, verdict: { kind: "not-executed" }, by: "operator:ana" });
    expect(answer).toMatchObject({ kind: "resolved" });
    expect(await ride(() => "ch_3")).toEqual({ ride: "ride", charged: "ch_3" });
    const trail = (await latchkey.audit(id)).map(({ from, to, by }) => [from, to, by]);
    expect(trail.slice(0, 4)).toEqual([
      ["failed_retryable", "in_progress", expect.any(String)],
      ["unknown", "failed_retryable", "operator:ana"],
      ["unknown", "unknown", "reconciler"],
      ["in_progress", "unknown", expect.any(String)],
    ]);
  });

  it("waits longer after each question", async () => {
    await unknown();
    const patient = { backoff: { baseMs: 60_000, capMs: 60_000 } };
    expect(await runOnce(() => ({ kind: "unknown" }), patient)).toMatchObject({ stillUnknown: 1 });
    expect(await runOnce(() => ({ kind: "not-executed" }), patient)).toMatchObject({ resolved: 0 });
    expect(await reading()).toMatchObject({ state: "unknown", reconcileAttempts: 1 });
  });

  it.each<[string, ReconcileHook, RegExp]>([
    ["throws", () => Promise.reject(new Error("provider down")), /hook failed \(provider down\)/],
    ["never answers", () => new Promise(() => {}), /took longer than 20 ms/],
    [
      "answers nonsense",
      () => ({ kind: "maybe" }) as unknown as OutcomeVerdict,
      /must be completed, effect-done/,
    ],
  ])("stays unknown when the hook %s", async (_how, hook, reason) => {
    await unknown();
    await runOnce(hook, { attemptsMax: 1, askTimeoutMs: 20 });
    expect(await reading()).toMatchObject({ state: "unknown", reason: expect.stringMatching(reason) });
  });

  it("stays unknown when nobody is there to ask, and says so", async () => {
    const deaf = createLatchkey({ store: business.store, tenant: "single" });
    await unknown();
    await reconciler(deaf, { ...at, attemptsMax: 1 }).runOnce();
    expect(await reading()).toMatchObject({
      escalatedAt: expect.any(Number),
      reason: expect.stringContaining("the route has no reconcile hook"),
    });
  });

  it("is asked about through the hook of its route, given to a worker that does not mount it", async () => {
    await unknown();
    const hooks = { rides: () => ({ kind: "not-executed" }) as const };
    ask = () => ({ kind: "unknown" });
    expect(await reconciler(latchkey, { ...at, hooks }).runOnce()).toMatchObject({ resolved: 1 });
  });

  it("is settled by two workers at once only once", async () => {
    await unknown();
    let asked = 0;
    const hook: ReconcileHook = () => {
      asked += 1;
      return { kind: "not-executed" };
    };
    const patient = { backoff: { baseMs: 60_000, capMs: 60_000 } };
    await Promise.all([runOnce(hook, patient), runOnce(hook, patient)]);
    expect(asked).toBe(1);
  });

  describe("and a provider's webhook", () => {
    const verdict = { kind: "effect-done", result: "ch_7" } as const;

    it("settles it, once, however often it is sent", async () => {
      await unknown();
      const webhook = { of: { tenant: "acme", key: "key-1" }, verdict, by: "webhook", verify: () => true };
      expect(await latchkey.resolve(webhook)).toMatchObject({ kind: "resolved" });
      expect(await latchkey.resolve(webhook)).toEqual({ kind: "not-unknown", state: "failed_retryable" });
      expect(await ride(lost)).toEqual({ ride: "ride", charged: "ch_7" });
      expect(await latchkey.resolve(webhook)).toEqual({ kind: "not-unknown", state: "completed" });
    });

    it("that is not signed changes nothing", async () => {
      await unknown();
      for (const verify of [() => false, async () => false]) {
        await expect(latchkey.resolve({ of: id, verdict, by: "webhook", verify })).rejects.toThrow(
          UnverifiedError,
        );
      }
      expect(await reading()).toMatchObject({ state: "unknown" });
    });

    it("that comes before the outcome is in doubt is told so", async () => {
      const during: unknown[] = [];
      await ride(async () => {
        during.push(await latchkey.resolve({ of: id, verdict, by: "webhook" }));
        return "ch_1";
      });
      expect(during).toEqual([{ kind: "not-unknown", state: "in_progress" }]);
      const other = { scope: "acme", key: "never seen" };
      expect(await latchkey.resolve({ of: other, verdict, by: "webhook" })).toEqual({
        kind: "not-unknown",
        state: "absent",
      });
    });

    it("cannot say that a call has happened where none is open", async () => {
      await expect(
        latchkey.run({ ...request, policy: { onServerError: "reconcile" } }, () =>
          Promise.reject(new Error("5xx")),
        ),
      ).rejects.toThrow("5xx");
      await expect(latchkey.resolve({ of: id, verdict, by: "webhook" })).rejects.toThrow(
        /no such external call of this operation is open/,
      );
      expect(await reading()).toMatchObject({ state: "unknown" });
    });
  });
});

describe("a route with a reconcile hook", () => {
  it("needs a name, and one of its own", async () => {
    const { idempotent } = await import("../../src/adapters/express.ts");
    const { memoryStore } = await import("../../src/stores/memory/store.ts");
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    const reconcile = () => ({ kind: "unknown" }) as const;
    expect(() => idempotent(latchkey, { reconcile })).toThrow(/needs a name/);
    idempotent(latchkey, { reconcile, name: "rides" });
    idempotent(latchkey, { reconcile, name: "rides" });
    expect(() => idempotent(latchkey, { reconcile: () => ({ kind: "unknown" }), name: "rides" })).toThrow(
      /two routes are named "rides"/,
    );
    expect(() => idempotent(latchkey, { reconcile: 1 as never, name: "x" })).toThrow(/must be a function/);
    await latchkey.close();
  });
});
