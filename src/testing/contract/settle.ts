import assert from "node:assert/strict";
import type { ContractCase } from "./harness.ts";
import {
  again,
  complete,
  created,
  everySettlement,
  fresh,
  lease,
  longMs,
  shortMs,
  stateOf,
} from "./requests.ts";

/** What the holder of a lease can do, and what nobody else can. */
export const settleCases: readonly ContractCase[] = [
  {
    name: "a stale owner can neither complete nor release nor suspend, and learns that it lost",
    async run({ store, passTime }) {
      for (const settlement of everySettlement) {
        const request = fresh({ leaseMs: shortMs, onCrash: "retry" });
        const stale = await lease(store, request);
        await passTime(shortMs + 10);
        const current = await lease(store, again(request, { leaseMs: longMs }));
        const before = (await store.read(request)).record;
        assert.deepEqual(await store.settle(stale, settlement), { kind: "lost" });
        assert.deepEqual(await store.renew([stale], longMs), ["lost"]);
        assert.deepEqual((await store.read(request)).record, before);
        assert.equal((await store.settle(current, complete())).kind, "settled");
        assert.deepEqual(await store.settle(stale, settlement), { kind: "lost" });
      }
    },
  },
  {
    name: "the trace of an execution is kept with its response, whole or left out",
    async run({ store }) {
      const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
      for (const response of [
        { ...created, trace },
        { kind: "omitted", status: 200, bodyBytes: 9, trace },
      ] as const) {
        const request = fresh();
        await store.settle(await lease(store, request), complete(response));
        const replay = await store.reserve(again(request));
        assert.ok(replay.kind === "replay");
        assert.equal(replay.response.trace, trace);
      }
    },
  },
  {
    name: "an owner whose execution was declared unknown cannot settle it any more",
    async run({ store, passTime }) {
      for (const settlement of everySettlement) {
        const request = fresh({ leaseMs: shortMs });
        const stale = await lease(store, request);
        await passTime(shortMs + 10);
        assert.equal((await store.reserve(again(request))).kind, "unknown");
        assert.deepEqual(await store.settle(stale, settlement), { kind: "lost" });
        assert.equal(await stateOf(store, request), "unknown");
      }
    },
  },
  {
    name: "the right fence in the wrong hands is lost",
    async run({ store }) {
      const request = fresh();
      const held = await lease(store, request);
      const thief = { ...held, owner: "somebody else" };
      assert.deepEqual(await store.settle(thief, complete()), { kind: "lost" });
      assert.deepEqual(await store.renew([thief], longMs), ["lost"]);
      assert.equal(await stateOf(store, request), "in_progress");
    },
  },
  {
    name: "the right hands with the wrong fence have lost",
    async run({ store }) {
      const request = fresh();
      const held = await lease(store, request);
      for (const fence of [0, 2]) {
        assert.deepEqual(await store.settle({ ...held, fence }, complete()), { kind: "lost" });
        assert.deepEqual(await store.renew([{ ...held, fence }], longMs), ["lost"]);
      }
      assert.equal(await stateOf(store, request), "in_progress");
    },
  },
  {
    name: "a lease on a key that was never reserved is lost",
    async run({ store }) {
      const { scope, key, owner } = fresh();
      assert.deepEqual(await store.settle({ scope, key, owner, fence: 1 }, complete()), { kind: "lost" });
      assert.deepEqual(await store.renew([{ scope, key, owner, fence: 1 }], longMs), ["lost"]);
      assert.equal(await stateOf(store, { scope, key }), "absent");
    },
  },
  {
    name: "the same settlement told twice is settled once, and both are told so",
    async run({ store }) {
      for (const settlement of everySettlement) {
        const held = await lease(store, fresh());
        const first = await store.settle(held, settlement);
        assert.equal(first.kind, "settled");
        const before = (await store.read(held)).record;
        assert.deepEqual(await store.settle(held, settlement), first);
        assert.deepEqual((await store.read(held)).record, before);
      }
    },
  },
  {
    name: "a settled lease cannot be settled as something else",
    async run({ store }) {
      for (const first of everySettlement) {
        for (const second of everySettlement.filter((settlement) => settlement !== first)) {
          const held = await lease(store, fresh());
          await store.settle(held, first);
          assert.deepEqual(
            await store.settle(held, second),
            { kind: "lost" },
            `${first.kind}, then ${second.kind}`,
          );
        }
      }
    },
  },
  {
    name: "an owner past its lease that nobody took over may still say what happened",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs });
      const held = await lease(store, request);
      await passTime(shortMs + 10);
      assert.equal((await store.settle(held, complete())).kind, "settled");
      assert.equal((await store.reserve(again(request))).kind, "replay");
    },
  },
  {
    name: "retention counts from the completion, on the store's clock",
    async run({ store }) {
      const request = fresh({ retentionMs: 5 });
      const held = await lease(store, request);
      const answer = await store.settle(held, complete(created, 3_600_000));
      const { record, now } = await store.read(request);
      assert.ok(answer.kind === "settled" && record?.state === "completed");
      assert.equal(answer.expiresAt, record.expiresAt);
      assert.ok(Math.abs(record.expiresAt - record.completedAt - 3_600_000) <= 1);
      assert.ok(record.completedAt <= now && now - record.completedAt < 30_000);
    },
  },
  {
    name: "a heartbeat keeps a lease alive past its first deadline",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs });
      const held = await lease(store, request);
      assert.deepEqual(await store.renew([held], longMs), ["held"]);
      await passTime(shortMs + 10);
      assert.equal((await store.reserve(again(request))).kind, "inFlight");
    },
  },
  {
    name: "heartbeats are answered one by one, in the order they were asked",
    async run({ store }) {
      const held = await lease(store, fresh());
      const settled = await lease(store, fresh());
      const other = await lease(store, fresh());
      await store.settle(settled, complete());
      const stranger = { ...held, owner: "somebody else" };
      assert.deepEqual(await store.renew([settled, held, stranger, other], longMs), [
        "lost",
        "held",
        "lost",
        "held",
      ]);
      assert.deepEqual(await store.renew([], longMs), []);
    },
  },
];
