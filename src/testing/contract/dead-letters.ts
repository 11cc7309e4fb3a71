import assert from "node:assert/strict";
import { auditReasons } from "../../core/audit.ts";
import type { DeadMessage } from "../../core/outbox.ts";
import type { ContractCase } from "./harness.ts";
import { delivered, died, failed, neverMs, outboxCase, payloads } from "./outbox-bench.ts";
import { longMs, rounds, shortMs } from "./requests.ts";

/** Messages that nobody delivers any more, and those that are remembered after their delivery. */
export const deadLetterCases: readonly ContractCase[] = [
  outboxCase("a dead message is delivered no more, and does not hold up its partition", async (bench) => {
    const before = await bench.outbox.counts();
    await bench.send({ payload: "poison", partition: "p" }, { payload: "next", partition: "p" });
    const relay = bench.relay();
    const [poison] = await relay.claim({ limit: 1 });
    await relay.settle(failed(poison, 0));
    const [again] = await relay.claim({ limit: 1 });
    assert.equal(again?.attempts, 1);
    await relay.settle(died(again));
    const batch = await relay.claim();
    assert.deepEqual(payloads(batch), ["next"]);
    await relay.settle(...batch.map(delivered));
    const counts = await bench.outbox.counts();
    assert.equal(counts.dead, before.dead + 1);
    assert.equal(counts.waiting, before.waiting);
    const [letter, ...more] = await bench.dead();
    assert.ok(letter !== undefined);
    assert.deepEqual(more, []);
    const { error, diedAt, ...message } = letter;
    assert.deepEqual(message, { ...poison, attempts: 2 });
    assert.equal(error, "refused for good");
    assert.ok(diedAt >= message.createdAt);
  }),
  outboxCase("dead messages are read page by page, the oldest first", async (bench) => {
    const names = ["1", "2", "3", "4", "5"];
    await bench.send(...names.map((payload) => ({ payload, partition: "p" })));
    const relay = bench.relay();
    await relay.settle(...(await relay.claim()).map(died));
    const pages: DeadMessage[] = [];
    for (const _ of rounds()) {
      const after = pages.at(-1)?.id;
      const page = await bench.outbox.deadLetters({ limit: 2, ...(after === undefined ? {} : { after }) });
      assert.ok(page.length <= 2);
      if (page.length === 0) break;
      pages.push(...page);
    }
    const own = new Set((await bench.dead()).map(({ id }) => id));
    assert.deepEqual(payloads(pages.filter(({ id }) => own.has(id))), names);
  }),
  outboxCase(
    "a dead message that is requeued has all of its attempts again, and its old place",
    async (bench) => {
      const { outbox } = bench;
      await bench.send({ payload: "first", partition: "p" }, { payload: "second", partition: "p" });
      const relay = bench.relay();
      const [first] = await relay.claim({ limit: 1 });
      await relay.settle(died(first));
      const { dead } = await outbox.counts();
      const [letter] = await bench.dead();
      assert.ok(letter !== undefined);
      assert.equal(await outbox.requeue([letter.id, letter.id, "999999999", "no id"], "ada"), 1);
      assert.equal(await outbox.requeue([letter.id], "ada"), 0, "it is not dead any more");
      const { scope, key, attempts } = letter;
      const trail = await bench.store.audit({ limit: 10, scope, key });
      assert.deepEqual(
        trail.map(({ id, at, ...entry }) => entry),
        [
          {
            scope,
            key,
            fence: attempts,
            from: "dead_letter",
            to: "requeued",
            by: "ada",
            reason: auditReasons.requeued,
          },
        ],
      );
      assert.equal((await outbox.counts()).dead, dead - 1);
      assert.deepEqual(await bench.dead(), []);
      const batch = await relay.claim();
      assert.deepEqual(payloads(batch), ["first", "second"]);
      assert.deepEqual(batch[0], first);
      await relay.settle(failed(batch[0], neverMs));
      assert.deepEqual(await relay.claim(), [], "the second waits behind it again");
    },
  ),
  outboxCase("a message that died behind another one is delivered when it is requeued", async (bench) => {
    await bench.send({ payload: "first", partition: "p" }, { payload: "second", partition: "p" });
    const relay = bench.relay();
    const [first, second] = await relay.claim();
    await relay.settle(delivered(first), died(second));
    assert.deepEqual(await relay.claim(), []);
    assert.equal(
      await bench.outbox.requeue(
        (await bench.dead()).map(({ id }) => id),
        "ada",
      ),
      1,
    );
    assert.deepEqual(payloads(await relay.claim()), ["second"]);
  }),
  outboxCase("a message that was delivered under a reference is kept until it is pruned", async (bench) => {
    const { outbox, passTime } = bench;
    const before = await outbox.counts();
    await bench.send({ payload: "referred", partition: "p" }, { payload: "next", partition: "p" });
    const relay = bench.relay();
    const [referred] = await relay.claim({ limit: 1 });
    await relay.settle({ ...delivered(referred), reference: "provider-1" });
    const batch = await relay.claim();
    assert.deepEqual(payloads(batch), ["next"]);
    await relay.settle({ ...delivered(batch[0]), reference: "provider-2" });
    assert.deepEqual(await relay.claim(), []);
    assert.equal((await outbox.counts()).waiting, before.waiting, "it waits no more");
    assert.equal(await outbox.prune({ limit: 1_000, retentionMs: longMs }), 0);
    await passTime(shortMs + 10);
    assert.equal(await outbox.prune({ limit: 1, retentionMs: shortMs }), 1, "no more than the limit");
    assert.equal(await outbox.prune({ limit: 1_000, retentionMs: shortMs }), 1);
    assert.equal(await outbox.prune({ limit: 1_000, retentionMs: shortMs }), 0);
  }),
  outboxCase("pruning leaves alone what waits and what is dead", async (bench) => {
    await bench.send({ payload: "dead", partition: "p" }, { payload: "waits", partition: "p" });
    const relay = bench.relay();
    const [dead] = await relay.claim({ limit: 1 });
    await relay.settle(died(dead));
    await bench.passTime(shortMs + 10);
    await bench.outbox.prune({ limit: 1_000, retentionMs: 0 });
    assert.deepEqual(payloads(await bench.dead()), ["dead"]);
    assert.deepEqual(payloads(await relay.claim()), ["waits"]);
  }),
];
