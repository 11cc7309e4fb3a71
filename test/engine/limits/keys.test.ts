import { describe, expect, it } from "vitest";
import { UnreadableError } from "../../../src/core/errors.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { answered, arrival, bodyOf, execution } from "../cluster.ts";
import { completed, type Deployment, deployment, fresh, settled, takenIn } from "./deployment.ts";

const second = 1000;
const day = 24 * 3600 * second;

function only({ engines }: Deployment): Engine {
  return engines[0] as Engine;
}

async function kinds(shared: Deployment, count: number, policy = {}): Promise<readonly string[]> {
  const verdicts: string[] = [];
  for (let done = 0; done < count; done += 1) {
    const verdict = await settled(shared.clock, fresh(only(shared), { policy }));
    verdicts.push(verdict.kind);
  }
  return verdicts;
}

describe("a limit on new keys", () => {
  it("refuses a new key when it is used up: nothing is reserved, and it is told", async () => {
    const shared = deployment({ newKeys: { max: 3, perMs: 60 * second } });
    expect(await kinds(shared, 3)).toEqual(["execute", "execute", "execute"]);
    const { reserve } = shared.store.calls;
    const verdict = await settled(shared.clock, fresh(only(shared), { key: "one-too-many" }));
    expect(verdict).toMatchObject({ kind: "limited", refusal: { name: "newKeys", max: 3 } });
    expect(shared.store.calls.reserve).toBe(reserve);
    expect((await shared.store.read({ scope: "acme", key: "one-too-many" })).record).toBeUndefined();
    expect(shared.events).toContainEqual({ type: "limited", tenantScope: "acme", limit: "newKeys" });
    expect(shared.events).toContainEqual(
      expect.objectContaining({ type: "reserved", key: "one-too-many", outcome: "limited" }),
    );
  });

  it("gives retries their answer however many new keys were used", async () => {
    const shared = deployment({ newKeys: { max: 2, perMs: 60 * second } });
    const engine = only(shared);
    await settled(shared.clock, completed(engine, "mine", "acme", "paid"));
    const running = await settled(shared.clock, fresh(engine, { key: "running" }));
    expect((await settled(shared.clock, fresh(engine))).kind).toBe("limited");
    expect(bodyOf(await settled(shared.clock, fresh(engine, { key: "mine" })))).toBe("paid");
    expect((await settled(shared.clock, fresh(engine, { key: "running" }))).kind).toBe("inFlight");
    const reused = engine.arrive(arrival({}, { scope: "acme", key: "mine", fingerprint: "v1:b" }));
    expect((await settled(shared.clock, reused)).kind).toBe("mismatch");
    // What failed may be tried again: it is no new key.
    await execution(running).settle(answered(500));
    expect((await settled(shared.clock, fresh(engine, { key: "running" }))).kind).toBe("execute");
  });

  it("is not used up by retries", async () => {
    const shared = deployment({ newKeys: { max: 100, perMs: 60 * second } }, 2);
    const [first, second_] = shared.engines as [Engine, Engine];
    await settled(shared.clock, completed(first, "mine"));
    for (let count = 0; count < 300; count += 1) {
      expect((await settled(shared.clock, fresh(second_, { key: "mine" }))).kind).toBe("replay");
    }
    expect(await kinds(shared, 99)).not.toContain("limited");
    expect(await kinds(shared, 1)).toEqual(["limited"]);
  });

  it("counts a key whose answer has expired as new again", async () => {
    const policy = { retentionMs: 10 * second };
    const shared = deployment({ newKeys: { max: 1, perMs: 60 * second } });
    const first = await settled(shared.clock, fresh(only(shared), { key: "old", policy }));
    await execution(first).settle(answered(201));
    await shared.clock.advance(11 * second);
    expect((await settled(shared.clock, fresh(only(shared), { key: "old", policy }))).kind).toBe("limited");
  });

  it("lets duplicates of a refused request share its refusal, and its tenant's other keys be", async () => {
    const shared = deployment({ newKeys: { max: 1, perMs: 60 * second } });
    const engine = only(shared);
    await settled(shared.clock, completed(engine, "mine"));
    const twice = Promise.all([fresh(engine, { key: "new" }), fresh(engine, { key: "new" })]);
    expect((await settled(shared.clock, twice)).map(({ kind }) => kind)).toEqual(["limited", "limited"]);
    expect((await settled(shared.clock, fresh(engine, { key: "mine" }))).kind).toBe("replay");
    expect((await settled(shared.clock, fresh(engine, { tenant: "bolt" }))).kind).toBe("execute");
  });

  it("never refuses a worker that comes for what was accepted, and counts what was accepted once", async () => {
    const shared = deployment({ newKeys: { max: 2, perMs: 60 * second } });
    const engine = only(shared);
    const accept = (key: string) =>
      settled(shared.clock, fresh(engine, { key, policy: { onInFlight: "accept" } }));
    for (let count = 0; count < 5; count += 1) expect((await accept("a")).kind).toBe("accepted");
    expect((await accept("b")).kind).toBe("accepted");
    expect((await accept("c")).kind).toBe("limited");
    expect((await accept("a")).kind).toBe("accepted");
    const claim = engine.arrive(
      arrival({ onInFlight: "accept" }, { scope: "acme", key: "a", isClaim: true }),
    );
    expect((await settled(shared.clock, claim)).kind).toBe("execute");
  });

  it("answers that the store is down when it cannot tell a retry from a new key", async () => {
    const shared = deployment({ newKeys: { max: 0, perMs: 60 * second } });
    const broken = { ...shared.store, read: () => Promise.reject(new Error("down")) };
    Object.assign(shared.store, { read: broken.read });
    expect(await kinds(shared, 1)).toEqual(["storeDown"]);
    expect(shared.store.calls.reserve).toBe(0);
  });

  it.each([
    [
      "has an answer that nobody here can read",
      { read: () => Promise.reject(new UnreadableError("sealed")) },
    ],
    ["is done, before the store goes down", { reserve: () => Promise.reject(new Error("down")) }],
  ])("does not run what %s, although the route runs without a store", async (_known, broken) => {
    const policy = { onStoreDown: "open" } as const;
    const shared = deployment({ newKeys: { max: 1, perMs: 60 * second } });
    const engine = only(shared);
    await settled(shared.clock, completed(engine, "mine"));
    Object.assign(shared.store, broken);
    const verdict = await settled(shared.clock, fresh(engine, { key: "mine", policy }));
    expect(verdict).toMatchObject({ kind: "storeDown", isKnown: true });
  });
});

describe("a cap on active keys", () => {
  it("refuses new keys until earlier ones are past their retention", async () => {
    const shared = deployment({ activeKeys: 5 }, 2);
    expect(await kinds(shared, 7)).toEqual([...Array(5).fill("execute"), "limited", "limited"]);
    const other = await settled(shared.clock, fresh(shared.engines[1] as Engine));
    expect(other).toMatchObject({
      kind: "limited",
      refusal: { name: "activeKeys", max: 5, perMs: undefined },
    });
    await shared.clock.advance(day * (1 + 1 / 64) + second);
    expect(await kinds(shared, 1)).toEqual(["execute"]);
  });

  it("is not left half taken by requests that another limit refuses", async () => {
    const shared = deployment({ newKeys: { max: 2, perMs: second }, activeKeys: 4 });
    expect(await kinds(shared, 20)).toContain("limited");
    await shared.clock.advance(3 * second);
    await kinds(shared, 20);
    await shared.clock.advance(3 * second);
    const verdict = await settled(shared.clock, fresh(only(shared)));
    expect(verdict).toMatchObject({ kind: "limited", refusal: { name: "activeKeys" } });
    const created = shared.events.filter((event) => event.type === "reserved" && event.outcome === "created");
    expect(created).toHaveLength(4);
  });
});

describe("several limits at once", () => {
  it("take nothing for a request that one of them refuses", async () => {
    const shared = deployment({ newKeys: { max: 1000, perMs: 60 * second }, activeKeys: 2 });
    expect(await kinds(shared, 40)).toEqual([...Array(2).fill("execute"), ...Array(38).fill("limited")]);
    await shared.clock.advance(300);
    expect(await takenIn(shared, "new")).toBe(2);
    expect(await takenIn(shared, "active")).toBe(2);
  });
});

describe("a cap on stored bytes", () => {
  it("counts what is kept of answers, and refuses new keys when that is too much", async () => {
    const shared = deployment({ storedBytes: 10_000 });
    const engine = only(shared);
    await settled(shared.clock, completed(engine, "large", "acme", "x".repeat(9_800)));
    await shared.clock.advance(300);
    const verdict = await settled(shared.clock, fresh(engine));
    expect(verdict).toMatchObject({ kind: "limited", refusal: { name: "storedBytes" } });
    expect((await settled(shared.clock, fresh(engine, { key: "large" }))).kind).toBe("replay");
  });

  it("does not count what is redacted of an answer: it is not kept", async () => {
    const shared = deployment({ storedBytes: 10_000 });
    const policy = { redact: { body: () => new Uint8Array(10) } };
    const first = await settled(shared.clock, fresh(only(shared), { policy }));
    await execution(first).settle(answered(201, "x".repeat(9_800)));
    await shared.clock.advance(300);
    expect(await takenIn(shared, "bytes")).toBeLessThan(1_000);
    expect((await settled(shared.clock, fresh(only(shared)))).kind).toBe("execute");
  });

  it("has heard of the last answers when a process has drained", async () => {
    const shared = deployment({ storedBytes: 1_000_000 });
    const running = execution(await settled(shared.clock, fresh(only(shared))));
    const draining = only(shared).drain(10 * second);
    await shared.clock.advance(100);
    const before = await takenIn(shared, "bytes");
    await settled(shared.clock, running.settle(answered(201, "x".repeat(100))));
    await settled(shared.clock, draining);
    expect(await takenIn(shared, "bytes")).toBe(before + 100);
  });

  it("counts what a key takes by itself, so that empty answers do not go for nothing", async () => {
    const shared = deployment({ storedBytes: 10_000 });
    const verdicts = await kinds(shared, 60);
    const made = verdicts.filter((kind) => kind === "execute").length;
    expect(made).toBeGreaterThan(20);
    expect(made).toBeLessThan(34);
  });

  it("counts the requests that are kept for workers", async () => {
    const shared = deployment({ storedBytes: 10_000 });
    const request = {
      method: "POST",
      target: "/",
      tenant: "acme",
      headers: [],
      body: new Uint8Array(9_000),
    };
    const policy = { onCrash: "resume" } as const;
    const first = only(shared).arrive(arrival(policy, { scope: "acme", key: "a", request }));
    expect((await settled(shared.clock, first)).kind).toBe("execute");
    const next = only(shared).arrive(arrival(policy, { scope: "acme", key: "b", request }));
    expect((await settled(shared.clock, next)).kind).toBe("limited");
  });
});
