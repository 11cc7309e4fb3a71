import assert from "node:assert/strict";
import type { ContractCase } from "./harness.ts";
import {
  accepting,
  again,
  chargeDone,
  claimAll,
  claimOne,
  complete,
  counts,
  created,
  fresh,
  kept,
  lease,
  longMs,
  recordIn,
  release,
  rideCreated,
  rounds,
  shortMs,
  someProgress,
  stateOf,
  suspend,
  sweepAll,
  timedOut,
} from "./requests.ts";

/** Requests that are kept, and executed or finished by a worker. */
export const acceptCases: readonly ContractCase[] = [
  {
    name: "an accepted request is pending, and so it is for every duplicate",
    async run({ store }) {
      const request = accepting();
      assert.deepEqual(await store.reserve(request), { kind: "pending" });
      const record = await recordIn(store, request, "pending");
      assert.equal(record.fence, 0);
      assert.equal(record.route, "rides");
      assert.equal(record.onCrash, "resume");
      assert.ok(record.resumeAfter <= (await store.read(request)).now);
      for (const mode of ["accept", "execute"] as const) {
        assert.deepEqual(await store.reserve(again(request, { mode })), { kind: "pending" });
      }
      assert.deepEqual(await recordIn(store, request, "pending"), record);
    },
  },
  {
    name: "a worker claims an accepted request, with fence 1, and completes it",
    async run({ store }) {
      const request = accepting();
      await store.reserve(request);
      const worker = again(request, { mode: "claim" });
      const { scope, key } = request;
      const reservation = await store.reserve(worker);
      assert.deepEqual(reservation, {
        kind: "execute",
        after: "pending",
        progress: [],
        createdAt: (await recordIn(store, request, "in_progress")).createdAt,
        lease: { scope, key, fence: 1, owner: worker.owner },
      });
      assert.equal((await store.reserve(again(request))).kind, "inFlight");
      const held = { scope, key, fence: 1, owner: worker.owner };
      assert.equal((await store.settle(held, complete())).kind, "settled");
      assert.equal((await store.reserve(again(request))).kind, "replay");
    },
  },
  {
    name: "fifty workers claim one accepted request: one executes",
    async run({ store }) {
      const request = accepting();
      await store.reserve(request);
      const claims = Array.from({ length: 50 }, () => store.reserve(again(request, { mode: "claim" })));
      assert.deepEqual(counts(await Promise.all(claims)), { execute: 1, inFlight: 49 });
    },
  },
  {
    name: "fifty duplicates are accepted as one",
    async run({ store }) {
      const request = accepting();
      const answers = await Promise.all(Array.from({ length: 50 }, () => store.reserve(again(request))));
      assert.deepEqual(counts(answers), { pending: 50 });
      assert.equal((await recordIn(store, request, "pending")).fence, 0);
    },
  },
  {
    name: "an accepted request cannot be claimed under another fingerprint",
    async run({ store }) {
      const request = accepting();
      await store.reserve(request);
      const wrong = again(request, { mode: "claim", fingerprint: "v1:other" });
      assert.deepEqual(await store.reserve(wrong), { kind: "mismatch" });
      assert.equal(await stateOf(store, request), "pending");
    },
  },
  {
    name: "an accepted request past its time is executed by nobody, and stays until it is answered",
    async run({ store, passTime }) {
      const request = accepting({ retentionMs: shortMs });
      await store.reserve(request);
      await passTime(shortMs + 10);
      for (const mode of ["claim", "execute", "accept"] as const) {
        assert.deepEqual(await store.reserve(again(request, { mode })), { kind: "pending" }, mode);
      }
      assert.equal(await claimOne(store, request), undefined);
      await store.reap({ limit: 1_000, expiry: "delete" });
      assert.equal(await stateOf(store, request), "pending");
    },
  },
  {
    name: "an accepted request that nobody executed in time is completed with the given answer",
    async run({ store, passTime }) {
      const request = accepting({ retentionMs: shortMs });
      const waiting = accepting();
      for (const each of [request, waiting]) await store.reserve(each);
      // One limit is for all that the sweeper does.
      await lease(store, fresh({ leaseMs: shortMs }));
      await passTime(shortMs + 10);
      let unclaimed = 0;
      for (const _ of rounds()) {
        if ((await stateOf(store, request)) !== "pending") break;
        const batch = await store.sweep({ ...sweepAll, limit: 1 });
        assert.ok(batch.unknown + batch.retryable + batch.unclaimed === 1, "one at a time");
        unclaimed += batch.unclaimed;
      }
      assert.ok(unclaimed >= 1);
      const record = await recordIn(store, request, "completed");
      assert.equal(record.response.status, 408);
      assert.ok(record.response.kind === "full" && timedOut.kind === "full");
      assert.deepEqual(new Uint8Array(record.response.body), timedOut.body);
      const keptMs = record.expiresAt - record.completedAt;
      assert.ok(Math.abs(keptMs - shortMs) <= 1, "kept for as long as it could have waited");
      assert.equal(await stateOf(store, waiting), "pending");
    },
  },
  {
    name: "a worker gets the request as it was kept, byte for byte",
    async run({ store }) {
      const request = accepting();
      await store.reserve(request);
      const found = await claimOne(store, request);
      assert.ok(found !== undefined);
      const { body, ...head } = found.request;
      const { body: keptBody, ...keptHead } = kept;
      assert.deepEqual(head, keptHead);
      assert.deepEqual(new Uint8Array(body), keptBody);
      assert.deepEqual(found.record, await recordIn(store, request, "pending"));

      const empty = accepting({ request: { ...kept, headers: [], body: new Uint8Array() } });
      await store.reserve(empty);
      assert.equal((await claimOne(store, empty))?.request.body.byteLength, 0);
    },
  },
  {
    name: "what one worker was given is hidden from the others for its back-off, and comes again after it",
    async run({ store, passTime }) {
      const request = accepting();
      await store.reserve(request);
      const briefly = { backoff: { baseMs: shortMs, capMs: shortMs } };
      assert.ok((await claimOne(store, request, briefly)) !== undefined);
      await passTime(shortMs + 10);
      const both = await Promise.all([claimOne(store, request), claimOne(store, request)]);
      assert.equal(both.filter((found) => found !== undefined).length, 1, "one of two gets it");
      assert.equal(await claimOne(store, request), undefined);
    },
  },
  {
    name: "no more is handed to a worker than it asked for",
    async run({ store }) {
      for (const request of [accepting(), accepting()]) await store.reserve(request);
      const { claimed, gaveUp } = await store.claimResumable({ ...claimAll, limit: 1 });
      assert.equal(claimed.length + gaveUp, 1);
    },
  },
  {
    name: "a request that was not kept is handed to no worker",
    async run({ store }) {
      const request = accepting({ request: undefined });
      await store.reserve(request);
      assert.equal(await claimOne(store, request), undefined);
      assert.equal(await stateOf(store, request), "pending");
    },
  },
  {
    name: "accepting after a failed attempt keeps what was done, and the next fence follows",
    async run({ store }) {
      const request = fresh({ request: kept, onCrash: "resume" });
      const held = await lease(store, request);
      await store.advance(held, { progress: someProgress, onCrash: "resume" });
      await store.settle(held, release);
      const { createdAt } = await recordIn(store, request, "failed_retryable");
      assert.deepEqual(await store.reserve(again(request, { mode: "accept" })), { kind: "pending" });
      const record = await recordIn(store, request, "pending");
      assert.equal(record.fence, 1);
      assert.equal(record.createdAt, createdAt);
      assert.deepEqual(record.progress, [rideCreated, chargeDone]);
      const reservation = await store.reserve(again(request, { mode: "claim" }));
      assert.ok(reservation.kind === "execute" && reservation.after === "pending");
      assert.equal(reservation.lease.fence, 2);
      assert.deepEqual(reservation.progress, someProgress);
    },
  },
  {
    name: "accepting after a crash means what the crashed request said",
    async run({ store, passTime }) {
      for (const onCrash of ["reconcile", "retry", "resume"] as const) {
        const request = fresh({ leaseMs: shortMs, onCrash, request: kept });
        const stale = await lease(store, request);
        await passTime(shortMs + 10);
        const answer = await store.reserve(again(request, { mode: "accept" }));
        assert.equal(answer.kind, onCrash === "reconcile" ? "unknown" : "pending", onCrash);
        assert.deepEqual(await store.settle(stale, complete()), { kind: "lost" });
        assert.deepEqual(await store.renew([stale], longMs), ["lost"]);
      }
    },
  },
  {
    name: "what runs, is known or is unknown is not accepted again",
    async run({ store }) {
      const running = fresh();
      const held = await lease(store, running);
      assert.equal((await store.reserve(again(running, { mode: "accept" }))).kind, "inFlight");
      await store.settle(held, complete());
      assert.equal((await store.reserve(again(running, { mode: "accept" }))).kind, "replay");
      const unknown = fresh();
      await store.settle(await lease(store, unknown), suspend);
      assert.equal((await store.reserve(again(unknown, { mode: "accept" }))).kind, "unknown");
    },
  },
  {
    name: "past its retention a key can be accepted for another request, which begins with nothing done",
    async run({ store, passTime }) {
      const request = fresh({ onCrash: "resume" });
      const held = await lease(store, request);
      await store.advance(held, { progress: someProgress, onCrash: "resume" });
      await store.settle(held, complete(created, shortMs));
      await passTime(shortMs + 10);
      const other = accepting({ ...again(request), mode: "accept", request: kept, fingerprint: "v1:other" });
      assert.deepEqual(await store.reserve(other), { kind: "pending" });
      const record = await recordIn(store, request, "pending");
      assert.equal(record.fence, 1);
      assert.deepEqual(record.progress, []);
      assert.ok(record.expiresAt > record.createdAt && record.resumeAfter >= record.createdAt);
      const reservation = await store.reserve(again(other, { mode: "claim" }));
      assert.ok(reservation.kind === "execute" && reservation.lease.fence === 2);
    },
  },
];
