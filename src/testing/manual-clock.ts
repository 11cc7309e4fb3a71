import type { Runtime } from "../engine/runtime.ts";

/** Time that passes only when it is told to; the same seed gives the same run. */
export interface ManualClock extends Runtime {
  /** Lets `ms` pass, firing every timer that falls due, in order, and everything that follows from each. */
  advance(ms: number): Promise<void>;
  /** Runs until no timer is left, or until `limitMs` have passed. */
  drain(limitMs: number): Promise<void>;
}

/**
 * A runtime on virtual time, for tests that would otherwise sleep. Give the same one to the engine and, as its
 * clock, to the store.
 *
 * @example
 * ```ts
 * const clock = manualClock();
 * const store = memoryStore({ clock: clock.now });
 * const latchkey = createLatchkey({ store, tenant: "single", runtime: clock });
 * await clock.advance(15_000);
 * ```
 */
export function manualClock(
  options: { readonly startMs?: number; readonly seed?: number } = {},
): ManualClock {
  let now = options.startMs ?? Date.UTC(2026, 0, 1);
  let order = 0;
  const timers = new Map<number, { readonly dueAt: number; readonly run: () => void }>();

  const next = (until: number) => {
    let first: { id: number; dueAt: number; run: () => void } | undefined;
    for (const [id, { dueAt, run }] of timers) {
      if (dueAt <= until && (first === undefined || dueAt < first.dueAt)) first = { id, dueAt, run };
    }
    return first;
  };

  const advanceTo = async (until: number) => {
    await settlePromises();
    for (let timer = next(until); timer !== undefined; timer = next(until)) {
      timers.delete(timer.id);
      now = Math.max(now, timer.dueAt);
      timer.run();
      await settlePromises();
    }
    now = until;
  };

  return {
    now: () => now,
    random: seededRandom(options.seed ?? 1),
    setTimer(run, ms) {
      order += 1;
      const id = order;
      timers.set(id, { dueAt: now + Math.max(0, ms), run });
      return () => timers.delete(id);
    },
    advance: (ms) => advanceTo(now + ms),
    async drain(limitMs) {
      const end = now + limitMs;
      await settlePromises();
      for (let timer = next(end); timer !== undefined; timer = next(end)) await advanceTo(timer.dueAt);
    },
  };
}

/** The event loop comes round only after every promise that could run has run. */
function settlePromises(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Mulberry32: small, fast, and good enough to shuffle faults. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
