import assert from "node:assert/strict";
import type { RecordId, UnknownRecord } from "../../core/record.ts";
import type { Lease, ReserveRequest, Resolution, Store } from "../../core/store.ts";
import type { ContractCase } from "./harness.ts";
import {
  again,
  chargeBegun,
  claimAll,
  claimOne,
  complete,
  created,
  everyState,
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
  suspend,
} from "./requests.ts";

const hourMs = 3_600_000;
const operator = "operator";
const neverSent: Resolution = { ...release, progress: [] };
const escalate: Resolution = { kind: "escalate", reason: "the provider knows nothing of it" };
const everyResolution: readonly Resolution[] = [complete(), neverSent, escalate];

/** Unknown outcomes: asking about them, and what comes of it. */
export const reconcileCases: readonly ContractCase[] = [
  {
    name: "an unknown outcome is handed out when it is due, and counted",
    async run({ store, passTime }) {
      const { request } = await unknown(store, { reconcileAfterMs: shortMs });
      await passTime(shortMs + 10);
      const briefly = { baseMs: shortMs, capMs: shortMs };
      const first = await claimOf(store, request, briefly);
      assert.equal(first?.reconcileAttempts, 1);
      assert.deepEqual(first, await recordIn(store, request, "unknown"));
      await passTime(shortMs + 10);
      assert.equal((await claimOf(store, request))?.reconcileAttempts, 2);
      assert.equal(await claimOf(store, request), undefined, "hidden for its back-off");
    },
  },
  {
    name: "an unknown outcome is not handed out before it may be asked about",
    async run({ store }) {
      const { request } = await unknown(store, { reconcileAfterMs: longMs });
      assert.equal(await claimOf(store, request), undefined);
      assert.equal((await recordIn(store, request, "unknown")).reconcileAttempts, 0);
    },
  },
  {
    name: "an unknown outcome is handed to one of two who ask at once, and no more than were asked for",
    async run({ store }) {
      const { request } = await unknown(store);
      await unknown(store);
      assert.equal((await store.claimUnknown({ ...claimAll, limit: 1 })).length, 1);
      const { request: other } = await unknown(store);
      const both = await Promise.all([claimOf(store, other), claimOf(store, other)]);
      assert.equal(both.filter((record) => record !== undefined).length, 1);
      assert.equal((await recordIn(store, request, "unknown")).reconcileAttempts, 1);
    },
  },
  {
    name: "only unknown outcomes are asked about",
    async run(harness) {
      const { store } = harness;
      for (const [state, make] of Object.entries(everyState)) {
        if (state === "unknown") continue;
        assert.equal(await claimOf(store, await make(harness)), undefined, state);
      }
    },
  },
  {
    name: "the back-off between two questions doubles, up to its cap",
    async run({ store }) {
      for (const [capMs, hidden] of [
        [hourMs, hourMs],
        [hourMs / 2, hourMs / 2],
      ] as const) {
        const { request } = await unknown(store);
        const record = await claimOf(store, request, { baseMs: hourMs, capMs });
        assert.ok(record !== undefined);
        assert.ok(Math.abs(record.reconcileAfter - (await store.read(request)).now - hidden) < 30_000);
      }
    },
  },
  {
    name: "the second question waits twice as long as the first",
    async run({ store, passTime }) {
      const { request } = await unknown(store);
      await claimOf(store, request, { baseMs: shortMs, capMs: shortMs });
      await passTime(shortMs + 10);
      const record = await claimOf(store, request, { baseMs: hourMs, capMs: 10 * hourMs });
      assert.ok(record !== undefined);
      assert.ok(Math.abs(record.reconcileAfter - (await store.read(request)).now - 2 * hourMs) < 30_000);
    },
  },
  {
    name: "what waits for an operator is not asked about, stays unknown, and can still be resolved",
    async run({ store }) {
      const { request, held } = await unknown(store);
      const before = await recordIn(store, request, "unknown");
      assert.deepEqual(await store.resolve(request, held.fence, escalate, "reconciler"), {
        kind: "resolved",
        expiresAt: before.expiresAt,
      });
      const { record, now } = await store.read(request);
      assert.ok(record?.state === "unknown" && record.escalatedAt !== undefined && record.escalatedAt <= now);
      assert.equal(record.reason, escalate.reason);
      assert.equal(await claimOf(store, request), undefined);
      assert.equal((await store.reserve(again(request))).kind, "unknown");
      assert.equal((await store.resolve(request, held.fence, complete(), operator)).kind, "resolved");
      assert.equal((await store.reserve(again(request))).kind, "replay");
    },
  },
  {
    name: "an outcome that was found out is replayed",
    async run({ store }) {
      const { request, held } = await unknown(store, { request: kept, onCrash: "resume" });
      const answer = await store.resolve(request, held.fence, complete(created, 3_600_000), operator);
      const { record, now } = await store.read(request);
      assert.ok(answer.kind === "resolved" && record?.state === "completed");
      assert.equal(answer.expiresAt, record.expiresAt);
      assert.ok(Math.abs(record.expiresAt - now - 3_600_000) < 30_000);
      const replay = await store.reserve(again(request));
      assert.ok(replay.kind === "replay" && replay.response.status === created.status);
      assert.equal(replay.expiresAt, answer.expiresAt);
    },
  },
  {
    name: "what was proven not to have been executed may be executed again, with what is known by now",
    async run({ store }) {
      const request = fresh();
      const held = await lease(store, request);
      await store.advance(held, { progress: [rideCreated, chargeBegun], onCrash: "reconcile" });
      await store.settle(held, suspend);
      const resolution: Resolution = { ...release, progress: [rideCreated] };
      assert.equal((await store.resolve(request, 1, resolution, operator)).kind, "resolved");
      const record = await recordIn(store, request, "failed_retryable");
      assert.equal(record.reason, release.reason);
      assert.equal(record.resumeAfter, undefined);
      const reservation = await store.reserve(again(request));
      assert.ok(reservation.kind === "execute" && reservation.after === "failed_retryable");
      assert.equal(reservation.lease.fence, 2);
      assert.deepEqual(reservation.progress, [rideCreated]);
    },
  },
  {
    name: "what is known by now is handed to a worker that finishes it",
    async run({ store }) {
      const { request, held } = await unknown(store, { request: kept, onCrash: "resume" });
      const resolution: Resolution = { ...release, resumeAfterMs: 0, progress: someProgress };
      await store.resolve(request, held.fence, resolution, operator);
      const found = await claimOne(store, request);
      assert.deepEqual(found?.record.progress, someProgress);
      assert.deepEqual(new Uint8Array(found?.request.body ?? []), kept.body);
    },
  },
  {
    name: "only an unknown outcome can be resolved, and anything else says what it is",
    async run(harness) {
      const { store } = harness;
      assert.deepEqual(await store.resolve(fresh(), 1, complete(), operator), {
        kind: "not-unknown",
        state: "absent",
      });
      for (const [state, make] of Object.entries(everyState)) {
        if (state === "unknown") continue;
        const request = await make(harness);
        const before = (await store.read(request)).record;
        assert.ok(before !== undefined);
        for (const resolution of everyResolution) {
          assert.deepEqual(
            await store.resolve(request, before.fence, resolution, operator),
            { kind: "not-unknown", state: before.state },
            `${state}, ${resolution.kind}`,
          );
        }
        assert.deepEqual((await store.read(request)).record, before, state);
      }
    },
  },
  {
    name: "an outcome cannot be resolved at another fence than the one that was asked about",
    async run({ store }) {
      const { request, held } = await unknown(store);
      const before = await recordIn(store, request, "unknown");
      for (const fence of [held.fence - 1, held.fence + 1]) {
        for (const resolution of everyResolution) {
          assert.deepEqual(await store.resolve(request, fence, resolution, operator), {
            kind: "not-unknown",
            state: "unknown",
          });
        }
      }
      assert.deepEqual(await recordIn(store, request, "unknown"), before);
    },
  },
  {
    name: "ten resolutions at once: one counts",
    async run({ store }) {
      const { request, held } = await unknown(store);
      const answers = await Promise.all(
        Array.from({ length: 10 }, (_, index) =>
          store.resolve(request, held.fence, index % 2 === 0 ? complete() : neverSent, operator),
        ),
      );
      assert.equal(answers.filter(({ kind }) => kind === "resolved").length, 1);
      const state = await stateOf(store, request);
      for (const answer of answers) if (answer.kind === "not-unknown") assert.equal(answer.state, state);
    },
  },
  {
    name: "an owner whose outcome was resolved has nothing to say any more, not even the same",
    async run({ store }) {
      for (const [resolution, settlement] of [
        [complete(), complete()],
        [neverSent, release],
        [escalate, suspend],
      ] as const) {
        const { request, held } = await unknown(store);
        await store.resolve(request, held.fence, resolution, operator);
        assert.deepEqual(await store.settle(held, settlement), { kind: "lost" }, resolution.kind);
      }
    },
  },
  {
    name: "whoever watches a record is woken when it is resolved",
    needs: "push",
    async run({ store }) {
      if (store.watch === undefined) assert.fail("capabilities.push promises a watch");
      for (const resolution of [complete(), neverSent]) {
        const { request, held } = await unknown(store);
        let wake = () => {};
        const woken = new Promise<void>((resolve) => {
          wake = resolve;
        });
        const unwatch = await store.watch(request, wake);
        await store.resolve(request, held.fence, resolution, operator);
        // A store that wakes nobody fails here by the runner's time limit.
        await woken;
        unwatch();
      }
    },
  },
];

/** A record whose outcome nobody knows. */
async function unknown(
  store: Store,
  {
    reconcileAfterMs = 0,
    ...overrides
  }: Partial<ReserveRequest> & { readonly reconcileAfterMs?: number } = {},
): Promise<{ readonly request: ReserveRequest; readonly held: Lease }> {
  const request = fresh(overrides);
  const held = await lease(store, request);
  await store.settle(held, { ...suspend, reconcileAfterMs });
  return { request, held };
}

/** What the reconciler is given of this record; what other cases have left behind is not looked at. */
async function claimOf(
  store: Store,
  id: RecordId,
  backoff = claimAll.backoff,
): Promise<UnknownRecord | undefined> {
  const claimed = await store.claimUnknown({ limit: 1_000, backoff });
  return claimed.find(({ scope, key }) => scope === id.scope && key === id.key);
}
