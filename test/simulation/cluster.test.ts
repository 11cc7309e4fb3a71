import { describe, expect, it } from "vitest";
import { type PolicyInput, resolvePolicy } from "../../src/core/policy.ts";
import { Engine } from "../../src/engine/engine.ts";
import type { Runtime } from "../../src/engine/runtime.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { type Fault, faultyStore, manualClock, seededRandom } from "../../src/testing/index.ts";

const engines = 4;
const keys = 6;
const requests = 120;
const spanMs = 120_000;
const leaseMs = 3_000;

interface Run {
  /** Everything that happened, in order: two runs from one seed must agree on all of it. */
  readonly trace: string[];
  /** Executions of each key whose outcome the store confirmed. */
  readonly confirmed: Map<string, number>;
  /** The most executions of one key that believed at the same time that they held it. */
  readonly overlap: number;
  readonly finalStates: Map<string, string>;
  /** How often each key was busted, whether or not the operator learnt it. */
  readonly busts: Map<string, number>;
  /** Replays of an answer that had been busted before the request came. */
  readonly stale: string[];
  /** Replays that the store was not asked for. */
  readonly cached: number;
}

/**
 * A cluster of engines that crash, freeze and lose messages, on virtual time, from one seed. With an operator, engines
 * have a cache, answers can be late, and keys are busted now and then.
 */
async function simulate(
  seed: number,
  policyInput: PolicyInput,
  options: { readonly operator?: boolean } = {},
): Promise<Run> {
  const clock = manualClock({ seed });
  const random = seededRandom(seed ^ 0x5eed);
  const memory = memoryStore({ clock: clock.now });
  const policy = resolvePolicy(memory.capabilities, policyInput);
  const trace: string[] = [];
  const confirmed = new Map<string, number>();
  const holders = new Map<string, number>();
  const stale: string[] = [];
  let overlap = 0;
  let cached = 0;
  let calm = false;

  const choose = (): Fault => {
    if (calm) return { kind: "none" };
    const roll = random();
    if (roll < 0.04) return { kind: "failBefore" };
    if (roll < 0.08) return { kind: "failAfter" };
    if (roll < 0.2) return { kind: "delay", ms: random() * 2 * leaseMs };
    if (options.operator && roll < 0.3) return { kind: "late", ms: random() * leaseMs };
    return { kind: "none" };
  };
  const store = faultyStore({ store: memory, runtime: clock, choose });

  const processes = Array.from({ length: engines }, (_, index) => {
    let incarnation = 0;
    let engine = boot();
    function boot(): Engine {
      const mine = incarnation;
      // The timers of a process that crashed never fire; it is simply gone.
      const runtime: Runtime = {
        now: clock.now,
        random: clock.random,
        setTimer: (run, ms) => clock.setTimer(() => mine === incarnation && run(), ms),
      };
      const cache = options.operator ? {} : undefined;
      const started = new Engine({ store, runtime, leaseMs, storeTimeoutMs: 1_000, cache });
      started.events.subscribe((event) => {
        const attempt = "attempt" in event ? event.attempt : "";
        const what = "outcome" in event ? event.outcome : "as" in event ? event.as : "";
        trace.push(`${clock.now()} ${index}.${mine} ${event.type} ${what} ${attempt}`);
        if (event.type === "reserved" && event.cached) cached += 1;
      });
      return started;
    }
    return {
      get engine() {
        return engine;
      },
      alive: (then: number) => then === incarnation,
      get incarnation() {
        return incarnation;
      },
      crash() {
        incarnation += 1;
        trace.push(`${clock.now()} ${index} crash`);
        engine = boot();
      },
    };
  });

  /** The latest first; the memory store's trail has it as soon as the store has done it. */
  async function bustsOf(key: string) {
    return (await memory.audit({ key, limit: 1_000 })).filter(({ to }) => to === "expired");
  }

  async function bust(): Promise<void> {
    const process = processes[Math.floor(random() * engines)];
    const key = `key-${Math.floor(random() * keys)}`;
    const said = { by: "operator", reason: "a wrong price" };
    const answer = await process?.engine.bust({ scope: "tenant", key }, said).catch(() => undefined);
    trace.push(`${clock.now()} ${key} bust ${answer?.kind}`);
  }

  async function request(): Promise<void> {
    const process = processes[Math.floor(random() * engines)];
    if (process === undefined) return;
    const key = `key-${Math.floor(random() * keys)}`;
    const { incarnation } = process;
    const [bust] = options.operator ? await bustsOf(key) : [];
    const verdict = await process.engine.arrive({ scope: "tenant", key, fingerprint: "v1:a", policy });
    trace.push(`${clock.now()} ${key} ${verdict.kind}`);
    if (verdict.kind === "replay" && verdict.response.kind === "full" && bust !== undefined) {
      const answer = new TextDecoder().decode(verdict.response.body);
      if (Number(answer.split(" ")[1]) <= bust.fence) stale.push(`${answer} after ${bust.fence} was busted`);
    }
    if (verdict.kind !== "execute" || !process.alive(incarnation)) return;
    const { execution } = verdict;
    holders.set(key, (holders.get(key) ?? 0) + 1);
    overlap = Math.max(overlap, holders.get(key) ?? 0);
    const handlerMs = random() * 2 * leaseMs;
    await new Promise<void>((resolve) => void clock.setTimer(resolve, handlerMs));
    // A crashed process stops in the middle; a well-behaved handler stops when it is told to.
    holders.set(key, (holders.get(key) ?? 0) - 1);
    if (!process.alive(incarnation) || execution.signal.aborted) return;
    const body = new TextEncoder().encode(`${key} ${execution.attempt}`);
    const status = random() < 0.2 ? 500 : 201;
    const settled = await execution.settle({
      kind: "answered",
      response: { kind: "full", status, headers: [], body },
    });
    trace.push(`${clock.now()} ${key} settled ${settled.kind}`);
    if (settled.kind === "stored") confirmed.set(key, (confirmed.get(key) ?? 0) + 1);
  }

  for (let index = 0; index < requests; index += 1) clock.setTimer(() => void request(), random() * spanMs);
  for (let index = 0; index < 12; index += 1) {
    clock.setTimer(() => processes[Math.floor(random() * engines)]?.crash(), random() * spanMs);
  }
  if (options.operator) {
    for (let index = 0; index < 20; index += 1) clock.setTimer(() => void bust(), random() * spanMs);
  }
  await clock.advance(spanMs);
  calm = true;
  await clock.advance(20 * leaseMs);
  await memory.sweep({ limit: 1000, unclaimed: { kind: "omitted", status: 408, bodyBytes: 0 } });

  const finalStates = new Map<string, string>();
  const busts = new Map<string, number>();
  for (let index = 0; index < keys; index += 1) {
    const { record } = await memory.read({ scope: "tenant", key: `key-${index}` });
    finalStates.set(`key-${index}`, record?.state ?? "absent");
    busts.set(`key-${index}`, (await bustsOf(`key-${index}`)).length);
  }
  for (const { engine } of processes) engine.close();
  return { trace, confirmed, overlap, finalStates, busts, stale, cached };
}

const seeds = Array.from({ length: 200 }, (_, index) => index + 1);

describe("a cluster on virtual time, with crashes, lost answers and late ones", () => {
  it("the same seed gives the same run, event for event", async () => {
    const first = await simulate(7, { onCrash: "retry" });
    const second = await simulate(7, { onCrash: "retry" });
    expect(first.trace.length).toBeGreaterThan(200);
    expect(second.trace).toEqual(first.trace);
    expect((await simulate(8, { onCrash: "retry" })).trace).not.toEqual(first.trace);
  });

  it.each(["reconcile", "retry"] as const)(
    "under onCrash %s at most one execution of a key is confirmed, and no key is wedged",
    async (onCrash) => {
      let confirmations = 0;
      for (const seed of seeds) {
        const { confirmed, finalStates } = await simulate(seed, { onCrash });
        for (const [key, count] of confirmed) expect(count, `seed ${seed}, ${key}`).toBe(1);
        for (const [key, state] of finalStates) {
          expect(["absent", "completed", "failed_retryable", "unknown"], `seed ${seed}, ${key}`).toContain(
            state,
          );
        }
        confirmations += confirmed.size;
      }
      expect(confirmations).toBeGreaterThan(seeds.length);
    },
  );

  it("with a cache no busted answer is replayed, and each bust lets at most one more execution be confirmed", async () => {
    const sum = { cached: 0, busts: 0, again: 0 };
    for (const seed of seeds.slice(0, 100)) {
      const { confirmed, busts, stale, cached } = await simulate(
        seed,
        { onCrash: "retry" },
        { operator: true },
      );
      expect(stale, `seed ${seed}`).toEqual([]);
      for (const [key, count] of confirmed) {
        expect(count, `seed ${seed}, ${key}`).toBeLessThanOrEqual(1 + (busts.get(key) ?? 0));
        if (count > 1) sum.again += 1;
      }
      for (const count of busts.values()) sum.busts += count;
      sum.cached += cached;
    }
    // What is not there cannot go wrong either.
    for (const count of Object.values(sum)) expect(count).toBeGreaterThan(100);
  });

  it("under reconcile no two executions of a key ever hold it at the same time", async () => {
    for (const seed of seeds) {
      const { overlap } = await simulate(seed, { onCrash: "reconcile" });
      expect(overlap, `seed ${seed}`).toBeLessThanOrEqual(1);
    }
  });
});
