import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { decide } from "../../src/core/decide.ts";
import { type IdempotencyRecord, type RecordId, recordIdText } from "../../src/core/record.ts";
import type { BustListener, Lease, Reservation, ReserveRequest, Store } from "../../src/core/store.ts";
import type { FrontLink } from "../../src/stores/layered/front.ts";
import { LayeredStore, type Truth } from "../../src/stores/layered/layered-store.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { type ManualClock, manualClock, seededRandom } from "../../src/testing/index.ts";
import { again, request } from "../support/reserve-request.ts";

/*
 * The same as in layered-proof.test.ts, with a front that lies about everything all the time, on virtual time: every
 * answer can be compared with what the truth would have said at each moment, to the millisecond, and a seed repeats
 * everything. The clocks of the processes and of the truth run at different speeds.
 */

type Random = () => number;

const processes = 3;
const ids: readonly RecordId[] = ["acme", "rival"].flatMap((scope) => [
  { scope, key: "one" },
  { scope, key: "two" },
]);
const spanMs = 8_000;
const callers = 10;
const histories = 25;
/** Of each clock, and so half of what two of them may differ by. */
const driftMax = 0.0005;

let clock: ManualClock;

beforeEach(() => {
  vi.stubGlobal("setTimeout", (run: () => void, ms: number) => {
    const cancel = clock.setTimer(run, ms);
    return { cancel, unref() {} };
  });
  vi.stubGlobal("clearTimeout", (timer?: { cancel(): void }) => timer?.cancel());
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const sleep = (ms: number) => new Promise<void>((resolve) => void clock.setTimer(resolve, ms));

/** Everything that each record has ever been, and what the truth would have said of it. */
class Chronicle {
  readonly #changes = new Map<
    string,
    { readonly at: number; readonly record: IdempotencyRecord | undefined }[]
  >();
  readonly #clock: () => number;
  constructor(clock: () => number) {
    this.#clock = clock;
  }

  changed(id: RecordId, record: IdempotencyRecord | undefined): void {
    const changes = this.#changes.get(recordIdText(id)) ?? [];
    this.#changes.set(recordIdText(id), changes);
    changes.push({ at: this.#clock(), record });
  }

  /** Whether the truth would have said this at some moment from one to another. */
  allows(request: ReserveRequest, answer: Reservation, from: number, to: number): boolean {
    const changes = this.#changes.get(recordIdText(request)) ?? [];
    return changes.some(({ at, record }, index) => {
      const until = changes[index + 1]?.at ?? Number.POSITIVE_INFINITY;
      if (until < from || at > to) return false;
      // What is said of a record that does not change is only ever less with time.
      return isSame(decide(record, request, Math.floor(Math.max(at, from))), answer);
    });
  }
}

function isSame(decision: ReturnType<typeof decide>, answer: Reservation): boolean {
  if (decision.kind === "inFlight") return answer.kind === "inFlight" && answer.retryAfterMs > 0;
  if (decision.kind !== "replay" || answer.kind !== "replay") return false;
  if (decision.response.kind !== "full" || answer.response.kind !== "full") return false;
  const sameBody = Buffer.compare(decision.response.body, answer.response.body) === 0;
  return (
    sameBody && decision.expiresAt === answer.expiresAt && answer.remainingMs <= decision.remainingMs + 1
  );
}

/** A front that forgets, damages, mistakes, brings back, delays and does not answer. */
function lyingLink(random: Random): FrontLink {
  const current = new Map<string, Buffer>();
  const everything: { readonly name: string; readonly value: Buffer }[] = [];
  const any = (values: readonly { readonly value: Buffer }[]) =>
    values[Math.floor(random() * values.length)]?.value ?? null;
  const say = (name: string): Buffer | null => {
    const roll = random();
    if (roll < 0.55) return current.get(name) ?? null;
    if (roll < 0.8) return any(everything.filter((each) => each.name === name).slice(-4));
    if (roll < 0.85) return any(everything);
    if (roll < 0.9) return null;
    const bytes = Buffer.from(current.get(name) ?? "");
    if (roll < 0.95) return bytes.subarray(0, Math.floor(random() * bytes.length));
    const at = Math.floor(random() * bytes.length);
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    return bytes;
  };
  return {
    keyPrefix: "",
    close: async () => {},
    primaries: async () => [],
    async send(name, [command, , value]) {
      await sleep(random() < 0.1 ? 15 + random() * 40 : random() * 3);
      if (random() < 0.03) throw new Error("the connection is lost");
      if (command === "GET") return say(name);
      const bytes = Buffer.from(value ?? "");
      everything.push({ name, value: bytes });
      if (random() < 0.9) current.set(name, bytes);
      return "OK";
    },
  };
}

interface Run {
  readonly violations: string[];
  readonly counts: Record<string, number>;
  readonly trace: string;
}

async function simulate(seed: number): Promise<Run> {
  const random = seededRandom(seed);
  const drift = () => (random() * 2 - 1) * driftMax;
  clock = manualClock({ startMs: 0, seed });
  const clockOf = (speed: number, start: number) => () => start + clock.now() * (1 + speed);
  const truthClock = clockOf(drift(), 1_700_000_000_000 + Math.floor(random() * 1e9));
  const memory = memoryStore({ clock: () => Math.floor(truthClock()) });
  const chronicle = new Chronicle(truthClock);
  for (const id of ids) chronicle.changed(id, undefined);
  const link = lyingLink(random);
  const violations: string[] = [];
  const trace: string[] = [];
  const counts: Record<string, number> = { replay: 0, inFlight: 0, truth: 0, bust: 0 };
  let numbers = 0;

  const note = async (id: RecordId) => chronicle.changed(id, (await memory.read(id)).record);

  /** The way to the truth and back takes its time, and so does the news of busts. */
  function startProcess(number: number) {
    const unheard: { readonly id: string; readonly at: number }[] = [];
    const askedTruth = new Set<string>();
    const listeners = new Set<BustListener>();
    let isListening = false;
    const way = () => sleep(random() < 0.1 ? random() * 60 : random() * 4);
    async function there<T>(act: () => Promise<T>, id?: RecordId): Promise<T> {
      await way();
      const answer = await act();
      if (id !== undefined) await note(id);
      await way();
      return answer;
    }
    const truth: Truth<unknown> = {
      ...passThrough(memory),
      reserve(request) {
        askedTruth.add(request.owner);
        return there(() => memory.reserve(request), request);
      },
      settle: (lease, settlement) => there(() => memory.settle(lease, settlement), lease),
      renew: (leases, leaseMs) => there(() => memory.renew(leases, leaseMs), leases[0]),
      bust: (id, said) => there(() => memory.bust(id, said), id),
      bustGeneration: () =>
        there(async () => (await memory.bustGeneration?.()) ?? { generation: "", now: 0 }),
      onBusted(listener) {
        listeners.add(listener);
        return recordIdText;
      },
    };
    memory.onBusted?.({
      listening: () => {},
      interrupted: () => {},
      busted(id) {
        if (!isListening) return;
        const news = { id, at: truthClock() };
        unheard.push(news);
        void sleep(random() * 30).then(() => {
          if (!unheard.includes(news)) return;
          unheard.splice(unheard.indexOf(news), 1);
          for (const listener of listeners) listener.busted(id);
        });
      },
    });
    const clocks = { steady: clockOf(drift(), random() * 1e6), wall: clockOf(drift(), random() * 1e6) };
    const settings = { prefix: "p", frontTimeoutMs: 20, entryBytesMax: 1e6, inFlight: true };
    const store = new LayeredStore(truth, link, settings, clocks);
    const hear = (listens: boolean) => {
      isListening = listens;
      unheard.length = 0;
      for (const listener of listeners) listens ? listener.listening() : listener.interrupted();
    };
    hear(true);

    async function reserve(wanted: ReserveRequest): Promise<Lease | undefined> {
      const askedAt = truthClock();
      // Of what it has not been told it may not know.
      const notHeard = unheard.filter(({ id }) => id === recordIdText(wanted)).map(({ at }) => at - 1);
      const answer = await store.reserve(wanted);
      trace.push(`${Math.floor(clock.now())} ${number} ${recordIdText(wanted)} ${answer.kind}`);
      if (askedTruth.delete(wanted.owner)) counts.truth = (counts.truth ?? 0) + 1;
      else {
        counts[answer.kind] = (counts[answer.kind] ?? 0) + 1;
        if (!chronicle.allows(wanted, answer, Math.min(askedAt, ...notHeard), truthClock())) {
          violations.push(
            `seed ${seed}, process ${number}, at ${askedAt}: ${JSON.stringify({ wanted, answer })}`,
          );
        }
      }
      return answer.kind === "execute" ? answer.lease : undefined;
    }
    return { store, reserve, hear };
  }

  const all = Array.from({ length: processes }, (_, number) => startProcess(number));
  type Process = (typeof all)[number];
  const any = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;

  /** What is not true any more would be said now. Whoever may execute crashes, for the sake of simplicity. */
  async function askEverybody(id: RecordId, fingerprint: string): Promise<void> {
    const wanted = request({ scope: id.scope, key: id.key, fingerprint, leaseMs: 300, onCrash: "retry" });
    await Promise.all(all.map(({ reserve }) => reserve(again(wanted))));
  }

  async function execute({ store }: Process, lease: Lease, fingerprint: string): Promise<void> {
    const isLong = random() < 0.3;
    await sleep(isLong ? 600 + random() * 2_000 : random() * 30);
    if (random() < 0.4) await store.renew([lease], 4_000);
    else if (isLong && random() < 0.5) {
      await store.renew([lease], 30);
      await sleep(30);
      await askEverybody(lease, fingerprint);
    }
    const roll = random();
    const retentionMs = 50 + Math.floor(random() * 1_500);
    if (roll < 0.2) await store.settle(lease, { kind: "release", reason: "not done", retentionMs });
    else if (roll < 0.8) {
      numbers += 1;
      const response = {
        kind: "full",
        status: 201,
        headers: [],
        body: Buffer.from(`answer ${numbers}`),
      } as const;
      await store.settle(lease, { kind: "complete", response, retentionMs });
    }
    if (isLong) await askEverybody(lease, fingerprint);
  }

  async function act(process: Process): Promise<void> {
    const id = any(ids);
    const roll = random();
    if (roll < 0.04) {
      const answer = await process.store.bust(id, { by: "ada", reason: "wrong" });
      if (answer.kind === "busted") counts.bust = (counts.bust ?? 0) + 1;
    } else if (roll < 0.06) {
      process.hear(false);
      await any(all).store.bust(id, { by: "ada", reason: "wrong" });
      await askEverybody(id, "v1:usual");
      await sleep(random() * 200);
      process.hear(true);
    } else {
      const fingerprint = random() < 0.9 ? "v1:usual" : "v1:other";
      const leaseMs = random() < 0.2 ? 300 + random() * 500 : 4_000;
      const wanted = again(request({ ...id, fingerprint, leaseMs: Math.floor(leaseMs), onCrash: "retry" }));
      const lease = await process.reserve(wanted);
      if (lease !== undefined) await execute(process, lease, fingerprint);
    }
  }

  const running = Array.from({ length: callers }, async () => {
    while (clock.now() < spanMs) {
      await sleep(random() * 60);
      await act(any(all));
    }
  });
  await clock.drain(spanMs + 10_000);
  await Promise.all(running);
  for (const { store } of all) await store.close();
  return { violations, counts, trace: trace.join("\n") };
}

function passThrough(store: Store): Store {
  const verbs = [
    "advance",
    "read",
    "sweep",
    "claimResumable",
    "claimUnknown",
    "resolve",
    "audit",
    "reap",
    "close",
  ];
  const bound = Object.fromEntries(verbs.map((verb) => [verb, store[verb as "read"].bind(store)]));
  return { name: store.name, capabilities: store.capabilities, ...bound } as unknown as Store;
}

it("a front that lies about everything changes no answer", {
  timeout: 60_000,
}, async () => {
  const violations: string[] = [];
  const totals: Record<string, number> = {};
  const firstSeed = Number(process.env.LATCHKEY_TEST_SEED ?? 1);
  for (let seed = firstSeed; seed < firstSeed + histories; seed += 1) {
    const run = await simulate(seed);
    violations.push(...run.violations);
    for (const [kind, count] of Object.entries(run.counts)) totals[kind] = (totals[kind] ?? 0) + count;
  }
  console.log(
    `layered model from seed ${firstSeed}: ${JSON.stringify(totals)}, ${violations.length} violations`,
  );
  expect(violations.slice(0, 5)).toEqual([]);
  expect(totals.replay).toBeGreaterThan(1_000);
  expect(totals.inFlight).toBeGreaterThan(1_000);
  expect(totals.bust).toBeGreaterThan(100);
});

it("one seed is one history", async () => {
  expect((await simulate(42)).trace).toBe((await simulate(42)).trace);
});
