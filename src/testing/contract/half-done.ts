import assert from "node:assert/strict";
import { auditReasons } from "../../core/audit.ts";
import type { ContractCase } from "./harness.ts";
import {
  again,
  claimAll,
  fresh,
  kept,
  lease,
  recordIn,
  release,
  shortMs,
  someProgress,
  stateOf,
  sweepAll,
} from "./requests.ts";

/** What was begun and not finished: it is neither forgotten nor begun anew, and in the end somebody looks at it. */
export const halfDoneCases: readonly ContractCase[] = [
  {
    name: "what is half done is not forgotten past its retention: a retry goes on with it, as the same operation",
    async run({ store, passTime }) {
      const request = fresh();
      const held = await lease(store, request);
      const { createdAt } = await recordIn(store, request, "in_progress");
      await store.advance(held, { progress: someProgress, onCrash: "resume" });
      await store.settle(held, { ...release, retentionMs: shortMs });
      await passTime(shortMs + 10);
      await store.reap({ limit: 1000, expiry: "delete" });
      const reservation = await store.reserve(again(request));
      assert.ok(reservation.kind === "execute" && reservation.after === "failed_retryable");
      assert.deepEqual(reservation.progress, someProgress);
      assert.equal(reservation.createdAt, createdAt);
    },
  },
  {
    name: "what is half done, and nobody goes on with before it expires, is made unknown by the sweeper",
    async run({ store, passTime }) {
      const halfDone = fresh();
      const undone = fresh();
      for (const request of [halfDone, undone]) {
        const held = await lease(store, request);
        if (request === halfDone) await store.advance(held, { progress: someProgress, onCrash: "resume" });
        await store.settle(held, { ...release, retentionMs: shortMs });
      }
      await passTime(shortMs + 10);
      while ((await stateOf(store, halfDone)) === "failed_retryable") await store.sweep(sweepAll);
      const record = await recordIn(store, halfDone, "unknown");
      assert.deepEqual(record.progress, someProgress);
      assert.equal(record.reason, auditReasons.abandoned);
      await recordIn(store, undone, "failed_retryable");
      const [entry] = await store.audit({ scope: halfDone.scope, limit: 1 });
      assert.equal(`${entry?.from} ${entry?.to} ${entry?.by}`, "failed_retryable unknown sweeper");
    },
  },
  {
    name: "what a worker takes again and again without executing it is given up, and looked at if it is half done",
    async run({ store }) {
      const halfDone = fresh({ request: kept });
      const undone = fresh({ request: kept });
      for (const request of [halfDone, undone]) {
        const held = await lease(store, request);
        if (request === halfDone) await store.advance(held, { progress: someProgress, onCrash: "retry" });
        await store.settle(held, { ...release, resumeAfterMs: 0 });
      }
      const options = { ...claimAll, attemptsMax: 3, backoff: { baseMs: 0, capMs: 0 } };
      for (let claims = 1; claims <= 3; claims += 1) {
        await store.claimResumable(options);
        assert.equal((await recordIn(store, undone, "failed_retryable")).claims, claims);
        assert.equal((await recordIn(store, halfDone, "failed_retryable")).claims, claims);
      }
      await store.claimResumable(options);
      const record = await recordIn(store, undone, "failed_retryable");
      assert.equal(record.resumeAfter, undefined);
      assert.equal((await recordIn(store, halfDone, "unknown")).reason, auditReasons.gaveUp);
    },
  },
  {
    name: "an execution gives workers all of their attempts again",
    async run({ store }) {
      const request = fresh({ request: kept });
      const settlement = { ...release, resumeAfterMs: 0 };
      await store.settle(await lease(store, request), settlement);
      await store.claimResumable({ ...claimAll, backoff: { baseMs: 0, capMs: 0 } });
      await store.settle(await lease(store, again(request)), settlement);
      assert.equal((await recordIn(store, request, "failed_retryable")).claims, 0);
    },
  },
  {
    name: "a worker that comes for what is not there, or not any more, begins nothing",
    async run({ store, passTime }) {
      const never = fresh({ mode: "claim", request: kept });
      assert.deepEqual(await store.reserve(never), { kind: "absent" });
      assert.equal(await stateOf(store, never), "absent");
      const over = fresh();
      await store.settle(await lease(store, over), { ...release, retentionMs: shortMs });
      await passTime(shortMs + 10);
      assert.deepEqual(await store.reserve(again(over, { mode: "claim" })), { kind: "absent" });
      assert.equal(await stateOf(store, over), "failed_retryable");
    },
  },
  {
    name: "after a crash reconciliation waits for as long as the request said",
    async run({ store, passTime }) {
      const found = fresh({ leaseMs: shortMs, reconcileAfterMs: 600_000 });
      const swept = fresh({ leaseMs: shortMs, reconcileAfterMs: 600_000 });
      await lease(store, found);
      await lease(store, swept);
      await passTime(shortMs + 10);
      const reservation = await store.reserve(again(found));
      assert.ok(reservation.kind === "unknown" && reservation.retryAfterMs === 600_000);
      while ((await stateOf(store, swept)) === "in_progress") await store.sweep(sweepAll);
      for (const request of [found, swept]) {
        const { record, now } = await store.read(request);
        assert.ok(record?.state === "unknown");
        const waitsMs = record.reconcileAfter - now;
        assert.ok(waitsMs > 500_000 && waitsMs <= 600_000, `waits for ${waitsMs} ms`);
      }
    },
  },
];
