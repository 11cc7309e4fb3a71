import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { systemRuntime } from "../../src/engine/runtime.ts";
import {
  ConfigError,
  createLatchkey,
  type Latchkey,
  type LatchkeyEvent,
  type LatchkeyOptions,
} from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import {
  type DeliveredMessage,
  NotDeliverableError,
  RetryLaterError,
} from "../../src/workers/deliveries/deliver.ts";
import { type RelayOptions, relay } from "../../src/workers/relay.ts";
import { enqueue, type OutboxFixture, outboxStores, until } from "./outbox-support.ts";

describe.each(Object.entries(outboxStores))("on %s, a relay", (_name, openOutbox) => {
  let outbox: OutboxFixture;
  let events: LatchkeyEvent[];
  let latchkey: Latchkey;
  let delivered: DeliveredMessage[];

  beforeEach(async () => {
    outbox = await openOutbox();
    events = [];
    delivered = [];
    latchkey = open();
  });
  afterEach(() => outbox.close());

  function open(options: Partial<LatchkeyOptions> = {}): Latchkey {
    return outbox.open({ onEvent: (event) => events.push(event), ...options });
  }

  const collect: RelayOptions["deliver"] = async (message) => void delivered.push(message);
  const payloads = () => delivered.map(({ payload }) => payload);
  const counts = async () => {
    const { waiting, dead } = (await latchkey.store.outbox?.counts()) ?? {};
    return { waiting, dead };
  };

  it("delivers what was enqueued, once, with its key and its correlation id", async () => {
    await enqueue(latchkey, {
      topic: "receipt.send",
      payload: { charge: "ch_1" },
      key: "lk_1",
      correlationId: "request-7",
      partition: "customer-1",
    });
    const worker = relay(latchkey, { deliver: collect });
    expect(await worker.runOnce()).toEqual({ delivered: 1, failed: 0, dead: 0 });
    expect(await worker.runOnce()).toEqual({ delivered: 0, failed: 0, dead: 0 });
    expect(delivered).toEqual([
      {
        id: expect.any(String),
        topic: "receipt.send",
        payload: { charge: "ch_1" },
        key: "lk_1",
        correlationId: "request-7",
        partition: "customer-1",
        traceparent: null,
        attempt: 1,
        createdAt: expect.any(Number),
      },
    ]);
    expect(events).toContainEqual({
      type: "delivered",
      topic: "receipt.send",
      messageKey: "lk_1",
      attempts: 1,
    });
    expect(await counts()).toEqual({ waiting: 0, dead: 0 });
  });

  it("delivers a partition in order, one after the other, and partitions side by side", async () => {
    const letters = ["a", "b", "c", "d"];
    for (const n of [1, 2, 3]) {
      await enqueue(latchkey, ...letters.map((letter) => ({ partition: letter, payload: `${letter}${n}` })));
    }
    const running = new Set<string | null>();
    let atOnce = 0;
    const worker = relay(latchkey, {
      async deliver(message) {
        expect(running.has(message.partition)).toBe(false);
        running.add(message.partition);
        atOnce = Math.max(atOnce, running.size);
        await new Promise((resolve) => setTimeout(resolve, 5));
        running.delete(message.partition);
        delivered.push(message);
      },
    });
    while ((await worker.runOnce()).delivered > 0);
    for (const letter of letters) {
      expect(payloads().filter((payload) => String(payload).startsWith(letter))).toEqual(
        [1, 2, 3].map((n) => `${letter}${n}`),
      );
    }
    expect(atOnce).toBe(4);
  });

  it("shares the work with other relays, and delivers nothing that they deliver", async () => {
    const partitions = Array.from({ length: 30 }, (_, n) => `p${n}`);
    for (const n of [1, 2, 3]) {
      await enqueue(latchkey, ...partitions.map((partition) => ({ partition, payload: n })));
    }
    const workers = [latchkey, open(), open()].map((each) =>
      relay(each, {
        batch: 20,
        async deliver(message) {
          await new Promise((resolve) => setTimeout(resolve, 5));
          delivered.push(message);
        },
      }),
    );
    await until(async () => {
      await Promise.all(workers.map((worker) => worker.runOnce()));
      return (await counts()).waiting === 0;
    });
    for (const partition of partitions) {
      const places = delivered.filter((message) => message.partition === partition);
      expect(places.map(({ payload }) => payload)).toEqual([1, 2, 3]);
    }
  });

  it("runs no more deliveries at once than it was allowed", async () => {
    await enqueue(latchkey, ...Array.from({ length: 20 }, () => ({})));
    let running = 0;
    let atOnce = 0;
    const worker = relay(latchkey, {
      concurrency: 3,
      async deliver() {
        running += 1;
        atOnce = Math.max(atOnce, running);
        await new Promise((resolve) => setTimeout(resolve, 2));
        running -= 1;
      },
    });
    while ((await worker.runOnce()).delivered > 0);
    expect(atOnce).toBe(3);
  });

  it("claims no more than a batch at a time", async () => {
    await enqueue(latchkey, ...Array.from({ length: 5 }, () => ({})));
    const worker = relay(latchkey, { deliver: collect, batch: 2 });
    expect(await worker.runOnce()).toEqual({ delivered: 2, failed: 0, dead: 0 });
  });

  it("leaves what comes after a failed message of its partition alone, and nothing else", async () => {
    await enqueue(
      latchkey,
      { partition: "a", payload: "a1" },
      { partition: "a", payload: "a2" },
      { partition: "b", payload: "b1" },
      { payload: "free" },
    );
    let isDown = true;
    const worker = relay(latchkey, {
      backoff: { baseMs: 1, capMs: 1 },
      async deliver(message) {
        if (isDown && message.partition === "a") throw new Error("down");
        delivered.push(message);
      },
    });
    expect(await worker.runOnce()).toEqual({ delivered: 2, failed: 1, dead: 0 });
    expect(payloads().sort()).toEqual(["b1", "free"]);
    isDown = false;
    await until(async () => {
      await worker.runOnce();
      return delivered.length === 4;
    });
    expect(payloads().slice(2)).toEqual(["a1", "a2"]);
    expect(delivered[2]?.attempt).toBe(2);
    expect(delivered[3]?.attempt).toBe(1);
  });

  it("goes on with other partitions while a hundred wait behind a failed message", async () => {
    const blocked = Array.from({ length: 100 }, (_, n) => `blocked-${n}`);
    await enqueue(latchkey, ...blocked.map((partition) => ({ partition })));
    const worker = relay(latchkey, {
      async deliver(message) {
        // An hour exactly: a pause of its own choice would be random, and of a hundred one may be over at once.
        if (message.partition?.startsWith("blocked"))
          throw new RetryLaterError("down", { retryAfterMs: 3_600_000 });
        delivered.push(message);
      },
    });
    await until(async () => (await worker.runOnce()).failed === 0);
    await enqueue(latchkey, ...blocked.map((partition) => ({ partition })));
    await enqueue(latchkey, { partition: "free" });
    // A relay that found nothing would now wait for its interval.
    expect(await worker.runOnce()).toEqual({ delivered: 1, failed: 0, dead: 0 });
  });

  /** The pauses that the store is told to make. */
  function pausesTold(): number[] {
    const pauses: number[] = [];
    const { outbox: real } = latchkey.store;
    if (real === undefined) throw new Error("there is no outbox");
    const settle = real.settle.bind(real);
    vi.spyOn(real, "settle").mockImplementation(async (owner, deliveries) => {
      for (const delivery of deliveries) if (delivery.kind === "failed") pauses.push(delivery.retryAfterMs);
      await settle(owner, deliveries);
    });
    return pauses;
  }

  it("waits after a failure: a random time, up to twice as long each time", async () => {
    latchkey = open({ runtime: { ...systemRuntime, random: () => 0.5 } });
    await enqueue(latchkey, { key: "lk_1" });
    const pauses = pausesTold();
    const attempts: number[] = [];
    const worker = relay(latchkey, {
      backoff: { baseMs: 100, capMs: 300 },
      async deliver() {
        attempts.push(performance.now());
        throw new Error("down");
      },
    });
    await until(async () => {
      await worker.runOnce();
      return attempts.length === 4;
    });
    // Half of 100, of 200, of 300 (not 400) and of 300 again.
    expect(pauses).toEqual([50, 100, 150, 150]);
    for (const [index, pause] of pauses.slice(0, 3).entries()) {
      // The store counts in whole milliseconds.
      expect((attempts[index + 1] ?? 0) - (attempts[index] ?? 0)).toBeGreaterThan(pause - 2);
    }
    expect(events.find(({ type }) => type === "delivery_failed")).toEqual({
      type: "delivery_failed",
      topic: "receipt.send",
      messageKey: "lk_1",
      attempts: 1,
      error: "down",
    });
  });

  it("waits as long as the receiver said, up to the longest pause", async () => {
    await enqueue(latchkey, {});
    const pauses = pausesTold();
    const asked = [20, 3_600_000];
    const worker = relay(latchkey, {
      backoff: { baseMs: 1, capMs: 50 },
      async deliver() {
        const retryAfterMs = asked.shift();
        if (retryAfterMs !== undefined) throw new RetryLaterError("busy", { retryAfterMs });
      },
    });
    await until(async () => (await worker.runOnce()).delivered === 1);
    expect(pauses).toEqual([20, 50]);
  });

  it("makes a dead letter of a message after its last attempt, and lets the next one pass", async () => {
    await enqueue(
      latchkey,
      { partition: "a", payload: "bad", key: "lk_1" },
      { partition: "a", payload: "good" },
    );
    const worker = relay(latchkey, {
      attemptsMax: 2,
      backoff: { baseMs: 1, capMs: 1 },
      async deliver(message) {
        if (message.payload === "bad") throw new Error("always down");
        delivered.push(message);
      },
    });
    await until(async () => {
      await worker.runOnce();
      return delivered.length === 1;
    });
    expect(await counts()).toEqual({ waiting: 0, dead: 1 });
    expect(events).toContainEqual({
      type: "dead_letter",
      topic: "receipt.send",
      messageKey: "lk_1",
      attempts: 2,
      error: "always down",
    });
    const [letter] = (await latchkey.store.outbox?.deadLetters({ limit: 10 })) ?? [];
    expect(letter).toMatchObject({ key: "lk_1", error: "always down", attempts: 2 });
  });

  it("makes a dead letter at once of what can never be delivered", async () => {
    await enqueue(latchkey, {});
    const worker = relay(latchkey, {
      async deliver() {
        throw new NotDeliverableError("nobody wants it");
      },
    });
    expect(await worker.runOnce()).toEqual({ delivered: 0, failed: 0, dead: 1 });
  });

  it("a receiver that says nonsense about when to come back is asked again as any other", async () => {
    await enqueue(latchkey, { payload: "nonsense" }, { payload: "fine" });
    const worker = relay(latchkey, {
      deliver: async ({ payload }) => {
        if (payload === "nonsense") throw new RetryLaterError("later", { retryAfterMs: Number.NaN });
      },
    });
    expect(await worker.runOnce()).toEqual({ delivered: 1, failed: 1, dead: 0 });
    expect(await counts()).toEqual({ waiting: 1, dead: 0 });
  });

  it("a partition in which much waits leaves others their share of a batch", async () => {
    await enqueue(
      latchkey,
      ...Array.from({ length: 300 }, (_, payload) => ({ payload, partition: "large" })),
    );
    for (const partition of ["a", "b", "c", "d"]) await enqueue(latchkey, { payload: partition, partition });
    await relay(latchkey, { deliver: collect, batch: 100 }).runOnce();
    await relay(latchkey, { deliver: collect, batch: 100 }).runOnce();
    expect(payloads()).toEqual(expect.arrayContaining(["a", "b", "c", "d"]));
  });

  it("what a receiver says cannot keep its neighbours from being settled", async () => {
    const strange = "\0 and \ud800";
    await enqueue(latchkey, { payload: "referenced" }, { payload: "failing" }, { payload: "fine" });
    const worker = relay(latchkey, {
      attemptsMax: 1,
      deliver: async ({ payload }) => {
        if (payload === "failing") throw new Error(strange);
        return payload === "referenced" ? { reference: strange.repeat(200) } : undefined;
      },
    });
    expect(await worker.runOnce()).toEqual({ delivered: 2, failed: 0, dead: 1 });
    expect(await counts()).toEqual({ waiting: 0, dead: 1 });
    expect((await latchkey.deadLetters())[0]).toMatchObject({ error: "\ufffd and \ufffd" });
  });

  it("keeps what the receiver called a message", async () => {
    await enqueue(latchkey, {});
    const worker = relay(latchkey, { deliver: async () => ({ reference: "stream:7" }) });
    expect(await worker.runOnce()).toEqual({ delivered: 1, failed: 0, dead: 0 });
    // Messages with a reference stay until they are pruned.
    expect(await counts()).toEqual({ waiting: 0, dead: 0 });
    expect(await latchkey.store.outbox?.prune({ limit: 10, retentionMs: 0 })).toBe(1);
  });

  it("counts a delivery that takes too long as failed, and tells it to stop", async () => {
    await enqueue(latchkey, {});
    let reason: unknown;
    const worker = relay(latchkey, {
      deliverTimeoutMs: 50,
      deliver: (_message, { signal }) =>
        new Promise(() => signal.addEventListener("abort", () => (reason = signal.reason))),
    });
    expect(await worker.runOnce()).toEqual({ delivered: 0, failed: 1, dead: 0 });
    expect(String(reason)).toContain("longer than 50 ms");
  });

  it("starts no delivery that may outlast its claim, and leaves the rest to whoever comes next", async () => {
    const places = Array.from({ length: 40 }, (_, n) => n);
    await enqueue(latchkey, ...places.map((payload) => ({ partition: "a", payload })));
    const worker = relay(latchkey, {
      leaseMs: 2_000,
      deliverTimeoutMs: 1_000,
      async deliver(message) {
        await new Promise((resolve) => setTimeout(resolve, 60));
        delivered.push(message);
      },
    });
    const startedAt = performance.now();
    const { delivered: first, failed } = await worker.runOnce();
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    expect(failed).toBe(0);
    expect(first).toBeGreaterThan(0);
    expect(first).toBeLessThan(40);
    // Its lanes are free: another relay goes on at once.
    const other = relay(open(), { deliver: collect });
    expect(await other.runOnce()).toEqual({ delivered: 40 - first, failed: 0, dead: 0 });
    expect(payloads()).toEqual(places);
  });

  it("starts no further delivery when it is told to stop, and frees its lanes", async () => {
    await enqueue(latchkey, ...Array.from({ length: 5 }, (_, n) => ({ partition: "a", payload: n })));
    const stop = new AbortController();
    const worker = relay(latchkey, {
      async deliver(message) {
        stop.abort();
        delivered.push(message);
      },
    });
    await worker.run(stop.signal);
    expect(payloads()).toEqual([0]);
    const other = relay(open(), { deliver: collect });
    expect(await other.runOnce()).toEqual({ delivered: 4, failed: 0, dead: 0 });
  });

  it("does not share a partition with a round of its own that is still under way", async () => {
    await enqueue(latchkey, { partition: "a", payload: 1 }, { partition: "a", payload: 2 });
    const worker = relay(latchkey, {
      async deliver(message) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        delivered.push(message);
      },
    });
    await Promise.all([worker.runOnce(), worker.runOnce()]);
    expect(payloads()).toEqual([1, 2]);
  });

  it("takes over what a relay that died had claimed, once its lease has lapsed", async () => {
    await enqueue(latchkey, { partition: "a" });
    const claimedAt = performance.now();
    const claimed = await latchkey.store.outbox?.claim({ owner: "dead", limit: 10, leaseMs: 300 });
    expect(claimed).toHaveLength(1);
    const worker = relay(open(), { deliver: collect });
    await until(async () => (await worker.runOnce()).delivered === 1);
    // The store counts in whole milliseconds.
    expect(performance.now() - claimedAt).toBeGreaterThan(298);
  });

  it("is woken when something is enqueued, or finds it within its interval", async () => {
    const stop = new AbortController();
    const isPushed = latchkey.store.outbox?.watch !== undefined;
    const worker = relay(latchkey, { deliver: collect, intervalMs: isPushed ? 3_600_000 : 50 });
    const ended = worker.run(stop.signal);
    await new Promise((resolve) => setTimeout(resolve, 100));
    // An embedded store wakes its own process only.
    await enqueue(latchkey.store.capabilities.durability === "server" ? open() : latchkey, {});
    await until(() => delivered.length === 1);
    stop.abort();
    await ended;
  });

  it("tells a store that was away for a moment again what it has delivered", async () => {
    await enqueue(latchkey, {});
    const { outbox: real } = latchkey.store;
    if (real === undefined) throw new Error("there is no outbox");
    let failures = 2;
    const flaky: Latchkey = open({
      store: {
        ...latchkey.store,
        capabilities: latchkey.store.capabilities,
        name: latchkey.store.name,
        reserve: (request) => latchkey.store.reserve(request),
        close: async () => {},
        outbox: {
          claim: (options) => real.claim(options),
          async settle(owner, deliveries) {
            failures -= 1;
            if (failures >= 0) throw new Error("connection lost");
            await real.settle(owner, deliveries);
          },
          counts: () => real.counts(),
          deadLetters: (options) => real.deadLetters(options),
          requeue: (ids, by) => real.requeue(ids, by),
          prune: (options) => real.prune(options),
        },
      },
    });
    const worker = relay(flaky, { deliver: collect });
    expect(await worker.runOnce()).toEqual({ delivered: 1, failed: 0, dead: 0 });
    expect(await counts()).toEqual({ waiting: 0, dead: 0 });
  });
});

describe("a relay", () => {
  const deliver = async () => {};

  it("refuses a store without transactions, and says which to use", () => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    expect(() => relay(latchkey, { deliver })).toThrow(ConfigError);
    expect(() => relay(latchkey, { deliver })).toThrow(
      "use sqliteStore, postgresStore, mysqlStore or dynamodbStore",
    );
  });

  it.each([
    [{ batch: 0 }, "batch of the relay is 0 and must be a whole number above 0"],
    [{ concurrency: 1.5 }, "concurrency of the relay is 1.5 and must be a whole number above 0"],
    [{ attemptsMax: -1 }, "attemptsMax of the relay is -1"],
    [{ intervalMs: Number.NaN }, "intervalMs of the relay is NaN"],
    [{ backoff: { baseMs: 0, capMs: 1 } }, "baseMs of the relay is 0"],
    [
      { leaseMs: 1_000, deliverTimeoutMs: 900 },
      "deliverTimeoutMs of the relay is 900 and must be at most 800",
    ],
  ])("refuses %j", async (options, message) => {
    const outbox = await outboxStores.sqlite?.();
    if (outbox === undefined) throw new Error("there is no sqlite");
    try {
      expect(() => relay(outbox.open(), { deliver, ...options })).toThrow(message);
    } finally {
      await outbox.close();
    }
  });
});
