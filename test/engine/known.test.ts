import { describe, expect, it } from "vitest";
import type { PolicyInput } from "../../src/core/policy.ts";
import type { Store } from "../../src/core/store.ts";
import { Engine } from "../../src/engine/engine.ts";
import { answered, arrival, cluster, execution, leaseMs, storeTimeoutMs } from "./cluster.ts";

const open: PolicyInput = { onStoreDown: "open", onInFlight: "wait", waitMs: 10_000 };
const refused = { kind: "storeDown", isKnown: true };

/** Where a route runs without a store, that is for what nobody knows of: not for what was seen to have been begun. */
describe("a request that is known to have been begun, on a route that runs without a store", () => {
  it("is not run again by somebody who waited for it when the store went down", async () => {
    const { clock, engine: start, faults } = cluster();
    const [first, second] = [start(), start()];
    execution(await first.arrive(arrival(open)));
    const waiting = second.arrive(arrival(open));
    await clock.advance(0);
    faults.push({ kind: "failBefore" });
    await clock.advance(2_000);
    expect(await waiting).toMatchObject(refused);
  });

  it("is not run again by a duplicate in its process when it took too long and the store is down", async () => {
    const { clock, engine: start, faults } = cluster();
    const engine = start();
    const policy = { ...open, executionTimeoutMs: 1_000 };
    execution(await engine.arrive(arrival(policy)));
    const waiting = engine.arrive(arrival(policy));
    await clock.advance(0);
    for (let count = 0; count < 20; count += 1) faults.push({ kind: "failBefore" });
    await clock.advance(1_500);
    expect(await waiting).toMatchObject(refused);
  });

  it("is not run again by whoever joined one that waited for less long, when the store then went down", async () => {
    const { clock, store } = cluster();
    let isDown = false;
    const failing: Store = {
      ...store,
      reserve: (request) => (isDown ? Promise.reject(new Error("down")) : store.reserve(request)),
    };
    const [first, second] = [store, failing].map(
      (each) => new Engine({ store: each, runtime: clock, leaseMs, storeTimeoutMs }),
    ) as [Engine, Engine];
    second.events.subscribe(({ type }) => {
      if (type === "waited") isDown = true;
    });
    execution(await first.arrive(arrival(open)));
    const impatient = second.arrive(arrival({ ...open, waitMs: 1_000 }));
    const patient = second.arrive(arrival(open));
    await clock.advance(1_000);
    expect((await impatient).kind).toBe("inFlight");
    expect(await patient).toMatchObject(refused);
  });

  it("is not run again by whoever joined another request with its key, when the store then went down", async () => {
    const { engine: start, faults } = cluster();
    await execution(await start().arrive(arrival(open))).settle(answered(201));
    const engine = start();
    faults.push({ kind: "none" }, { kind: "failBefore" });
    const [other, same] = await Promise.all([
      engine.arrive(arrival(open, { fingerprint: "v1:b" })),
      engine.arrive(arrival(open)),
    ]);
    expect(other).toEqual({ kind: "mismatch" });
    expect(same).toMatchObject(refused);
  });
});
