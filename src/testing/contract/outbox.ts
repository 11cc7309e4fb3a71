import assert from "node:assert/strict";
import type { Delivery, Message } from "../../core/outbox.ts";
import type { ContractCase } from "./harness.ts";
import {
  delivered,
  died,
  failed,
  named,
  neverMs,
  outboxCase,
  outboxPushCase,
  ownPartition,
  payloads,
} from "./outbox-bench.ts";
import { rounds, shortMs } from "./requests.ts";

/** Messages that commit with a phase, and their delivery. */
export const outboxCases: readonly ContractCase[] = [
  outboxCase(
    "a message is handed out as it was enqueued, and is gone when it was delivered",
    async (bench) => {
      const { outbox, send } = bench;
      const before = await outbox.counts();
      const sent = {
        payload: '{"text":"ünï \\" \\\\ \\u0000"}',
        partition: "ünï",
        key: "lk_1",
        correlationId: "request 1",
        scope: "tenant POST /rides",
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
      };
      await send(sent);
      assert.equal((await outbox.counts()).waiting, before.waiting + 1);
      const relay = bench.relay();
      const [message, ...more] = await relay.claim();
      assert.ok(message !== undefined);
      const { id, createdAt, topic, ...rest } = message;
      assert.deepEqual(rest, { ...sent, partition: ownPartition(topic, sent.partition), attempts: 0 });
      assert.equal(typeof id, "string");
      assert.ok(createdAt > 0 && topic.startsWith("topic"));
      assert.deepEqual(more, []);
      await relay.settle(delivered(message));
      assert.deepEqual(await relay.claim(), []);
      assert.equal((await outbox.counts()).waiting, before.waiting);
    },
  ),
  outboxCase(
    "messages of one partition come in the order in which they were enqueued",
    async ({ send, relay }) => {
      const names = Array.from({ length: 12 }, (_, index) => `${index}`);
      for (const name of names.slice(0, 4)) await send({ payload: name, partition: "p" });
      await send(...names.slice(4).map((name) => ({ payload: name, partition: "p" })));
      const seen: string[] = [];
      const worker = relay();
      for (const _ of rounds()) {
        const batch = await worker.claim({ limit: 5 });
        assert.ok(batch.length <= 5);
        if (batch.length === 0) break;
        seen.push(...payloads(batch));
        await worker.settle(...batch.map(delivered));
      }
      assert.deepEqual(seen, names);
    },
  ),
  outboxCase(
    "a message waits behind one of its partition that failed, and other partitions go on",
    async (bench) => {
      const { passTime } = bench;
      await bench.send(
        { payload: "a1", partition: "a" },
        { payload: "b1", partition: "b" },
        { payload: "a2", partition: "a" },
        { payload: "free", partition: null },
      );
      const relay = bench.relay();
      const batch = await relay.claim();
      assert.deepEqual(payloads(batch).sort(), ["a1", "a2", "b1", "free"]);
      const [a1] = named(batch, "a1");
      await relay.settle(failed(a1, shortMs), ...named(batch, "b1", "free").map(delivered));
      await bench.send({ payload: "b2", partition: "b" }, { payload: "a3", partition: "a" });
      const next = await relay.claim();
      // Where the clock runs by itself, the back-off of the first may be over already.
      const others = payloads(next).filter((payload) => !payload.startsWith("a"));
      assert.deepEqual(others, ["b2"]);
      await relay.settle(...next.filter(({ payload }) => payload === "b2").map(delivered));
      await passTime(shortMs + 10);
      const rest = await relay.claim();
      assert.deepEqual(payloads(rest), ["a1", "a2", "a3"]);
      assert.deepEqual(
        rest.map(({ attempts }) => attempts),
        [1, 0, 0],
      );
    },
  ),
  outboxCase(
    "a message that failed is not handed out before its time, nor what waits behind it",
    async (bench) => {
      await bench.send({ payload: "first", partition: "p" }, { payload: "second", partition: "p" });
      const relay = bench.relay();
      const [first] = await relay.claim();
      await relay.settle(failed(first, neverMs));
      assert.deepEqual(await relay.claim(), []);
      await bench.send({ payload: "third", partition: "p" }, { payload: "other", partition: "q" });
      assert.deepEqual(payloads(await relay.claim()), ["other"]);
    },
  ),
  outboxCase(
    "a message that was enqueued with a delay comes when it is due, and not before",
    async (bench) => {
      // As many as it takes for some to come to lie side by side, however a store spreads them.
      const hundred = Array.from({ length: 100 });
      await bench.send(
        { payload: "soon", delayMs: shortMs },
        ...hundred.map(() => ({ payload: "late", delayMs: neverMs })),
        ...hundred.map(() => ({ payload: "now" })),
      );
      await bench.passTime(shortMs + 10);
      const relay = bench.relay();
      const seen: string[] = [];
      for (const _ of rounds()) {
        const batch = await relay.claim();
        if (batch.length === 0) break;
        seen.push(...payloads(batch));
        await relay.settle(...batch.map(delivered));
      }
      assert.deepEqual(new Set(seen), new Set(["soon", "now"]));
      assert.equal(seen.length, 101);
    },
  ),
  outboxCase("a message waits behind a delayed one of its partition", async ({ send, relay }) => {
    await send(
      { payload: "before", partition: "p" },
      { payload: "delayed", partition: "p", delayMs: neverMs },
      { payload: "behind", partition: "p" },
      { payload: "free", partition: null },
    );
    const worker = relay();
    const batch = await worker.claim();
    assert.deepEqual(payloads(batch).sort(), ["before", "free"]);
    await worker.settle(...batch.map(delivered));
    assert.deepEqual(await worker.claim(), []);
  }),
  outboxCase("two relays never have messages of one partition at once", async (bench) => {
    const partitions = Array.from({ length: 20 }, (_, index) => `p${index}`);
    for (const nth of [1, 2, 3]) {
      await bench.send(...partitions.map((partition) => ({ payload: `${partition}-${nth}`, partition })));
    }
    const relays = [bench.relay(), bench.relay(), bench.relay()];
    const seen: Message[] = [];
    for (const _ of rounds()) {
      const batches = await Promise.all(relays.map((relay) => relay.claim({ limit: 8 })));
      const owners = new Map<string | null, number>();
      for (const [owner, batch] of batches.entries()) {
        for (const { partition } of batch) {
          assert.equal(owners.get(partition) ?? owner, owner, `${partition} is with two relays`);
          owners.set(partition, owner);
        }
      }
      seen.push(...batches.flat());
      if (batches.flat().length === 0) break;
      await Promise.all(batches.map((batch, nth) => relays[nth]?.settle(...batch.map(delivered))));
    }
    assert.equal(seen.length, 60);
    for (const partition of partitions) {
      const order = payloads(seen).filter((payload) => payload.startsWith(`${partition}-`));
      assert.deepEqual(order, [`${partition}-1`, `${partition}-2`, `${partition}-3`]);
    }
  }),
  outboxCase("what one relay has is not handed to another until it is settled", async ({ send, relay }) => {
    await send({ payload: "first", partition: "p" }, { payload: "second", partition: "p" });
    const [holder, other] = [relay(), relay()];
    const [first] = await holder.claim({ limit: 1 });
    assert.equal(first?.payload, "first");
    await send({ payload: "third", partition: "p" });
    assert.deepEqual(await other.claim(), []);
    await holder.settle(delivered(first));
    assert.deepEqual(payloads(await other.claim()), ["second", "third"]);
  }),
  outboxCase(
    "a lapsed claim is handed to another, and the first one's word counts for nothing",
    async (bench) => {
      const { outbox, passTime } = bench;
      const words: readonly ((message: Message) => Delivery)[] = [
        delivered,
        (message) => ({ ...delivered(message), reference: "stale" }),
        (message) => failed(message, neverMs),
        died,
      ];
      for (const word of words) {
        await bench.send({ payload: "message", partition: "p" });
        const [slow, quick] = [bench.relay(), bench.relay()];
        const [lapsed] = await slow.claim({ leaseMs: shortMs });
        assert.ok(lapsed !== undefined);
        await passTime(shortMs + 10);
        assert.equal((await quick.claim())[0]?.id, lapsed.id);
        const before = await outbox.counts();
        await slow.settle(word(lapsed));
        assert.deepEqual({ ...(await outbox.counts()), oldestDueMs: 0 }, { ...before, oldestDueMs: 0 });
        const [again] = await quick.claim();
        assert.deepEqual(again, lapsed, "as it was, and still with the second relay");
        await quick.settle(delivered(again));
      }
    },
  ),
  outboxCase(
    "a claim past its time that nobody took over still counts",
    async ({ send, relay, passTime }) => {
      await send({ payload: "message" });
      const worker = relay();
      const [message] = await worker.claim({ leaseMs: shortMs });
      await passTime(shortMs + 10);
      await worker.settle(delivered(message));
      assert.deepEqual(await worker.claim(), []);
    },
  ),
  outboxCase("nobody can settle a message that it has not claimed", async ({ send, relay }) => {
    await send({ payload: "message", partition: "p" });
    const [holder, thief] = [relay(), relay()];
    const [message] = await holder.claim();
    await thief.settle(delivered(message));
    assert.equal((await holder.claim())[0]?.id, message?.id);
  }),
  outboxCase("the counts say how long the oldest message has been due", async (bench) => {
    assert.equal((await bench.outbox.counts()).oldestDueMs, 0);
    await bench.send({ payload: "late", delayMs: neverMs });
    assert.equal((await bench.outbox.counts()).oldestDueMs, 0, "it is not due");
    await bench.send({ payload: "due" });
    await bench.passTime(shortMs + 10);
    const { oldestDueMs } = await bench.outbox.counts();
    assert.ok(oldestDueMs >= shortMs && oldestDueMs < 30_000, `${oldestDueMs} ms`);
  }),
  outboxCase(
    "nothing more is handed out than was asked for, and nothing is left behind",
    async ({ send, relay }) => {
      const names = Array.from({ length: 150 }, (_, index) => `${index}`);
      await send(
        ...names.map((payload, index) => ({ payload, partition: index % 3 === 0 ? null : payload })),
      );
      const seen: string[] = [];
      const worker = relay();
      for (const _ of rounds()) {
        const batch = await worker.claim({ limit: 40 });
        assert.ok(batch.length <= 40);
        if (batch.length === 0) break;
        seen.push(...payloads(batch));
        await worker.settle(...batch.map(delivered));
      }
      assert.equal(seen.length, 150);
      assert.deepEqual(new Set(seen), new Set(names));
    },
  ),
  outboxCase("many partitions that wait behind a failed message do not hold up the rest", async (bench) => {
    const partitions = Array.from({ length: 100 }, (_, index) => `blocked-${index}`);
    await bench.send(...partitions.map((partition) => ({ payload: "head", partition })));
    const relay = bench.relay();
    for (const _ of rounds()) {
      const batch = await relay.claim();
      if (batch.length === 0) break;
      await relay.settle(...batch.map((message) => failed(message, neverMs)));
    }
    await bench.send(...partitions.map((partition) => ({ payload: "behind", partition })));
    await bench.send({ payload: "alive", partition: "alive" });
    assert.deepEqual(payloads(await relay.claim({ limit: 10 })), ["alive"]);
  }),
  outboxPushCase("whoever watches is woken when something is enqueued", async (bench) => {
    const { outbox } = bench;
    if (outbox.watch === undefined) assert.fail("the outbox has no watch");
    let wake = () => {};
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const unwatch = await outbox.watch(wake);
    // A relay watches when it has found nothing to do.
    assert.deepEqual(await bench.relay().claim(), []);
    await bench.send({ payload: "message" });
    // An outbox that wakes nobody fails here by the runner's time limit.
    await woken;
    unwatch();
  }),
];
