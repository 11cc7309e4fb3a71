import assert from "node:assert/strict";
import type { OnCrash, RecordId } from "../../core/record.ts";
import type { Store } from "../../core/store.ts";
import type { ContractCase, StoreHarness } from "./harness.ts";
import {
  again,
  chargeBegun,
  chargeDone,
  claimAll,
  claimOne,
  complete,
  created,
  everySettlement,
  fresh,
  kept,
  lease,
  longMs,
  recordIn,
  release,
  rideCreated,
  shortMs,
  someProgress,
  stateOf,
  sweep,
} from "./requests.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** How far an operation has come, what a crash means then, and who finishes it. */
export const progressCases: readonly ContractCase[] = [
  {
    name: "what was written down is read back as it was",
    async run({ store }) {
      const request = fresh({ route: "POST /rides" });
      const held = await lease(store, request);
      assert.deepEqual((await recordIn(store, request, "in_progress")).progress, []);
      for (const progress of [[rideCreated], [rideCreated, chargeBegun], [rideCreated, chargeDone]]) {
        assert.equal(await store.advance(held, { progress, onCrash: "resume" }), "held");
        const record = await recordIn(store, request, "in_progress");
        assert.deepEqual(record.progress, progress);
        assert.equal(record.onCrash, "resume");
        assert.equal(record.route, "POST /rides");
      }
      await store.settle(held, complete());
      assert.deepEqual((await recordIn(store, request, "completed")).progress, someProgress);
    },
  },
  {
    name: "what a dead owner has written down is handed to whoever takes over",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs, onCrash: "resume" });
      await store.advance(await lease(store, request), { progress: someProgress, onCrash: "resume" });
      await passTime(shortMs + 10);
      const reservation = await store.reserve(again(request));
      assert.ok(reservation.kind === "execute" && reservation.after === "crash");
      assert.deepEqual(reservation.progress, someProgress);
      assert.deepEqual((await recordIn(store, request, "in_progress")).progress, someProgress);
    },
  },
  {
    name: "what a failed attempt has written down is handed to the next one, swept or released",
    async run({ store, passTime }) {
      const released = fresh();
      const swept = fresh({ leaseMs: shortMs });
      for (const request of [released, swept]) {
        const held = await lease(store, request);
        await store.advance(held, { progress: someProgress, onCrash: "resume" });
        if (request === released) await store.settle(held, release);
        else await passTime(shortMs + 10);
        await sweep(store, request);
        const reservation = await store.reserve(again(request));
        assert.ok(reservation.kind === "execute" && reservation.after === "failed_retryable");
        assert.deepEqual(reservation.progress, someProgress);
      }
    },
  },
  {
    name: "a key that is used again past its retention begins with nothing done, as another operation",
    async run({ store, passTime }) {
      const request = fresh();
      const held = await lease(store, request);
      const { createdAt } = await recordIn(store, request, "in_progress");
      await store.advance(held, { progress: someProgress, onCrash: "resume" });
      await store.settle(held, complete(created, shortMs));
      await passTime(shortMs + 10);
      const reservation = await store.reserve(again(request));
      assert.ok(reservation.kind === "execute" && reservation.after === "expired");
      assert.deepEqual(reservation.progress, []);
      assert.ok(reservation.createdAt > createdAt);
      assert.deepEqual((await recordIn(store, request, "in_progress")).progress, []);
    },
  },
  {
    name: "a stale owner cannot write down anything",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs, onCrash: "retry" });
      const stale = await lease(store, request);
      await passTime(shortMs + 10);
      const held = await lease(store, again(request, { leaseMs: longMs }));
      const before = await recordIn(store, request, "in_progress");
      const wrong = [
        stale,
        { ...held, owner: "somebody else" },
        { ...held, fence: held.fence + 1 },
        { ...held, key: `${held.key}-other` },
      ];
      for (const lost of wrong) {
        assert.equal(await store.advance(lost, { progress: someProgress, onCrash: "resume" }), "lost");
      }
      assert.deepEqual(await recordIn(store, request, "in_progress"), before);
      await store.settle(held, complete());
      assert.equal(await store.advance(held, { progress: someProgress, onCrash: "resume" }), "lost");
    },
  },
  {
    name: "what a crash means is what the owner said last",
    async run({ store, passTime }) {
      for (const [before, after] of [
        ["reconcile", "retry"],
        ["retry", "reconcile"],
        ["resume", "reconcile"],
      ] as readonly (readonly [OnCrash, OnCrash])[]) {
        for (const finder of ["sweeper", "request"] as const) {
          const request = fresh({ leaseMs: shortMs, onCrash: before });
          await store.advance(await lease(store, request), { progress: [rideCreated], onCrash: after });
          await passTime(shortMs + 10);
          if (finder === "sweeper") await sweep(store, request);
          const { kind } = await store.reserve(again(request));
          assert.equal(kind, after === "reconcile" ? "unknown" : "execute", `${before}, then ${after}`);
        }
      }
    },
  },
  {
    name: "a crashed operation that may be tried again is handed to a worker at once, if its request was kept",
    async run({ store, passTime }) {
      const resumable = fresh({ leaseMs: shortMs, onCrash: "resume", request: kept });
      const retryable = fresh({ leaseMs: shortMs, onCrash: "retry", request: kept });
      const forgotten = fresh({ leaseMs: shortMs, onCrash: "resume" });
      for (const request of [resumable, retryable, forgotten]) await lease(store, request);
      await passTime(shortMs + 10);
      for (const request of [resumable, retryable, forgotten]) await sweep(store, request);
      const { record, now } = await store.read(resumable);
      assert.ok(record?.state === "failed_retryable" && record.resumeAfter !== undefined);
      assert.ok(record.resumeAfter <= now, "at once");
      const scopes = await claimedScopes(store);
      assert.ok(scopes.includes(resumable.scope));
      assert.ok(scopes.includes(retryable.scope));
      assert.ok(!scopes.includes(forgotten.scope));
      assert.equal((await recordIn(store, forgotten, "failed_retryable")).resumeAfter, undefined);
      assert.equal((await store.reserve(again(forgotten))).kind, "execute");
    },
  },
  {
    name: "a worker is given a crashed operation with what was done, and executes it with the next fence",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs, request: kept });
      await store.advance(await lease(store, request), { progress: someProgress, onCrash: "resume" });
      await passTime(shortMs + 10);
      await sweep(store, request);
      const found = await claimOne(store, request);
      assert.ok(found !== undefined);
      assert.equal(found.request.target, kept.target);
      assert.deepEqual(found.record.progress, someProgress);
      const reservation = await store.reserve(again(request, { mode: "claim" }));
      assert.ok(reservation.kind === "execute" && reservation.lease.fence === 2);
      assert.deepEqual(reservation.progress, someProgress);
    },
  },
  {
    name: "a released operation is handed to a worker after its time, and not before",
    async run({ store, passTime }) {
      const later = fresh({ request: kept });
      const soon = fresh({ request: kept });
      const never = fresh({ request: kept });
      await store.settle(await lease(store, later), { ...release, resumeAfterMs: longMs });
      assert.ok((await recordIn(store, later, "failed_retryable")).resumeAfter !== undefined);
      assert.equal(await claimOne(store, later), undefined);
      // Only now, because on a slow machine the claim before would already have taken it.
      await store.settle(await lease(store, soon), { ...release, resumeAfterMs: shortMs });
      await store.settle(await lease(store, never), release);
      await passTime(shortMs + 10);
      const scopes = await claimedScopes(store);
      assert.deepEqual(
        [later, soon, never].map(({ scope }) => scopes.includes(scope)),
        [false, true, false],
      );
    },
  },
  {
    name: "the back-off of a worker doubles with every attempt, up to its cap",
    async run({ store }) {
      const request = fresh({ request: kept });
      for (const [attempts, hidden] of [
        [1, 2 * hourMs],
        [2, 4 * hourMs],
        [3, 5 * hourMs],
      ] as const) {
        const held = await lease(store, again(request, { mode: attempts === 1 ? "execute" : "claim" }));
        assert.equal(held.fence, attempts);
        await store.settle(held, { ...release, resumeAfterMs: 0 });
        const found = await claimOne(store, request, { backoff: { baseMs: hourMs, capMs: 5 * hourMs } });
        assert.ok(found?.record.resumeAfter !== undefined);
        const { record, now } = await store.read(request);
        assert.deepEqual(found.record, record);
        assert.ok(Math.abs(found.record.resumeAfter - now - hidden) < 30_000, `attempt ${attempts}`);
      }
    },
  },
  ...(["delete", "soft"] as const).map((expiry) => ({
    name: `what a worker has to finish does not expire, and is not reaped (${expiry})`,
    async run({ store, passTime }: StoreHarness) {
      const request = fresh({ request: kept });
      const held = await lease(store, request);
      await store.advance(held, { progress: someProgress, onCrash: "resume" });
      await store.settle(held, { ...release, retentionMs: shortMs, resumeAfterMs: dayMs });
      await passTime(shortMs + 10);
      await store.reap({ limit: 1_000, expiry });
      assert.deepEqual(await store.reserve(again(request, { fingerprint: "v1:other" })), {
        kind: "mismatch",
      });
      const reservation = await store.reserve(again(request));
      assert.ok(reservation.kind === "execute" && reservation.after === "failed_retryable");
      assert.deepEqual(reservation.progress, someProgress);
    },
  })),
  {
    name: "an operation that no worker could finish becomes unknown if it may be half done",
    async run({ store }) {
      const request = fresh({ request: kept, onCrash: "resume" });
      const held = await lease(store, request);
      await store.settle(held, { ...release, resumeAfterMs: 0 });
      assert.ok((await giveUp(store, request)) >= 1);
      const record = await recordIn(store, request, "unknown");
      assert.ok(record.reconcileAfter <= (await store.read(request)).now);
      assert.equal(record.reconcileAttempts, 0);
      assert.equal(record.escalatedAt, undefined);
      assert.equal((await store.reserve(again(request))).kind, "unknown");
      for (const settlement of everySettlement) {
        assert.deepEqual(await store.settle(held, settlement), { kind: "lost" }, settlement.kind);
      }
    },
  },
  {
    name: "an operation that no worker could finish is left to the next request if nothing was done",
    async run({ store }) {
      const request = fresh({ request: kept, onCrash: "retry" });
      const held = await lease(store, request);
      await store.settle(held, { ...release, resumeAfterMs: 0 });
      assert.ok((await giveUp(store, request)) >= 1);
      const record = await recordIn(store, request, "failed_retryable");
      assert.equal(record.resumeAfter, undefined);
      assert.deepEqual(await store.settle(held, release), { kind: "lost" });
      assert.equal((await store.reserve(again(request))).kind, "execute");
    },
  },
  {
    name: "an operation is not given up before its last attempt",
    async run({ store }) {
      const request = fresh({ request: kept });
      await store.settle(await lease(store, request), { ...release, resumeAfterMs: 0 });
      assert.ok((await claimOne(store, request, { attemptsMax: 2 })) !== undefined);
      assert.equal(await stateOf(store, request), "failed_retryable");
    },
  },
  {
    name: "a request stays kept while its outcome is open, whoever tries next",
    async run({ store }) {
      const request = fresh({ request: kept });
      await store.settle(await lease(store, request), release);
      const next = await lease(store, again(request, { request: undefined }));
      await store.settle(next, { ...release, resumeAfterMs: 0 });
      const found = await claimOne(store, request);
      assert.deepEqual(new Uint8Array(found?.request.body ?? []), kept.body);
    },
  },
  {
    name: "a request is forgotten with its outcome: another one under the same key has none",
    async run({ store, passTime }) {
      for (const settlement of [complete(created, shortMs), { ...release, retentionMs: shortMs }]) {
        const request = fresh({ request: kept });
        await store.settle(await lease(store, request), settlement);
        await passTime(shortMs + 10);
        const next = await lease(store, again(request, { request: undefined }));
        await store.settle(next, { ...release, resumeAfterMs: 0 });
        assert.equal(await claimOne(store, request), undefined, settlement.kind);
      }
    },
  },
  {
    name: "a release that is told again after a worker has seen it is still settled",
    async run({ store }) {
      const held = await lease(store, fresh({ request: kept }));
      const settlement = { ...release, resumeAfterMs: 0 };
      await store.settle(held, settlement);
      assert.ok((await claimOne(store, held)) !== undefined);
      assert.equal((await store.settle(held, settlement)).kind, "settled");
    },
  },
];

async function claimedScopes(store: Store): Promise<readonly string[]> {
  const { claimed } = await store.claimResumable(claimAll);
  return claimed.map(({ record }) => record.scope);
}

/** How many were given up, this request among them. */
async function giveUp(store: Store, { scope }: RecordId): Promise<number> {
  const { claimed, gaveUp } = await store.claimResumable({ ...claimAll, attemptsMax: 1 });
  assert.ok(!claimed.some(({ record }) => record.scope === scope), "what is given up is not handed out");
  return gaveUp;
}
