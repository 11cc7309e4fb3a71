import { describe, expect, it } from "vitest";
import { deployment, fresh, lookUp, mostInWindow, settled, spray } from "./deployment.ts";

const second = 1000;

describe("a rate that several processes share", () => {
  for (const max of [10, 100, 1000]) {
    it(`lets in ${max} in a second, from all together, and hardly ever less`, async () => {
      const shared = deployment({ lookUps: { max, perMs: second } }, 4);
      shared.latencyMs = 2;
      const perMs = Math.max(1, Math.floor(1000 / max));
      const forMs = 6 * second;
      const admitted = await spray(shared, {
        forMs,
        everyMs: Math.min(perMs, 20),
        arrive: async (engine) => (await lookUp(engine)) === undefined,
      });
      const most = mostInWindow(admitted, second);
      // Each process may begin with a hundredth before it has asked.
      expect(most).toBeLessThanOrEqual(max * 1.04);
      expect(admitted.length).toBeGreaterThanOrEqual(max * 5 * 0.95);
      expect(admitted.length).toBeLessThanOrEqual(max * 6 * 1.05);
    });
  }

  it("is not asked for with each request", async () => {
    const shared = deployment({ lookUps: { max: 100_000, perMs: second } }, 2);
    shared.latencyMs = 2;
    const admitted = await spray(shared, {
      forMs: 2 * second,
      everyMs: 1,
      arrive: async (engine) => (await lookUp(engine)) === undefined,
    });
    expect(admitted).toHaveLength(4000);
    expect(shared.noteCalls()).toBeLessThan(200);
  });

  it("refuses at once and without the store for as long as nothing can be free", async () => {
    const shared = deployment({ lookUps: { max: 10, perMs: 60 * second } });
    const [engine] = shared.engines as [(typeof shared.engines)[number]];
    for (let count = 0; count < 10; count += 1) {
      expect(await settled(shared.clock, lookUp(engine))).toBeUndefined();
    }
    const refusal = await settled(shared.clock, lookUp(engine));
    expect(refusal).toMatchObject({ name: "lookUps", max: 10, perMs: 60 * second });
    expect(refusal?.retryAfterMs).toBeGreaterThan(58 * second);
    expect(refusal?.retryAfterMs).toBeLessThan(62 * second);
    const calls = shared.noteCalls();
    for (let count = 0; count < 1000; count += 1) {
      expect(engine.limits?.lookUp({ tenant: "acme", tenantScope: "acme", isClaim: false })).toMatchObject({
        name: "lookUps",
      });
    }
    expect(shared.noteCalls()).toBe(calls);
    expect(shared.events.filter(({ type }) => type === "limited")).toHaveLength(1001);
    expect(shared.events).toContainEqual({ type: "limited", tenantScope: "acme", limit: "lookUps" });
    await shared.clock.advance(62 * second);
    expect(await settled(shared.clock, lookUp(engine))).toBeUndefined();
  });

  it("is each tenant's own", async () => {
    const shared = deployment({ lookUps: { max: 10, perMs: 60 * second } }, 2);
    await spray(shared, {
      forMs: second,
      everyMs: 10,
      arrive: async (engine) => (await lookUp(engine)) === undefined,
    });
    for (const engine of shared.engines) {
      expect(await settled(shared.clock, lookUp(engine, { tenant: "bolt" }))).toBeUndefined();
    }
  });

  it("begins for a tenant that nobody knows without asking, and tells of it afterwards", async () => {
    const shared = deployment({ lookUps: { max: 1000, perMs: 60 * second } });
    const [engine] = shared.engines as [(typeof shared.engines)[number]];
    for (let count = 0; count < 10; count += 1) {
      expect(engine.limits?.lookUp({ tenant: "acme", tenantScope: "acme", isClaim: false })).toBeUndefined();
    }
    expect(shared.noteCalls()).toBe(0);
    await shared.clock.advance(300);
    const { notes } = await shared.store.notes.read(["limits:acme"]);
    expect(notes[0]?.value).toMatch(/looks:\w+\.a\|/);
  });

  it("leaves nothing behind when a tenant does nothing any more", async () => {
    const shared = deployment({ lookUps: { max: 1000, perMs: second } });
    const [engine] = shared.engines as [(typeof shared.engines)[number]];
    await settled(shared.clock, lookUp(engine));
    await shared.clock.advance(300);
    expect((await shared.store.notes.read(["limits:acme"])).notes[0]).toBeDefined();
    await shared.clock.advance(5 * second);
    expect((await shared.store.notes.read(["limits:acme"])).notes[0]).toBeUndefined();
  });

  it("is looked up for each tenant, and again when it may have changed", async () => {
    const plans = new Map([["acme", 20]]);
    const shared = deployment({
      lookUps: { max: 1, perMs: 60 * second },
      of: (tenant) => {
        const max = plans.get(tenant);
        return max === undefined ? undefined : { lookUps: { max, perMs: 60 * second } };
      },
    });
    const arrive = async (engine: (typeof shared.engines)[number]) => (await lookUp(engine)) === undefined;
    expect(await spray(shared, { forMs: second, everyMs: 10, arrive })).toHaveLength(20);
    plans.set("acme", 25);
    await shared.clock.advance(2 * second);
    expect(await spray(shared, { forMs: second, everyMs: 10, arrive })).toHaveLength(5);
    const bolt = await spray(shared, {
      forMs: second,
      everyMs: 10,
      arrive: async (engine) => (await lookUp(engine, { tenant: "bolt" })) === undefined,
    });
    expect(bolt).toHaveLength(1);
  });

  it("counts a worker's visits apart, so that a client's spray does not stop what is half done", async () => {
    const shared = deployment({ lookUps: { max: 10, perMs: 60 * second } });
    const [engine] = shared.engines as [(typeof shared.engines)[number]];
    await spray(shared, {
      forMs: second,
      everyMs: 10,
      arrive: async () => (await lookUp(engine)) === undefined,
    });
    const claims = await spray(shared, {
      forMs: second,
      everyMs: 10,
      arrive: async () => (await lookUp(engine, { isClaim: true })) === undefined,
    });
    expect(claims).toHaveLength(10);
  });

  it("of new keys brings one of look-ups with it, ten times as high, unless that is given", async () => {
    const shared = deployment({ newKeys: { max: 3, perMs: 60 * second } });
    const arrive = async (engine: (typeof shared.engines)[number]) => (await lookUp(engine)) === undefined;
    expect(await spray(shared, { forMs: second, everyMs: 10, arrive })).toHaveLength(30);
    const own = deployment({
      newKeys: { max: 3, perMs: 60 * second },
      lookUps: { max: 4, perMs: 60 * second },
    });
    expect(await spray(own, { forMs: second, everyMs: 10, arrive })).toHaveLength(4);
  });

  it("forgets tenants that were not seen for long, and not what they have used", async () => {
    const shared = deployment({ lookUps: { max: 2, perMs: 60 * second } });
    const [engine] = shared.engines as [(typeof shared.engines)[number]];
    expect(await settled(shared.clock, lookUp(engine))).toBeUndefined();
    expect(await settled(shared.clock, lookUp(engine))).toBeUndefined();
    await shared.clock.advance(second);
    const others: Promise<unknown>[] = [];
    for (let count = 0; count < 10_050; count += 1) others.push(lookUp(engine, { tenant: `other-${count}` }));
    await settled(shared.clock, Promise.all(others));
    expect(await settled(shared.clock, lookUp(engine))).toMatchObject({ name: "lookUps" });
  }, 30_000);
});

describe("a store that does not answer about limits", () => {
  it("stops nobody: each process keeps the limit by itself, by what it last knew", async () => {
    const shared = deployment({ lookUps: { max: 20, perMs: second } });
    const [engine] = shared.engines as [(typeof shared.engines)[number]];
    for (let count = 0; count < 50; count += 1) shared.noteFaults.push({ kind: "failBefore" });
    const admitted = await spray(shared, {
      forMs: 5 * second,
      everyMs: 10,
      arrive: async () => (await lookUp(engine)) === undefined,
    });
    expect(admitted.length).toBeGreaterThanOrEqual(90);
    expect(mostInWindow(admitted, second)).toBeLessThanOrEqual(20);
    expect(shared.events).toContainEqual(expect.objectContaining({ type: "store_error", verb: "notes" }));
    // Once a second it is tried again.
    expect(shared.noteCalls()).toBeLessThanOrEqual(6);
  });

  it("is not waited for: after a second the process decides by itself", async () => {
    const shared = deployment({ newKeys: { max: 10, perMs: 60 * second } });
    const [engine] = shared.engines as [(typeof shared.engines)[number]];
    shared.noteFaults.push({ kind: "delay", ms: 4 * second });
    const askedAt = shared.clock.now();
    const verdict = await settled(shared.clock, fresh(engine));
    expect(verdict.kind).toBe("execute");
    expect(shared.clock.now() - askedAt).toBeLessThan(1100);
  });

  it("hears of what was let in meanwhile when it is back, and once only if an answer was lost", async () => {
    const shared = deployment({ activeKeys: 1000 });
    const [engine] = shared.engines as [(typeof shared.engines)[number]];
    await settled(shared.clock, fresh(engine));
    await shared.clock.advance(300);
    shared.noteFaults.push({ kind: "failAfter" }, { kind: "failBefore" });
    for (let count = 0; count < 30; count += 1) {
      await settled(shared.clock, fresh(engine));
      await shared.clock.advance(100);
    }
    await shared.clock.advance(3 * second);
    const { notes } = await shared.store.notes.read(["limits:acme"]);
    expect(takenIn(notes[0]?.value ?? "", "active")).toBe(31);
  });
});

function takenIn(text: string, meter: string): number {
  const [, amounts = ""] = new RegExp(`${meter}:([^|]*)`).exec(text) ?? [];
  return amounts
    .split(",")
    .map((one) => Number.parseInt(one.split(".")[1] ?? "0", 36))
    .reduce((sum, amount) => sum + amount, 0);
}
