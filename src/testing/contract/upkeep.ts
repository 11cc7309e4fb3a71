import assert from "node:assert/strict";
import type { ContractCase } from "./harness.ts";
import {
  again,
  claimAll,
  complete,
  created,
  everySettlement,
  fresh,
  kept,
  lease,
  longMs,
  release,
  rounds,
  shortMs,
  stateOf,
  suspend,
  sweep,
  sweepAll,
} from "./requests.ts";

/** Reading, sweeping, reaping and being woken. */
export const upkeepCases: readonly ContractCase[] = [
  {
    name: "each state reads back as what was written",
    async run({ store }) {
      const request = fresh({ onCrash: "resume" });
      assert.equal((await store.read(request)).record, undefined);
      const held = await lease(store, request);
      const running = await store.read(request);
      assert.ok(running.record?.state === "in_progress");
      assert.equal(running.record.owner, request.owner);
      assert.equal(running.record.onCrash, "resume");
      assert.equal(running.record.fingerprint, request.fingerprint);
      assert.equal(running.record.fence, 1);
      assert.ok(running.record.leaseUntil > running.now && running.record.createdAt <= running.now);
      await store.settle(held, release);
      const failed = await store.read(request);
      assert.ok(failed.record?.state === "failed_retryable");
      assert.equal(failed.record.reason, "nothing was sent");
      const next = await lease(store, again(request));
      await store.settle(next, suspend);
      const unknown = await store.read(request);
      assert.ok(unknown.record?.state === "unknown");
      assert.equal(unknown.record.reason, "no answer came");
      assert.equal(unknown.record.fence, 2);
      assert.ok(Math.abs(unknown.record.reconcileAfter - unknown.now - longMs) < 30_000);
      assert.equal(unknown.record.createdAt, running.record.createdAt);
    },
  },
  {
    name: "the sweeper ends dead executions as their onCrash says, and leaves live ones alone",
    async run({ store, passTime }) {
      const dead = { leaseMs: shortMs };
      const reconcile = fresh({ ...dead, onCrash: "reconcile" });
      const retry = fresh({ ...dead, onCrash: "retry" });
      const resume = fresh({ ...dead, onCrash: "resume" });
      const alive = fresh();
      for (const request of [reconcile, retry, resume, alive]) await lease(store, request);
      await passTime(shortMs + 10);
      const swept = { unknown: 0, retryable: 0 };
      for (const _ of rounds()) {
        const batch = await store.sweep({ ...sweepAll, limit: 1 });
        const ended = batch.unknown + batch.retryable + batch.unclaimed;
        assert.ok(ended <= 1, "no more than the limit");
        swept.unknown += batch.unknown;
        swept.retryable += batch.retryable;
        if (ended === 0) break;
      }
      assert.ok(swept.unknown >= 1 && swept.retryable >= 2);
      assert.equal(await stateOf(store, reconcile), "unknown");
      assert.equal(await stateOf(store, retry), "failed_retryable");
      assert.equal(await stateOf(store, resume), "failed_retryable");
      assert.equal(await stateOf(store, alive), "in_progress");
      assert.equal((await store.reserve(again(retry))).kind, "execute");
    },
  },
  {
    name: "an owner whose execution was swept has nothing to say any more",
    async run({ store, passTime }) {
      for (const onCrash of ["reconcile", "retry"] as const) {
        for (const settlement of everySettlement) {
          const request = fresh({ leaseMs: shortMs, onCrash });
          const held = await lease(store, request);
          await passTime(shortMs + 10);
          await sweep(store, request);
          const before = (await store.read(request)).record;
          assert.deepEqual(
            await store.settle(held, settlement),
            { kind: "lost" },
            `${onCrash}, ${settlement.kind}`,
          );
          assert.deepEqual((await store.read(request)).record, before);
        }
      }
    },
  },
  {
    name: "the reaper deletes what has expired, and never what is not settled",
    async run({ store, passTime }) {
      const brief = { retentionMs: shortMs };
      const completed = fresh(brief);
      const failed = fresh(brief);
      const unknown = fresh(brief);
      const running = fresh(brief);
      const dead = fresh({ ...brief, leaseMs: shortMs });
      const kept = fresh();
      await store.settle(await lease(store, completed), complete(created, shortMs));
      await store.settle(await lease(store, failed), {
        kind: "release",
        reason: "nothing was sent",
        retentionMs: shortMs,
      });
      await store.settle(await lease(store, unknown), suspend);
      await lease(store, running);
      await lease(store, dead);
      await store.settle(await lease(store, kept), complete());
      await passTime(shortMs + 10);
      for (const _ of rounds()) {
        const batch = await store.reap({ limit: 1, expiry: "delete" });
        assert.ok(batch.deleted + batch.expired <= 1, "no more than the limit");
        if (batch.deleted === 0) break;
      }
      assert.equal(await stateOf(store, completed), "absent");
      assert.equal(await stateOf(store, failed), "absent");
      assert.equal(await stateOf(store, unknown), "unknown");
      assert.equal(await stateOf(store, running), "in_progress");
      assert.equal(await stateOf(store, dead), "in_progress");
      assert.equal(await stateOf(store, kept), "completed");
    },
  },
  {
    name: "soft expiry keeps the record without its response, and the key can be used again",
    async run({ store, passTime }) {
      const request = fresh();
      await store.settle(await lease(store, request), complete(created, shortMs));
      await passTime(shortMs + 10);
      assert.ok((await store.reap({ limit: 1000, expiry: "soft" })).expired >= 1);
      const { record } = await store.read(request);
      assert.equal(record?.state, "expired");
      assert.ok(record !== undefined && !("response" in record));
      const reservation = await store.reserve(again(request, { fingerprint: "v1:other" }));
      assert.ok(
        reservation.kind === "execute" && reservation.after === "expired" && reservation.lease.fence === 2,
      );
    },
  },
  {
    name: "soft expiry keeps what workers were handed and gave up as well",
    async run({ store, passTime }) {
      const request = fresh({ request: kept, onCrash: "retry" });
      const held = await lease(store, request);
      await store.settle(held, { ...release, resumeAfterMs: 0, retentionMs: shortMs });
      const atOnce = { ...claimAll, attemptsMax: 2, backoff: { baseMs: 0, capMs: 0 } };
      for (const _ of rounds()) {
        await store.claimResumable(atOnce);
        const { record } = await store.read(request);
        if (record?.state === "failed_retryable" && record.resumeAfter === undefined) break;
      }
      await passTime(shortMs + 10);
      await store.reap({ limit: 1000, expiry: "soft" });
      assert.equal(await stateOf(store, request), "expired");
    },
  },
  {
    name: "a soft-expired record is deleted when the policy changes to delete",
    async run({ store, passTime }) {
      const request = fresh();
      await store.settle(await lease(store, request), complete(created, shortMs));
      await passTime(shortMs + 10);
      await store.reap({ limit: 1000, expiry: "soft" });
      await store.reap({ limit: 1000, expiry: "delete" });
      assert.equal(await stateOf(store, request), "absent");
    },
  },
  {
    name: "whoever watches a record is woken when it is settled",
    needs: "push",
    async run({ store }) {
      if (store.watch === undefined) assert.fail("capabilities.push promises a watch");
      for (const settlement of everySettlement) {
        const held = await lease(store, fresh());
        let wake = () => {};
        const woken = new Promise<void>((resolve) => {
          wake = resolve;
        });
        const unwatch = await store.watch(held, wake);
        await store.settle(held, settlement);
        // A store that wakes nobody fails here by the runner's time limit.
        await woken;
        unwatch();
      }
    },
  },
  {
    name: "whoever goes on watching is woken again when the next attempt is settled",
    needs: "push",
    async run({ store }) {
      const request = fresh();
      let wakes = 0;
      let wake = () => {};
      const unwatch = await (async () => {
        const held = await lease(store, request);
        const stop = await store.watch?.(held, () => {
          wakes += 1;
          wake();
        });
        await store.settle(held, release);
        return stop;
      })();
      const next = await lease(store, again(request));
      for (const _ of rounds()) {
        if (wakes > 0) break;
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      const woken = new Promise<void>((resolve) => {
        wake = resolve;
      });
      await store.settle(next, complete());
      await woken;
      unwatch?.();
    },
  },
];
