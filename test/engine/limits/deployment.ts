import { metersOf } from "../../../src/core/meter-text.ts";
import type { PolicyInput } from "../../../src/core/policy.ts";
import type { RecordId } from "../../../src/core/record.ts";
import type { Store } from "../../../src/core/store.ts";
import { Engine } from "../../../src/engine/engine.ts";
import type { LatchkeyEvent } from "../../../src/engine/events.ts";
import type { LimitsOptions, Refusal } from "../../../src/engine/limits/options.ts";
import { limitsNoteName } from "../../../src/engine/limits/tally.ts";
import type { Verdict } from "../../../src/engine/verdict.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import {
  type Fault,
  type FaultyStore,
  faultyStore,
  type ManualClock,
  manualClock,
} from "../../../src/testing/index.ts";
import { answered, arrival, execution, leaseMs, storeTimeoutMs } from "../cluster.ts";

/** Engines under the same limits on one store, each as if in a process of its own, on virtual time. */
export interface Deployment {
  readonly clock: ManualClock;
  readonly store: FaultyStore;
  readonly events: LatchkeyEvent[];
  readonly engines: readonly Engine[];
  /** How long the store takes for each call. */
  latencyMs: number;
  /** The fate of the next calls about notes. */
  readonly noteFaults: Fault[];
  noteCalls(): number;
  /** The fate of every question for many keys at once. */
  readonly faults: { exist?: Fault };
}

/** With `tellsOfMany`, the store can say of many keys at once whether they are there. */
export function deployment(limits: LimitsOptions, processes = 1, { tellsOfMany = false } = {}): Deployment {
  const clock = manualClock();
  const noteFaults: Fault[] = [];
  const events: LatchkeyEvent[] = [];
  const made: { -readonly [Name in keyof Deployment]: Deployment[Name] } = {
    clock,
    events,
    engines: [],
    latencyMs: 0,
    noteFaults,
    faults: {},
    store: faultyStore({
      store: tellsOfMany
        ? tellingOfMany(memoryStore({ clock: clock.now }))
        : memoryStore({ clock: clock.now }),
      runtime: clock,
      choose(verb): Fault {
        if (verb === "exist" && made.faults.exist !== undefined) return made.faults.exist;
        const fault = verb === "readNotes" || verb === "writeNotes" ? noteFaults.shift() : undefined;
        return fault ?? (made.latencyMs > 0 ? { kind: "delay", ms: made.latencyMs } : { kind: "none" });
      },
    }),
    noteCalls: () => made.store.calls.readNotes + made.store.calls.writeNotes,
  };
  made.engines = Array.from({ length: processes }, () => {
    const engine = new Engine({ store: made.store, runtime: clock, leaseMs, storeTimeoutMs, limits });
    engine.events.subscribe((event) => events.push(event));
    return engine;
  });
  return made;
}

function tellingOfMany(store: Store): Store {
  const isThere = async (id: RecordId) => (await store.read(id)).record !== undefined;
  return Object.assign(store, { exist: (ids: readonly RecordId[]) => Promise.all(ids.map(isThere)) });
}

let keys = 0;

/** A request with a key that was never used. */
export async function fresh(
  engine: Engine,
  options: { tenant?: string; key?: string; policy?: PolicyInput } = {},
): Promise<Verdict> {
  keys += 1;
  const { tenant = "acme", key = `key-${keys}`, policy } = options;
  return engine.arrive(arrival(policy, { scope: tenant, key }));
}

/** Executed and answered, so that its retries are replays. */
export async function completed(engine: Engine, key: string, tenant = "acme", body = ""): Promise<void> {
  await execution(await fresh(engine, { key, tenant })).settle(answered(201, body));
}

export function lookUp(
  engine: Engine,
  options: { tenant?: string; isClaim?: boolean } = {},
): Promise<Refusal | undefined> {
  const { tenant = "acme", isClaim = false } = options;
  return Promise.resolve(engine.limits?.lookUp({ tenant, tenantScope: tenant, isClaim }));
}

/** Lets virtual time pass until the promise is settled. */
export async function settled<T>(clock: ManualClock, answer: T | Promise<T>): Promise<T> {
  let isSettled = false;
  const done = Promise.resolve(answer).finally(() => {
    isSettled = true;
  });
  done.catch(() => undefined);
  for (let ms = 0; !isSettled && ms < 10_000; ms += 1) await clock.advance(ms === 0 ? 0 : 1);
  return done;
}

/**
 * Requests arrive everywhere at once for some time. Answers with when each was let in; none of them is waited for before
 * the next arrives.
 */
export async function spray(
  { clock, engines }: Deployment,
  options: {
    readonly forMs: number;
    readonly everyMs: number;
    readonly arrive: (engine: Engine) => Promise<boolean>;
  },
): Promise<readonly number[]> {
  const admitted: number[] = [];
  const pending: Promise<void>[] = [];
  for (let ms = 0; ms < options.forMs; ms += options.everyMs) {
    for (const engine of engines) {
      pending.push(options.arrive(engine).then((isIn) => void (isIn && admitted.push(clock.now()))));
    }
    await clock.advance(options.everyMs);
  }
  await settled(clock, Promise.all(pending));
  return admitted;
}

export function mostInWindow(times: readonly number[], windowMs: number): number {
  return Math.max(...times.map((from) => times.filter((at) => at >= from && at < from + windowMs).length));
}

/** What all processes know that a tenant has taken. */
export async function takenIn({ store }: Deployment, meter: string): Promise<number> {
  const { notes } = await store.notes.read([limitsNoteName("acme")]);
  const taken = metersOf(notes[0]?.value ?? "")[meter]?.taken ?? [];
  return taken.reduce((sum, { amount }) => sum + amount, 0);
}
