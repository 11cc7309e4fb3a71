import { describe, expect, it, vi } from "vitest";
import { asked, offerAtOnce } from "../../src/core/at-once.ts";
import { resolvePolicy } from "../../src/core/policy.ts";
import { Engine } from "../../src/engine/engine.ts";
import { systemRuntime } from "../../src/engine/runtime.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { answered, arrival, execution } from "./cluster.ts";

function engineOn(store = memoryStore()) {
  const engine = new Engine({ store, runtime: systemRuntime, leaseMs: 15_000, storeTimeoutMs: 5_000 });
  return { engine, store };
}

describe("a store that knows its answers", () => {
  it("is not waited for, neither by the request nor by its outcome nor by its retry", () => {
    const { engine } = engineOn();
    const first = engine.arrive(arrival());
    if (first instanceof Promise) throw new Error("the right to execute was waited for");
    expect(execution(first).settle(answered(201, "done"))).toMatchObject({ kind: "stored" });
    expect(engine.arrive(arrival())).toMatchObject({ kind: "replay" });
    engine.close();
  });

  it("has its duplicates joined while the first one is executed, and not longer", async () => {
    const { engine } = engineOn();
    const events: unknown[] = [];
    engine.events.subscribe((event) => {
      if (event.type === "reserved") events.push([event.outcome, event.joined]);
    });
    const running = execution(await engine.arrive(arrival()));
    await engine.arrive(arrival());
    await running.settle(answered(201, "done"));
    await engine.arrive(arrival());
    expect(events).toEqual([
      ["created", false],
      ["in_progress", true],
      ["replay", false],
    ]);
    engine.close();
  });

  it("is asked through whatever was put in the place of its verb", async () => {
    const { engine, store } = engineOn();
    const reserve = vi.spyOn(store, "reserve");
    const settle = vi.spyOn(store, "settle").mockRejectedValue(new Error("the store is down"));
    const running = execution(await engine.arrive(arrival()));
    expect(reserve).toHaveBeenCalledTimes(1);
    expect(await running.settle(answered(201, "done"))).toEqual({ kind: "storeDown" });
    expect(settle).toHaveBeenCalledTimes(1);
    engine.close();
  });

  it("that throws within the call has not answered", () => {
    const store = memoryStore();
    const broken = async () => Promise.reject(new Error("unused"));
    offerAtOnce(broken, () => {
      throw new Error("the store is down");
    });
    const { engine } = engineOn(Object.assign(store, { reserve: broken }));
    const policy = resolvePolicy(store.capabilities, {}, {});
    expect(engine.arrive({ ...arrival(), policy })).toMatchObject({ kind: "storeDown" });
    engine.close();
  });

  it("answers with a promise to everybody else", async () => {
    const { store } = engineOn();
    const id = { scope: "acme", key: "never-used", owner: "nobody", fence: 1 };
    const release = { kind: "release", reason: "none", retentionMs: 1000 } as const;
    expect(store.settle(id, release)).toBeInstanceOf(Promise);
    expect(asked(store, store.settle, id, release)).toEqual({ kind: "lost" });
  });
});
