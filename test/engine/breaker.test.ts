import { describe, expect, it } from "vitest";
import { ConfigError, StoreRefusedError } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/store.ts";
import type { BreakerOptions } from "../../src/engine/breaker.ts";
import { Engine } from "../../src/engine/engine.ts";
import type { LatchkeyEvent } from "../../src/engine/events.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { type Fault, faultyStore, manualClock } from "../../src/testing/index.ts";
import { answered, arrival, execution, leaseMs, storeTimeoutMs } from "./cluster.ts";

const ill: Fault = { kind: "failBefore" };
const well: Fault = { kind: "none" };

/** An engine on a store that is well or ill as the test says. */
function ward(breaker: BreakerOptions | false = {}, wrap: (store: Store) => Store = (store) => store) {
  const clock = manualClock();
  const state = { fault: well };
  const store = faultyStore({
    store: memoryStore({ clock: clock.now }),
    runtime: clock,
    choose: () => state.fault,
  });
  const events: LatchkeyEvent[] = [];
  const engine = new Engine({ store: wrap(store), runtime: clock, leaseMs, storeTimeoutMs, breaker });
  engine.events.subscribe((event) => events.push(event));
  let keys = 0;
  const arrive = (policy = {}) => {
    keys += 1;
    return engine.arrive(arrival(policy, { key: `key-${keys}` }));
  };
  return {
    clock,
    store,
    engine,
    events,
    state,
    arrive,
    async arriveTimes(count: number) {
      const verdicts = await Promise.all(Array.from({ length: count }, () => arrive()));
      return verdicts.map(({ kind }) => kind);
    },
    changes: () => events.flatMap((event) => (event.type === "breaker" ? [event.state] : [])),
  };
}

describe("the breaker", () => {
  it("opens when half of the calls fail, and then nothing is asked and everybody is told at once", async () => {
    const { arriveTimes, arrive, engine, state, store, changes, events } = ward();
    await arriveTimes(20);
    state.fault = ill;
    await arriveTimes(19);
    expect(engine.breaker?.state).toBe("closed");
    await arriveTimes(1);
    expect(engine.breaker?.state).toBe("open");
    expect(changes()).toEqual(["open"]);
    expect(events).toContainEqual({ type: "breaker", state: "open", reason: "20 of 40 calls failed" });
    const asked = store.calls.reserve;
    const verdict = await arrive();
    expect(verdict).toMatchObject({ kind: "storeDown" });
    expect(store.calls.reserve).toBe(asked);
    expect(await engine.read({ scope: "tenant", key: "key" })).toBeUndefined();
    expect(store.calls.read).toBe(0);
    expect(events.at(-1)).toMatchObject({ type: "reserved", outcome: "store_down" });
  });

  it("says when to come again: when it may be closed, and not all at once", async () => {
    const { arriveTimes, arrive, clock, state } = ward({ openMs: 8_000 });
    state.fault = ill;
    await arriveTimes(20);
    await clock.advance(2_000);
    const waits = new Set<number>();
    for (let count = 0; count < 20; count += 1) {
      const verdict = await arrive();
      if (verdict.kind === "storeDown") waits.add(Math.ceil((verdict.retryAfterMs ?? 0) / 1000));
    }
    expect(Math.min(...waits)).toBeGreaterThanOrEqual(6);
    expect(Math.max(...waits)).toBeLessThanOrEqual(9);
    expect(waits.size).toBeGreaterThan(1);
    await clock.advance(5_900);
    expect(await arrive()).toMatchObject({ retryAfterMs: expect.toSatisfy((ms: number) => ms >= 1000) });
  });

  it("runs nothing while it is open, but for routes that chose to run unprotected", async () => {
    const { arriveTimes, arrive, state } = ward();
    state.fault = ill;
    await arriveTimes(20);
    state.fault = well;
    expect((await arrive()).kind).toBe("storeDown");
    expect((await arrive({ onStoreDown: "open" })).kind).toBe("unprotected");
  });

  it("opens when calls are slow, although they succeed", async () => {
    const { arriveTimes, clock, engine, state, events } = ward({ slowMs: 1_000 });
    state.fault = { kind: "late", ms: 1_200 };
    const slow = arriveTimes(20);
    await clock.advance(1_200);
    expect(new Set(await slow)).toEqual(new Set(["execute"]));
    expect(engine.breaker?.state).toBe("open");
    expect(events).toContainEqual({ type: "breaker", state: "open", reason: "20 of 20 calls were slow" });
  });

  it("opens when nothing is answered in time", async () => {
    const { arriveTimes, clock, engine, state } = ward();
    state.fault = { kind: "delay", ms: 60_000 };
    const unanswered = arriveTimes(20);
    await clock.advance(storeTimeoutMs);
    await unanswered;
    expect(engine.breaker?.state).toBe("open");
  });

  it("lets a few through when the time is over, and all of them when those succeeded", async () => {
    const { arriveTimes, clock, engine, state, store, changes } = ward();
    state.fault = ill;
    await arriveTimes(20);
    await clock.advance(5_000);
    state.fault = { kind: "late", ms: 10 };
    const asked = store.calls.reserve;
    const arriving = arriveTimes(10);
    expect(store.calls.reserve).toBe(asked + 3);
    expect(engine.breaker?.state).toBe("half-open");
    await clock.advance(10);
    const verdicts = await arriving;
    expect(verdicts.filter((kind) => kind === "execute")).toHaveLength(3);
    expect(verdicts.filter((kind) => kind === "storeDown")).toHaveLength(7);
    expect(engine.breaker?.state).toBe("closed");
    expect(changes()).toEqual(["open", "half-open", "closed"]);
    state.fault = well;
    expect(new Set(await arriveTimes(30))).toEqual(new Set(["execute"]));
  });

  it("stays open for longer each time that the store has not recovered, but for half a minute at most", async () => {
    const { arrive, arriveTimes, clock, engine, state } = ward();
    state.fault = ill;
    await arriveTimes(20);
    const openMs: number[] = [];
    for (let round = 0; round < 6; round += 1) {
      const since = clock.now();
      while ((await probing()) === false) await clock.advance(100);
      openMs.push(clock.now() - since);
    }
    async function probing(): Promise<boolean> {
      const before = engine.breaker?.since;
      await arrive();
      return engine.breaker?.since !== before;
    }
    expect(openMs[0]).toBe(5_000);
    expect(openMs[1]).toBeGreaterThanOrEqual(7_500);
    expect(openMs[1]).toBeLessThanOrEqual(10_100);
    expect(Math.max(...openMs)).toBeLessThanOrEqual(30_100);
    expect(openMs.at(-1)).toBeGreaterThan(29_000);
    // Once it was well, it is met with the first patience again.
    await clock.advance(31_000);
    state.fault = well;
    await arriveTimes(3);
    expect(engine.breaker?.state).toBe("closed");
    state.fault = ill;
    await arriveTimes(20);
    await clock.advance(5_000);
    state.fault = well;
    await arriveTimes(3);
    expect(engine.breaker?.state).toBe("closed");
  });

  it("opens again when what it let through was slow", async () => {
    const { arrive, arriveTimes, clock, engine, state } = ward({ slowMs: 1_000 });
    state.fault = ill;
    await arriveTimes(20);
    await clock.advance(5_000);
    state.fault = { kind: "late", ms: 1_000 };
    const probe = arrive();
    await clock.advance(1_000);
    expect((await probe).kind).toBe("execute");
    expect(engine.breaker?.state).toBe("open");
  });

  it("is not closed, or opened, by what was asked before", async () => {
    const { arrive, arriveTimes, clock, engine, state } = ward({ minCalls: 5 });
    state.fault = { kind: "late", ms: 4_900 };
    const late = Promise.all([arrive(), arrive(), arrive()]);
    state.fault = ill;
    await clock.advance(100);
    await arriveTimes(5);
    await clock.advance(4_800);
    await late;
    expect(engine.breaker?.state).toBe("open");
    await clock.advance(200);
    state.fault = well;
    await arriveTimes(3);
    expect(engine.breaker?.state).toBe("closed");
  });

  it("does not open because of a few calls, or of failures that are long ago", async () => {
    const { arriveTimes, clock, engine, state } = ward();
    state.fault = ill;
    await arriveTimes(19);
    expect(engine.breaker?.state).toBe("closed");
    await clock.advance(11_000);
    await arriveTimes(19);
    expect(engine.breaker?.state).toBe("closed");
  });

  it("does not open because of a store that fails now and then", async () => {
    const { arriveTimes, clock, engine, state } = ward();
    for (let round = 0; round < 50; round += 1) {
      state.fault = round % 3 === 2 ? ill : well;
      await arriveTimes(5);
      await clock.advance(300);
    }
    expect(engine.breaker?.state).toBe("closed");
  });

  it("sheds most of the load of a store that is down, and notices soon that it is back", async () => {
    const { arriveTimes, clock, engine, state, store } = ward();
    state.fault = ill;
    for (let ms = 0; ms < 60_000; ms += 100) {
      await arriveTimes(2);
      await clock.advance(100);
    }
    expect(store.calls.reserve).toBeLessThan(20 + 10);
    state.fault = well;
    for (let ms = 0; ms < 31_000; ms += 100) {
      await arriveTimes(2);
      await clock.advance(100);
    }
    expect(engine.breaker?.state).toBe("closed");
  });

  it("does not count what only this request is to blame for", async () => {
    let isRefusing = true;
    const wrap = (store: Store): Store => ({
      ...store,
      reserve: (request) =>
        isRefusing
          ? Promise.reject(new StoreRefusedError("the request is too large"))
          : store.reserve(request),
    });
    const { arriveTimes, clock, engine, state } = ward({}, wrap);
    expect(new Set(await arriveTimes(50))).toEqual(new Set(["storeDown"]));
    expect(engine.breaker?.state).toBe("closed");
    isRefusing = false;
    state.fault = ill;
    await arriveTimes(20);
    expect(engine.breaker?.state).toBe("open");
    await clock.advance(5_000);
    isRefusing = true;
    await arriveTimes(10);
    expect(engine.breaker?.state).toBe("half-open");
    isRefusing = false;
    state.fault = well;
    await arriveTimes(3);
    expect(engine.breaker?.state).toBe("closed");
  });

  it("lets what has run be told, and duplicates join it, while it is open", async () => {
    const { arrive, arriveTimes, engine, state, store } = ward();
    const first = execution(await engine.arrive(arrival({}, { key: "running" })));
    state.fault = ill;
    await arriveTimes(20);
    await arriveTimes(5);
    expect(engine.breaker?.state).toBe("open");
    expect((await engine.arrive(arrival({}, { key: "running" }))).kind).toBe("inFlight");
    state.fault = well;
    const settles = store.calls.settle;
    expect((await first.settle(answered(201))).kind).toBe("stored");
    expect(store.calls.settle).toBe(settles + 1);
    expect((await arrive()).kind).toBe("storeDown");
  });

  it("can be left out", async () => {
    const { arriveTimes, engine, state, store } = ward(false);
    state.fault = ill;
    await arriveTimes(100);
    expect(store.calls.reserve).toBe(100);
    expect(engine.breaker).toBeUndefined();
    expect(engine.storeRetryAfterMs).toBeUndefined();
  });

  it("says everything that is wrong with its options at once", () => {
    expect(() => ward({ failureShare: 0, minCalls: 1.5, openMs: Number.NaN })).toThrow(ConfigError);
    expect(() => ward({ failureShare: 2, probes: 0 })).toThrow(
      "the breaker cannot work: failureShare is 2 and must be above 0 and at most 1; probes is 0 and must be a whole number above 0",
    );
  });
});
