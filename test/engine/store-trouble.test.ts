import { describe, expect, it } from "vitest";
import { StoreBusyError } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/store.ts";
import { Engine } from "../../src/engine/engine.ts";
import type { Fault } from "../../src/testing/index.ts";
import { answered, arrival, bodyOf, cluster, execution, leaseMs, storeTimeoutMs } from "./cluster.ts";

const failBefore: Fault = { kind: "failBefore" };
const failAfter: Fault = { kind: "failAfter" };

describe("a store that does not answer", () => {
  it("means that nothing is executed", async () => {
    const { engine: start, faults, events } = cluster();
    const engine = start();
    faults.push(failBefore);
    expect(await engine.arrive(arrival())).toEqual({ kind: "storeDown" });
    expect(events).toContainEqual(expect.objectContaining({ type: "store_error", verb: "reserve" }));
    expect((await engine.arrive(arrival())).kind).toBe("execute");
  });

  it("runs unprotected only where the route says so, and that is an event", async () => {
    const { engine: start, faults, events } = cluster();
    faults.push(failBefore);
    expect(await start().arrive(arrival({ onStoreDown: "open" }))).toEqual({ kind: "unprotected" });
    expect(events).toContainEqual(expect.objectContaining({ type: "reserved", outcome: "unprotected" }));
  });

  it("never runs a worker's claim unprotected: the worker comes again, and it would run twice", async () => {
    const { engine: start, faults } = cluster();
    const engine = start();
    const policy = { onStoreDown: "open", onInFlight: "accept" } as const;
    const request = { method: "POST", target: "/", tenant: "acme", headers: [], body: new Uint8Array() };
    expect((await engine.arrive(arrival(policy, { request }))).kind).toBe("accepted");
    faults.push(failBefore);
    const claim = arrival(policy, { request, isClaim: true });
    expect(await engine.arrive(claim)).toEqual({ kind: "storeDown" });
    expect((await engine.arrive(claim)).kind).toBe("execute");
  });

  it("counts as down when it takes too long, and a lease that it grants later is given back", async () => {
    const { clock, engine: start, faults } = cluster();
    const engine = start();
    faults.push({ kind: "delay", ms: storeTimeoutMs + 1000 });
    const verdict = engine.arrive(arrival());
    await clock.advance(storeTimeoutMs);
    expect(await verdict).toEqual({ kind: "storeDown" });
    await clock.advance(1000);
    const next = execution(await engine.arrive(arrival()));
    expect(next.after).toBe("failed_retryable");
  });

  it("is told again that a late lease was not used, when it did not hear it the first time", async () => {
    const { clock, engine: start, faults } = cluster();
    const engine = start();
    faults.push({ kind: "delay", ms: storeTimeoutMs + 1000 }, failBefore);
    const verdict = engine.arrive(arrival());
    await clock.advance(storeTimeoutMs + 1000);
    expect(await verdict).toEqual({ kind: "storeDown" });
    await clock.advance(leaseMs / 3);
    expect(execution(await engine.arrive(arrival())).after).toBe("failed_retryable");
  });

  it("that granted a reservation and lost the answer is told that nothing ran, and the key is free", async () => {
    const { clock, engine: start, faults } = cluster();
    const engine = start();
    faults.push(failAfter);
    expect(await engine.arrive(arrival())).toEqual({ kind: "storeDown" });
    expect((await engine.arrive(arrival())).kind).toBe("inFlight");
    await clock.advance(leaseMs / 3);
    expect(execution(await engine.arrive(arrival())).after).toBe("failed_retryable");
  });

  it("that is too busy to be asked has granted nothing, and is not asked about it either", async () => {
    const { clock, store } = cluster();
    let asked = 0;
    const busy: Store = {
      ...store,
      reserve: () => Promise.reject(new StoreBusyError("10,000 calls are waiting already")),
      read(id) {
        asked += 1;
        return store.read(id);
      },
    };
    const engine = new Engine({ store: busy, runtime: clock, leaseMs, storeTimeoutMs });
    expect(await engine.arrive(arrival())).toEqual({ kind: "storeDown" });
    await clock.advance(2 * leaseMs);
    expect(asked).toBe(0);
  });

  it("cannot make a request run under a lease that ran out before its answer came", async () => {
    const { clock, store } = cluster();
    const engine = new Engine({ store, runtime: clock, leaseMs: 1000, storeTimeoutMs: 5000 });
    const late: Store = {
      ...store,
      async reserve(request) {
        const reservation = await store.reserve(request);
        await new Promise<void>((resolve) => void clock.setTimer(resolve, 1500));
        return reservation;
      },
    };
    const tardy = new Engine({ store: late, runtime: clock, leaseMs: 1000, storeTimeoutMs: 5000 });
    const verdict = tardy.arrive(arrival());
    await clock.advance(1500);
    expect(await verdict).toEqual({ kind: "storeDown" });
    await clock.advance(1000);
    expect(execution(await engine.arrive(arrival())).after).toBe("failed_retryable");
  });

  it("one settlement that it refuses does not hold up the others, and ends some time", async () => {
    const { clock, store } = cluster();
    const picky: Store = {
      ...store,
      settle: (lease, settlement) =>
        lease.key === "poison" || !isOpen ? Promise.reject(new Error("no")) : store.settle(lease, settlement),
    };
    let isOpen = false;
    const engine = new Engine({ store: picky, runtime: clock, leaseMs, storeTimeoutMs });
    for (const key of ["poison", "good"]) {
      const running = execution(await engine.arrive(arrival({}, { key })));
      expect(await running.settle(answered(201, key))).toEqual({ kind: "storeDown" });
    }
    isOpen = true;
    await clock.advance(leaseMs);
    expect(bodyOf(await engine.arrive(arrival({}, { key: "good" })))).toBe("good");
    expect((await engine.arrive(arrival({}, { key: "poison" }))).kind).toBe("inFlight");
    await clock.advance(3_700_000);
    expect((await engine.arrive(arrival({}, { key: "poison" }))).kind).toBe("unknown");
  });

  it("that takes its time with old outcomes does not cost running handlers their lease", async () => {
    const { clock, store } = cluster();
    let slow = false;
    const sluggish: Store = {
      ...store,
      async settle(lease, settlement) {
        if (!slow) return store.settle(lease, settlement);
        await new Promise<void>((resolve) => void clock.setTimer(resolve, 3000));
        throw new Error("not yet");
      },
    };
    const first = new Engine({ store: sluggish, runtime: clock, leaseMs, storeTimeoutMs });
    const second = new Engine({ store, runtime: clock, leaseMs, storeTimeoutMs });
    const running = execution(await first.arrive(arrival({ onCrash: "retry" })));
    slow = true;
    for (let index = 0; index < 10; index += 1) {
      void execution(await first.arrive(arrival({}, { key: `old-${index}` }))).settle(answered(201));
    }
    await clock.advance(4 * leaseMs);
    expect((await second.arrive(arrival({ onCrash: "retry" }))).kind).toBe("inFlight");
    expect(running.signal.aborted).toBe(false);
  });

  it("whose watch never begins is polled, and nobody waits for ever", async () => {
    const { clock, store } = cluster();
    const deaf: Store = { ...store, watch: () => new Promise(() => {}) };
    const [first, second] = [deaf, deaf].map(
      (each) => new Engine({ store: each, runtime: clock, leaseMs, storeTimeoutMs }),
    ) as [Engine, Engine];
    const policy = arrival({ onInFlight: "wait", waitMs: 10_000 });
    const running = execution(await first.arrive(policy));
    const waiting = second.arrive(policy);
    await clock.advance(storeTimeoutMs);
    await running.settle(answered(201, "done"));
    await clock.advance(1000);
    expect(bodyOf(await waiting)).toBe("done");
  });

  it.each([
    ["before", failBefore],
    ["after", failAfter],
  ])(
    "an outcome that failed %s it was stored is told again until the store confirms",
    async (_when, fault) => {
      const { clock, engine: start, faults } = cluster();
      const [first, second] = [start(), start()];
      const running = execution(await first.arrive(arrival()));
      faults.push(fault);
      expect(await running.settle(answered(201, "kept"))).toEqual({ kind: "storeDown" });
      await clock.advance(leaseMs);
      expect(bodyOf(await second.arrive(arrival()))).toBe("kept");
    },
  );

  it("cannot make this process forget an outcome that it knows, even when the lease has run out meanwhile", async () => {
    const { clock, engine: start, faults } = cluster();
    const engine = start();
    const running = execution(await engine.arrive(arrival()));
    faults.push(...Array.from({ length: 20 }, () => failBefore));
    await running.settle(answered(201, "kept"));
    await clock.advance(2 * leaseMs);
    faults.length = 0;
    expect((await engine.arrive(arrival())).kind).toBe("inFlight");
    const waiting = engine.arrive(arrival({ onInFlight: "wait" }));
    await clock.advance(leaseMs / 3);
    expect(bodyOf(await waiting)).toBe("kept");
    expect(bodyOf(await engine.arrive(arrival()))).toBe("kept");
  });

  it("cannot make another process begin while an outcome waits to be confirmed", async () => {
    const { clock, engine: start, faults, store } = cluster();
    const [first, second] = [start(), start()];
    const running = execution(await first.arrive(arrival({ onCrash: "retry" })));
    // The settle fails for two minutes; every other call works.
    faults.push(failBefore);
    await running.settle(answered(201, "kept"));
    const until = clock.now() + 120_000;
    while (clock.now() < until) {
      faults.push({ kind: "none" }, failBefore);
      await clock.advance(leaseMs / 3);
      expect((await second.arrive(arrival({ onCrash: "retry" }))).kind).toBe("inFlight");
    }
    expect(store.calls.renew).toBeGreaterThan(20);
    faults.length = 0;
    await clock.advance(leaseMs / 3);
    expect(bodyOf(await second.arrive(arrival()))).toBe("kept");
  });
});
