import { describe, expect, it } from "vitest";
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

  it("that lost the answer to a reservation leaves a key that ends by onCrash", async () => {
    const { clock, engine: start, faults } = cluster();
    const engine = start();
    faults.push(failAfter);
    expect(await engine.arrive(arrival({ onCrash: "retry" }))).toEqual({ kind: "storeDown" });
    await clock.advance(leaseMs);
    expect((await engine.arrive(arrival({ onCrash: "retry" }))).kind).toBe("execute");
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
