import { expect, it } from "vitest";
import { createLatchkey, type LatchkeyEvent } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { type LoopOptions, loopOf } from "../../src/workers/loop.ts";

interface Counts {
  readonly done: number;
}

/** A worker on virtual time, and when its rounds were. */
function worker(
  options: Partial<LoopOptions<Counts>> & { readonly rounds?: readonly (number | Error)[] } = {},
) {
  const { rounds = [], ...overrides } = options;
  const clock = manualClock();
  const startedAt = clock.now();
  const events: LatchkeyEvent[] = [];
  const latchkey = createLatchkey({
    store: memoryStore({ clock: clock.now }),
    tenant: "single",
    runtime: clock,
    onEvent: (event) => events.push(event),
  });
  const at: number[] = [];
  const loop = loopOf<Counts>({
    name: "sampler",
    latchkey,
    async runOnce() {
      const round = rounds[at.length] ?? 0;
      at.push(clock.now() - startedAt);
      if (round instanceof Error) throw round;
      return { done: round };
    },
    isIdle: ({ done }) => done === 0,
    intervalMs: 1_000,
    ...overrides,
  });
  const stop = new AbortController();
  return { loop, clock, events, at, stop, startedAt };
}

it("goes on at once while there is work, and then waits for its interval", async () => {
  const { loop, clock, at, stop } = worker({ rounds: [3, 2, 0] });
  const ended = loop.run(stop.signal);
  await clock.advance(850);
  expect(at).toEqual([0, 0, 0]);
  await clock.advance(300);
  expect(at).toHaveLength(4);
  stop.abort();
  await ended;
});

it("waits for its interval, a tenth more or less, so that workers do not stay in step", async () => {
  const { loop, clock, at, stop } = worker();
  const ended = loop.run(stop.signal);
  await clock.advance(60_000);
  const pauses = at.slice(1).map((time, index) => time - (at[index] ?? 0));
  expect(Math.min(...pauses)).toBeGreaterThanOrEqual(900);
  expect(Math.min(...pauses)).toBeLessThan(950);
  expect(Math.max(...pauses)).toBeLessThanOrEqual(1_100);
  expect(Math.max(...pauses)).toBeGreaterThan(1_050);
  stop.abort();
  await ended;
});

it("rests as long as it is asked to, in proportion to the time that its round took", async () => {
  const times: number[] = [];
  const { loop, clock, stop } = worker({
    restFactor: 2,
    async runOnce() {
      times.push(clock.now());
      await new Promise<void>((resolve) => void clock.setTimer(resolve, 100));
      return { done: 1 };
    },
  });
  const ended = loop.run(stop.signal);
  await clock.advance(899);
  expect(times).toHaveLength(3);
  stop.abort();
  await clock.advance(100);
  await ended;
});

it("tells what a round did, also if that was nothing", async () => {
  const { loop, events } = worker({ rounds: [3, 0] });
  expect(await loop.runOnce()).toEqual({ done: 3 });
  expect(await loop.runOnce()).toEqual({ done: 0 });
  expect(events).toEqual([
    { type: "worker", worker: "sampler", counts: { done: 3 } },
    { type: "worker", worker: "sampler", counts: { done: 0 } },
  ]);
});

it("turns an error into an event, and waits twice as long each time, up to a minute", async () => {
  const broken = new Error("the store is down");
  const { loop, clock, at, stop, events } = worker({ rounds: Array(12).fill(broken) });
  const ended = loop.run(stop.signal);
  await clock.advance(600_000);
  const pauses = at.slice(1).map((time, index) => time - (at[index] ?? 0));
  for (const [index, pause] of pauses.slice(0, 11).entries()) {
    const expected = Math.min(60_000, 1_000 * 2 ** index);
    expect(pause).toBeGreaterThanOrEqual(expected * 0.9);
    expect(pause).toBeLessThanOrEqual(expected * 1.1);
  }
  const errors = events.filter(({ type }) => type === "worker_error");
  expect(errors[0]).toEqual({ type: "worker_error", worker: "sampler", error: broken });
  expect(errors).toHaveLength(12);
  stop.abort();
  await ended;
});

it("begins with short pauses again after a round that worked", async () => {
  const broken = new Error("the store is down");
  const { loop, clock, at, stop } = worker({ rounds: [broken, broken, broken, 1, broken, 1] });
  const ended = loop.run(stop.signal);
  await clock.advance(30_000);
  expect((at[5] ?? 0) - (at[4] ?? 0)).toBeLessThanOrEqual(1_100);
  stop.abort();
  await ended;
});

it("leaves an error of runOnce to whoever called it", async () => {
  const broken = new Error("the store is down");
  const { loop, events } = worker({ rounds: [broken] });
  await expect(loop.runOnce()).rejects.toBe(broken);
  expect(events).toEqual([]);
});

/** Somebody to wait for notifications from. */
function bell() {
  const listeners = new Set<() => void>();
  return {
    listeners,
    ring() {
      for (const wake of listeners) wake();
    },
    async watch(wake: () => void) {
      listeners.add(wake);
      return () => void listeners.delete(wake);
    },
  };
}

it("is woken from its wait by a notification, and stops listening at the end", async () => {
  const { listeners, ring, watch } = bell();
  const { loop, clock, at, stop } = worker({ watch, intervalMs: 10_000 });
  const ended = loop.run(stop.signal);
  await clock.advance(100);
  const before = at.length;
  ring();
  await clock.advance(1);
  expect(at.length).toBe(before + 1);
  stop.abort();
  await ended;
  expect(listeners.size).toBe(0);
});

it("looks once more when it has begun to listen, because what came before woke nobody", async () => {
  const { watch } = bell();
  const { loop, clock, at, stop } = worker({ watch, intervalMs: 10_000 });
  const ended = loop.run(stop.signal);
  await clock.advance(100);
  expect(at).toEqual([0, 0]);
  stop.abort();
  await ended;
});

it("does not lose a notification that came during a round", async () => {
  const { ring, watch } = bell();
  let rounds = 0;
  const { loop, clock, stop } = worker({
    watch,
    intervalMs: 10_000,
    async runOnce() {
      rounds += 1;
      if (rounds === 3) ring();
      return { done: 0 };
    },
  });
  const ended = loop.run(stop.signal);
  await clock.advance(100);
  ring();
  await clock.advance(1);
  expect(rounds).toBe(4);
  stop.abort();
  await ended;
});

it("is not hurried by notifications while it waits after an error", async () => {
  const { ring, watch } = bell();
  const { loop, clock, at, stop } = worker({ watch, rounds: [0, 0, new Error("the store is down")] });
  const ended = loop.run(stop.signal);
  await clock.advance(1_100);
  expect(at).toHaveLength(3);
  for (let ms = 0; ms < 600; ms += 100) {
    ring();
    await clock.advance(100);
  }
  expect(at).toHaveLength(3);
  stop.abort();
  await ended;
});

it("polls while it cannot listen, says so, and tries to listen again", async () => {
  const { watch } = bell();
  const broken = new Error("no more connections");
  let tries = 0;
  const { loop, clock, at, stop, events } = worker({
    async watch(wake) {
      tries += 1;
      if (tries < 3) throw broken;
      return watch(wake);
    },
  });
  const ended = loop.run(stop.signal);
  await clock.advance(5_000);
  expect(tries).toBe(3);
  expect(at.length).toBeGreaterThanOrEqual(5);
  const errors = events.filter(({ type }) => type === "worker_error");
  expect(errors).toEqual(Array(2).fill({ type: "worker_error", worker: "sampler", error: broken }));
  stop.abort();
  await ended;
});

it("stops listening even if it was told to end before it had begun to listen", async () => {
  const { listeners, watch } = bell();
  let allow = () => {};
  const allowed = new Promise<void>((resolve) => {
    allow = resolve;
  });
  const { loop, clock, stop } = worker({
    async watch(wake) {
      await allowed;
      return watch(wake);
    },
  });
  const ended = loop.run(stop.signal);
  await clock.advance(100);
  stop.abort();
  await ended;
  allow();
  await clock.advance(1);
  expect(listeners.size).toBe(0);
});

it("ends at once when it is waiting, and does not begin at all when it is told so before", async () => {
  const { loop, clock, at, stop } = worker({ intervalMs: 3_600_000 });
  const ended = loop.run(stop.signal);
  await clock.advance(10);
  stop.abort();
  await ended;
  await loop.run(AbortSignal.abort());
  expect(at).toEqual([0]);
});

it("ends only after the round under way, which learns of it", async () => {
  let finish = () => {};
  let hasEnded = false;
  let stopping: AbortSignal | undefined;
  const { loop, clock, stop } = worker({
    async runOnce(signal) {
      stopping = signal;
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      return { done: 1 };
    },
  });
  const ended = loop.run(stop.signal).then(() => {
    hasEnded = true;
  });
  await clock.advance(10);
  stop.abort();
  await clock.advance(10);
  expect(hasEnded).toBe(false);
  expect(stopping?.aborted).toBe(true);
  finish();
  await ended;
});
