import { expect, it } from "vitest";
import type { FrontLink } from "../../src/stores/layered/front.ts";
import { LayeredStore, type Truth } from "../../src/stores/layered/layered-store.ts";
import { momentOf, TruthClock } from "../../src/stores/layered/truth-clock.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { again, complete, leaseOf, request } from "./postgres-support.ts";

/** Clocks that go only when they are told to. */
function standingClocks() {
  const at = { steady: 1_000, wall: 9_000_000 };
  return {
    clocks: { steady: () => at.steady, wall: () => at.wall },
    pass(ms: number) {
      at.steady += ms;
      at.wall += ms;
    },
    at,
  };
}

function sampled({ askMs, answerMs }: { askMs: number; answerMs: number }) {
  const standing = standingClocks();
  const askedAt = momentOf(standing.clocks);
  standing.pass(askMs + answerMs);
  return { ...standing, clock: new TruthClock(standing.clocks, { now: 50_000, askedAt }) };
}

it("the truth's clock is between bounds that are as far apart as the answer took", () => {
  const { clock, pass } = sampled({ askMs: 10, answerMs: 30 });
  expect([clock.earliest(), clock.latest()]).toEqual([50_000, 50_042]);
  pass(1_000);
  // One per mille of the time, in both directions.
  expect([clock.earliest(), clock.latest()]).toEqual([50_999, 51_043]);
});

it("a machine that slept, or whose clock was set forward, counts what the wall clock counts; set back, the other", () => {
  const { clock, at } = sampled({ askMs: 0, answerMs: 0 });
  at.wall += 60_000;
  expect(clock.ageMs()).toBe(60_000);
  expect(clock.latest()).toBeGreaterThan(110_000);
  expect(clock.earliest()).toBe(50_000);
  at.wall -= 120_000;
  at.steady += 500;
  expect(clock.ageMs()).toBe(500);
});

/** A layered store over memory, with a front that is perfect. */
function layered() {
  const { clocks, pass } = standingClocks();
  let truthNow = 1_700_000_000_000;
  const memory = memoryStore({ clock: () => truthNow });
  let asked = 0;
  let isTold = true;
  const { onBusted, bustGeneration, reserve } = memory;
  if (onBusted === undefined || bustGeneration === undefined) throw new Error("memory tells of busts");
  const truth = Object.assign(memory, {
    onBusted: (listener: Parameters<typeof onBusted>[0]) =>
      onBusted.call(memory, { ...bound(listener), busted: (name) => isTold && listener.busted(name) }),
    bustGeneration: () => bustGeneration.call(memory),
    reserve(wanted: Parameters<typeof reserve>[0]) {
      asked += 1;
      return reserve.call(memory, wanted);
    },
  }) as Truth<unknown>;
  const entries = new Map<string, Buffer>();
  let meanwhile: (() => Promise<unknown>) | undefined;
  const link: FrontLink = {
    keyPrefix: "",
    close: async () => {},
    primaries: async () => [],
    async send(name, [command, , value]) {
      if (command === "SET") entries.set(name, Buffer.from(value ?? ""));
      await meanwhile?.();
      return command === "GET" ? (entries.get(name) ?? null) : "OK";
    },
  };
  const settings = { prefix: "p", frontTimeoutMs: 1_000, entryBytesMax: 1_000, inFlight: true };
  const store = new LayeredStore(truth, link, settings, clocks);
  return {
    store,
    entries,
    pass(ms: number) {
      pass(ms);
      truthNow += ms;
    },
    setTruthClock(ms: number) {
      truthNow += ms;
    },
    tellNobody() {
      isTold = false;
    },
    /** Happens while the front is asked. */
    meanwhile(act: () => Promise<unknown>) {
      meanwhile = () => {
        meanwhile = undefined;
        return act();
      };
    },
    async asked(act: () => Promise<unknown>) {
      const before = asked;
      await act();
      return asked - before;
    },
  };
}

function bound(listener: { listening(): void; interrupted(): void }) {
  return { listening: () => listener.listening(), interrupted: () => listener.interrupted() };
}

const untilKnown = () => new Promise((resolve) => setImmediate(resolve));

it("a clock that was not looked at for long is not relied on, and looked at again", async () => {
  const { store, pass, asked } = layered();
  await untilKnown();
  const first = request();
  await store.settle(await leaseOf(store, first), complete);
  const replay = () => asked(() => store.reserve(again(first)));
  expect(await replay()).toBe(0);
  pass(14_000);
  expect(await replay()).toBe(0);
  await untilKnown();
  pass(14_000);
  expect(await replay()).toBe(0);
  await untilKnown();
  pass(16_000);
  expect(await replay()).toBe(1);
  await untilKnown();
  expect(await replay()).toBe(0);
});

it("an answer is replayed until just before it expires, and never longer", async () => {
  const { store, pass, asked } = layered();
  await untilKnown();
  const first = request();
  await store.settle(await leaseOf(store, first), { ...complete, retentionMs: 1_000 });
  pass(990);
  expect(await asked(() => store.reserve(again(first)))).toBe(0);
  pass(9);
  expect(await asked(() => store.reserve(again(first)))).toBe(1);
});

it("whoever busts a key knows it at once, even if the news never comes", async () => {
  const { store, asked, tellNobody } = layered();
  await untilKnown();
  const first = request();
  await store.settle(await leaseOf(store, first), complete);
  tellNobody();
  await store.bust(first, { by: "ada", reason: "wrong" });
  expect(await store.reserve(again(first))).toMatchObject({ kind: "execute" });
  await untilKnown();
  expect(await asked(() => store.reserve(again(first)))).toBe(1);
});

it("a bust that is heard while the front is asked counts", async () => {
  const { store, meanwhile } = layered();
  await untilKnown();
  const first = request();
  await store.settle(await leaseOf(store, first), complete);
  meanwhile(() => store.bust(first, { by: "ada", reason: "wrong" }));
  expect(await store.reserve(again(first))).toMatchObject({ kind: "execute" });
});

it("an outcome that is told again later is not what the front keeps", async () => {
  const { store, entries } = layered();
  await untilKnown();
  const lease = await leaseOf(store, request());
  const [first, second] = await Promise.all([store.settle(lease, complete), store.settle(lease, complete)]);
  expect([first.kind, second.kind]).toEqual(["settled", "settled"]);
  expect(entries.size).toBe(0);
});
