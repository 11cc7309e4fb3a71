import { describe, expect, it } from "vitest";
import { ExecutionTimeoutError, LeaseLostError } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/store.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { answered, arrival, bodyOf, cluster, execution, leaseMs, pausable, response } from "./cluster.ts";

describe("one execution", () => {
  it("a fresh request costs two store calls, a replay one", async () => {
    const { engine: start, store } = cluster();
    const engine = start();
    await execution(await engine.arrive(arrival())).settle(answered(201, "done"));
    expect({ ...store.calls }).toMatchObject({ reserve: 1, settle: 1, renew: 0, read: 0 });
    expect(bodyOf(await engine.arrive(arrival()))).toBe("done");
    expect({ ...store.calls }).toMatchObject({ reserve: 2, settle: 1, renew: 0, read: 0 });
  });

  it("the same key with another fingerprint is a mismatch", async () => {
    const engine = cluster().engine();
    await execution(await engine.arrive(arrival())).settle(answered(201));
    expect(await engine.arrive(arrival({}, { fingerprint: "v1:b" }))).toEqual({ kind: "mismatch" });
  });

  it("the first outcome counts, a second one learns what became of it", async () => {
    const engine = cluster().engine();
    const running = execution(await engine.arrive(arrival()));
    const first = running.settle(answered(201, "first"));
    const second = running.settle(answered(500, "second"));
    expect(await second).toBe(await first);
    expect(bodyOf(await engine.arrive(arrival()))).toBe("first");
  });

  it.each([
    ["retry", "execute", 2],
    ["store", "replay", undefined],
    ["reconcile", "unknown", undefined],
  ] as const)("a 500 under onServerError %s makes the retry %s", async (onServerError, kind, attempt) => {
    const engine = cluster().engine();
    const policy = arrival({ onServerError });
    await execution(await engine.arrive(policy)).settle(answered(500));
    const verdict = await engine.arrive(policy);
    expect(verdict.kind).toBe(kind);
    if (attempt !== undefined) expect(execution(verdict).attempt).toBe(attempt);
  });

  it("a throw counts as a server error, whatever status its client is told", async () => {
    const engine = cluster().engine();
    const outcome = { kind: "threw", error: new Error("broken"), response: response(400) } as const;
    await execution(await engine.arrive(arrival())).settle(outcome);
    expect((await engine.arrive(arrival())).kind).toBe("execute");
  });

  it.each([408, 425, 429])("a %i says that nothing was processed, and is not replayed", async (status) => {
    const engine = cluster().engine();
    await execution(await engine.arrive(arrival({ onServerError: "store" }))).settle(answered(status));
    expect((await engine.arrive(arrival())).kind).toBe("execute");
  });

  it.each([200, 201, 204, 301, 400, 402, 404, 409, 422])(
    "a %i is the answer for every retry",
    async (status) => {
      const engine = cluster().engine();
      await execution(await engine.arrive(arrival())).settle(answered(status));
      expect((await engine.arrive(arrival())).kind).toBe("replay");
    },
  );

  it("an answer can be kept for longer than the route says", async () => {
    const { clock, engine: start } = cluster();
    const engine = start();
    const policy = arrival({ retentionMs: 1000 });
    const running = execution(await engine.arrive(policy));
    running.retainFor(60_000);
    const settled = await running.settle(answered(201));
    expect(settled).toMatchObject({ kind: "stored", expiresAt: clock.now() + 60_000 });
    await clock.advance(59_000);
    expect((await engine.arrive(policy)).kind).toBe("replay");
    await clock.advance(2_000);
    expect((await engine.arrive(policy)).kind).toBe("execute");
    expect(() => running.retainFor(0)).toThrow(RangeError);
  });

  it("but not for less than the route says where late arrivals are refused, or a retry could run in between", async () => {
    const { clock, engine: start } = cluster();
    const running = execution(
      await start().arrive(arrival({ retentionMs: 60_000, lateArrivals: "reject", clockSkewMs: 0 })),
    );
    running.retainFor(1000);
    expect(await running.settle(answered(201))).toMatchObject({ expiresAt: clock.now() + 60_000 });
  });
});

describe("the lease", () => {
  it("a heartbeat keeps a slow handler's key for as long as it runs", async () => {
    const { clock, engine: start, store } = cluster();
    const [first, second] = [start(), start()];
    const running = execution(await first.arrive(arrival({ onCrash: "retry" })));
    await clock.advance(10 * leaseMs);
    expect((await second.arrive(arrival({ onCrash: "retry" }))).kind).toBe("inFlight");
    expect(store.calls.renew).toBe(30);
    expect(running.signal.aborted).toBe(false);
    expect((await running.settle(answered(201))).kind).toBe("stored");
    await clock.advance(10 * leaseMs);
    expect(store.calls.renew).toBe(30);
  });

  it("one heartbeat renews every lease of the process", async () => {
    const { clock, engine: start, store } = cluster();
    const engine = start();
    for (let index = 0; index < 20; index += 1) await engine.arrive(arrival({}, { key: `key-${index}` }));
    await clock.advance(leaseMs / 3);
    expect(store.calls.renew).toBe(1);
  });

  it("a lease of which the store does not know what became is told to stop in time, and no other", async () => {
    const { clock, engine: start } = cluster({
      store(clock) {
        const whole = memoryStore({ clock: clock.now });
        const renewAll = whole.renew.bind(whole);
        // A part of the store cannot be asked: the one that has the second key.
        const renew: Store["renew"] = async (leases, leaseMs) =>
          (await renewAll(leases, leaseMs)).map((answer, index) =>
            leases[index]?.key === "second" ? "unknown" : answer,
          );
        return Object.assign(whole, { renew });
      },
    });
    const engine = start();
    const [first, second] = await Promise.all(
      ["first", "second"].map(async (key) => execution(await engine.arrive(arrival({}, { key })))),
    );
    await clock.advance(leaseMs - 1);
    expect(second?.signal.aborted).toBe(false);
    await clock.advance(leaseMs);
    expect(second?.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(first?.signal.aborted).toBe(false);
  });

  it("a stale owner, paused past its lease, can neither complete nor release, and learns that it lost", async () => {
    const { clock, engine: start, events } = cluster();
    const frozen = pausable(clock);
    const [first, second] = [start(frozen), start()];
    const stale = execution(await first.arrive(arrival({ onCrash: "retry" })));
    const { signal } = stale;
    frozen.pause();
    await clock.advance(leaseMs + 1);
    const current = execution(await second.arrive(arrival({ onCrash: "retry" })));
    expect(current.attempt).toBe(2);
    frozen.resume();
    expect(await stale.settle(answered(201, "stale"))).toEqual({ kind: "lost" });
    expect(signal.aborted && signal.reason).toBeInstanceOf(LeaseLostError);
    expect(events).toContainEqual(expect.objectContaining({ type: "lease_lost", attempt: 1 }));
    await current.settle(answered(201, "current"));
    expect(bodyOf(await first.arrive(arrival()))).toBe("current");
  });

  it("a stale owner that only wakes up is told by its heartbeat, before it answers", async () => {
    const { clock, engine: start } = cluster();
    const frozen = pausable(clock);
    const [first, second] = [start(frozen), start()];
    const stale = execution(await first.arrive(arrival({ onCrash: "retry" })));
    frozen.pause();
    await clock.advance(leaseMs + 1);
    await second.arrive(arrival({ onCrash: "retry" }));
    frozen.resume();
    await clock.advance(1);
    expect(stale.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(await stale.settle(answered(201))).toEqual({ kind: "lost" });
  });

  it("an owner that cannot reach the store past its lease is told to stop, and may still settle", async () => {
    const { clock, engine: start, faults } = cluster();
    const engine = start();
    const running = execution(await engine.arrive(arrival()));
    faults.push(...Array.from({ length: 3 }, () => ({ kind: "failBefore" }) as const));
    await clock.advance(leaseMs);
    expect(running.signal.reason).toBeInstanceOf(LeaseLostError);
    expect((await running.settle(answered(201))).kind).toBe("stored");
  });

  it("a lease that the store could not ask for is missed until it is over, and the others of the heartbeat are held", async () => {
    const { clock, engine: start, store } = cluster();
    const engine = start();
    const fine = execution(await engine.arrive(arrival({}, { key: "fine" })));
    const missed = execution(await engine.arrive(arrival({}, { key: "missed" })));
    const renew = store.renew.bind(store);
    store.renew = async (leases, ms) => {
      const asked = leases.filter(({ key }) => key !== "missed");
      const answers = await renew(asked, ms);
      return leases.map((lease) => answers[asked.indexOf(lease)] ?? "unknown");
    };
    await clock.advance((leaseMs * 2) / 3);
    expect(missed.signal.aborted).toBe(false);
    await clock.advance(leaseMs / 3);
    expect(missed.signal.reason).toBeInstanceOf(LeaseLostError);
    await clock.advance(10 * leaseMs);
    expect(fine.signal.aborted).toBe(false);
    expect((await fine.settle(answered(201))).kind).toBe("stored");
  });

  it("a lease that was let go is not renewed when the store is back: somebody else may begin", async () => {
    const { clock, engine: start, faults } = cluster();
    const [first, second] = [start(), start()];
    const policy = arrival({ onCrash: "retry" });
    const running = execution(await first.arrive(policy));
    faults.push(...Array.from({ length: 3 }, () => ({ kind: "failBefore" }) as const));
    await clock.advance(leaseMs);
    expect(running.signal.aborted).toBe(true);
    await clock.advance(leaseMs);
    expect((await second.arrive(policy)).kind).toBe("execute");
  });

  it("a lease that has just begun is left out of the heartbeat: short requests cost no renewal", async () => {
    const { clock, engine: start, store } = cluster();
    const engine = start();
    await execution(await engine.arrive(arrival())).settle(answered(201));
    await clock.advance(leaseMs / 3 - 100);
    const running = execution(await engine.arrive(arrival({}, { key: "later" })));
    await clock.advance(100);
    expect(store.calls.renew).toBe(0);
    await running.settle(answered(201));
  });

  it("a crash is unknown under reconcile, and executed again under retry and resume", async () => {
    for (const [onCrash, kind] of [
      ["reconcile", "unknown"],
      ["retry", "execute"],
      ["resume", "execute"],
    ] as const) {
      const { clock, engine: start } = cluster();
      const dead = pausable(clock);
      await start(dead).arrive(arrival({ onCrash }));
      dead.pause();
      await clock.advance(leaseMs);
      expect((await start().arrive(arrival({ onCrash }))).kind, onCrash).toBe(kind);
    }
  });
});

describe("an execution that ends before its handler", () => {
  it("tells whoever waits for the answer that the lease is lost", async () => {
    const { clock, engine: start } = cluster();
    const frozen = pausable(clock);
    const [first, second] = [start(frozen), start()];
    const stale = execution(await first.arrive(arrival({ onCrash: "retry" })));
    const told: unknown[] = [];
    stale.onGivenUp = (settled) => told.push(settled);
    frozen.pause();
    await clock.advance(leaseMs + 1);
    await second.arrive(arrival({ onCrash: "retry" }));
    frozen.resume();
    await clock.advance(1);
    expect(told).toEqual([{ kind: "lost" }]);
  });

  it.each([
    ["reconcile", "unknown"],
    ["retry", "inFlight"],
  ] as const)("by somebody else's answer counts as a crash, under onCrash %s", async (onCrash, kind) => {
    const engine = cluster().engine();
    const running = execution(await engine.arrive(arrival({ onCrash })));
    expect(await running.interrupt("it took too long for somebody")).toEqual({ kind: "timedOut" });
    expect(running.signal.aborted).toBe(true);
    expect((await engine.arrive(arrival({ onCrash }))).kind).toBe(kind);
    expect(await running.settle(answered(201))).toEqual({ kind: "timedOut" });
  });
});

describe("draining", () => {
  it("waits for what runs and for what the store has not confirmed, and no longer", async () => {
    const { clock, engine: start, faults } = cluster();
    const engine = start();
    const running = execution(await engine.arrive(arrival()));
    let drained = false;
    const draining = engine.drain(60_000).then(() => {
      drained = true;
    });
    await clock.advance(1000);
    expect(drained).toBe(false);
    faults.push({ kind: "failBefore" });
    await running.settle(answered(201, "kept"));
    await clock.advance(100);
    await draining;
    engine.close();
    expect(bodyOf(await start().arrive(arrival()))).toBe("kept");
  });

  it("does not wait for ever", async () => {
    const { clock, engine: start } = cluster();
    const engine = start();
    await engine.arrive(arrival());
    const draining = engine.drain(5_000);
    await clock.advance(5_100);
    await draining;
  });
});

describe("a handler that takes too long", () => {
  const policy = { executionTimeoutMs: 1000 };

  it("is told to stop, and its outcome is unknown", async () => {
    const { clock, engine: start, events } = cluster();
    const engine = start();
    const running = execution(await engine.arrive(arrival(policy)));
    let told = 0;
    running.onGivenUp = () => {
      told += 1;
    };
    await clock.advance(1000);
    expect(told).toBe(1);
    expect(running.signal.reason).toBeInstanceOf(ExecutionTimeoutError);
    expect((await engine.arrive(arrival(policy))).kind).toBe("unknown");
    expect(await running.settle(answered(201))).toEqual({ kind: "timedOut" });
    expect((await engine.arrive(arrival(policy))).kind).toBe("unknown");
    expect(events).toContainEqual(expect.objectContaining({ type: "execution_timeout" }));
  });

  it("under retry nobody else begins before its lease has run out", async () => {
    const { clock, engine: start } = cluster();
    const engine = start();
    await engine.arrive(arrival({ ...policy, onCrash: "retry" }));
    await clock.advance(1000);
    expect((await engine.arrive(arrival({ ...policy, onCrash: "retry" }))).kind).toBe("inFlight");
    await clock.advance(leaseMs);
    expect((await engine.arrive(arrival({ ...policy, onCrash: "retry" }))).kind).toBe("execute");
  });
});
