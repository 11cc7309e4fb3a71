import { type Policy, type PolicyInput, resolvePolicy } from "../../src/core/policy.ts";
import type { StoredResponse } from "../../src/core/response.ts";
import type { Store } from "../../src/core/store.ts";
import { Engine } from "../../src/engine/engine.ts";
import type { LatchkeyEvent } from "../../src/engine/events.ts";
import type { Execution } from "../../src/engine/execution.ts";
import type { ReplayCacheOptions } from "../../src/engine/replay-cache.ts";
import type { Runtime } from "../../src/engine/runtime.ts";
import type { Arrival, Verdict } from "../../src/engine/verdict.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import {
  type Fault,
  type FaultyStore,
  faultyStore,
  type ManualClock,
  manualClock,
} from "../../src/testing/index.ts";

export const leaseMs = 15_000;
export const storeTimeoutMs = 5_000;

/** Engines on one store and one virtual clock, each as if in a process of its own. */
export interface Cluster {
  readonly clock: ManualClock;
  readonly store: FaultyStore;
  readonly events: LatchkeyEvent[];
  /** The fate of the next calls; `none` when it is empty. */
  readonly faults: Fault[];
  engine(runtime?: Runtime): Engine;
}

export function cluster(
  options: { readonly store?: (clock: ManualClock) => Store; readonly cache?: ReplayCacheOptions } = {},
): Cluster {
  const clock = manualClock();
  const faults: Fault[] = [];
  const store = faultyStore({
    store: options.store?.(clock) ?? memoryStore({ clock: clock.now }),
    runtime: clock,
    choose: () => faults.shift() ?? { kind: "none" },
  });
  const events: LatchkeyEvent[] = [];
  return {
    clock,
    store,
    events,
    faults,
    engine(runtime = clock) {
      const engine = new Engine({ store, runtime, leaseMs, storeTimeoutMs, cache: options.cache });
      engine.events.subscribe((event) => events.push(event));
      return engine;
    },
  };
}

/** A runtime whose timers can be held back, as when a process is stopped and continued. */
export function pausable(clock: ManualClock): Runtime & { pause(): void; resume(): void } {
  let paused = false;
  let held: (() => void)[] = [];
  return {
    now: clock.now,
    random: clock.random,
    setTimer(run, ms) {
      let cancelled = false;
      const fire = () => {
        if (cancelled) return;
        if (paused) held.push(fire);
        else run();
      };
      const cancel = clock.setTimer(fire, ms);
      return () => {
        cancelled = true;
        cancel();
      };
    },
    pause() {
      paused = true;
    },
    resume() {
      paused = false;
      const due = held;
      held = [];
      for (const fire of due) fire();
    },
  };
}

const capabilities = memoryStore().capabilities;

export function arrival(policy: PolicyInput = {}, overrides: Partial<Arrival> = {}): Arrival {
  const resolved: Policy = resolvePolicy(
    { ...capabilities, durability: "server", transactions: true },
    policy,
  );
  return { scope: "tenant", key: "key", fingerprint: "v1:a", policy: resolved, ...overrides };
}

export function response(status: number, text = ""): StoredResponse {
  return { kind: "full", status, headers: [], body: new TextEncoder().encode(text) };
}

export function answered(status: number, text = "") {
  return { kind: "answered", response: response(status, text) } as const;
}

export function execution(verdict: Verdict): Execution {
  if (verdict.kind !== "execute") throw new Error(`expected the right to execute, got ${verdict.kind}`);
  return verdict.execution;
}

export function bodyOf(verdict: Verdict): string {
  if (verdict.kind !== "replay" || verdict.response.kind !== "full") {
    throw new Error(`expected a replay, got ${verdict.kind}`);
  }
  return new TextDecoder().decode(verdict.response.body);
}
