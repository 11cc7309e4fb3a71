import assert from "node:assert/strict";
import type { OnCrash, RecordId } from "../core/record.ts";
import type { StoredResponse } from "../core/response.ts";
import type { Lease, Reservation, ReserveRequest, Settlement, Store } from "../core/store.ts";

/** A store under test, and how time passes on its clock. */
export interface StoreHarness {
  readonly store: Store;
  /** Lets `ms` pass on the store's clock: really, or by moving a clock that the store was given. */
  passTime(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** One thing that every store must do. */
export interface ContractCase {
  readonly name: string;
  run(harness: StoreHarness): Promise<void>;
}

/**
 * Runs the whole contract against a store, with any test runner that has an `it`.
 *
 * @example
 * ```ts
 * import { it } from "vitest";
 * runStoreContract({ it, open: async () => ({ store: myStore(), passTime: sleep, close: async () => {} }) });
 * ```
 */
export function runStoreContract(options: {
  readonly it: (name: string, run: () => Promise<void>) => unknown;
  readonly open: () => Promise<StoreHarness>;
  /** Names of cases that this store cannot keep, each with the reason. */
  readonly except?: Readonly<Record<string, string>>;
}): void {
  const except = options.except ?? {};
  for (const name of Object.keys(except)) {
    assert.ok(
      storeContract.some((contractCase) => contractCase.name === name),
      `there is no case "${name}" to except`,
    );
  }
  for (const contractCase of storeContract) {
    if (Object.hasOwn(except, contractCase.name)) continue;
    options.it(contractCase.name, async () => {
      const harness = await options.open();
      try {
        await contractCase.run(harness);
      } finally {
        await harness.close();
      }
    });
  }
}

/** Long against any test, short against a day. */
const longMs = 60_000;
/** Runs out while a test looks on. */
const shortMs = 40;

let sequence = 0;

/** Each case works on keys of its own, so that cases may share one database. */
function fresh(overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  sequence += 1;
  return {
    scope: `tenant-${process.pid}-${sequence}`,
    key: `key-${sequence}`,
    fingerprint: "v1:first",
    owner: `owner-${process.pid}-${sequence}`,
    leaseMs: longMs,
    retentionMs: longMs,
    onCrash: "reconcile",
    ...overrides,
  };
}

/** The same request from somebody else. */
function again(request: ReserveRequest, overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  sequence += 1;
  return { ...request, owner: `owner-${process.pid}-${sequence}`, ...overrides };
}

const created: StoredResponse = {
  kind: "full",
  status: 201,
  headers: [["content-type", "application/json"]],
  body: new TextEncoder().encode('{"id":1}'),
};

function complete(response: StoredResponse = created, retentionMs = longMs): Settlement {
  return { kind: "complete", response, retentionMs };
}
const release: Settlement = { kind: "release", reason: "nothing was sent", retentionMs: longMs };
const suspend: Settlement = { kind: "suspend", reason: "no answer came", reconcileAfterMs: longMs };
const everySettlement: readonly Settlement[] = [complete(), release, suspend];

async function lease(store: Store, request: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(request);
  if (reservation.kind !== "execute") assert.fail(`expected the right to execute, got ${reservation.kind}`);
  return reservation.lease;
}

async function stateOf(store: Store, id: RecordId): Promise<string> {
  const { record } = await store.read(id);
  return record?.state ?? "absent";
}

/** A record in each state in which a retry can find it. */
const everyState: Readonly<Record<string, (harness: StoreHarness) => Promise<ReserveRequest>>> = {
  in_progress: async ({ store }) => {
    const request = fresh();
    await lease(store, request);
    return request;
  },
  "in_progress with a dead owner": async ({ store, passTime }) => {
    const request = fresh({ leaseMs: shortMs });
    await lease(store, request);
    await passTime(shortMs + 10);
    return request;
  },
  "in_progress with a dead owner, to be retried": async ({ store, passTime }) => {
    const request = fresh({ leaseMs: shortMs, onCrash: "retry" });
    await lease(store, request);
    await passTime(shortMs + 10);
    return request;
  },
  completed: async ({ store }) => {
    const request = fresh();
    await store.settle(await lease(store, request), complete());
    return request;
  },
  failed_retryable: async ({ store }) => {
    const request = fresh();
    await store.settle(await lease(store, request), release);
    return request;
  },
  unknown: async ({ store }) => {
    const request = fresh();
    await store.settle(await lease(store, request), suspend);
    return request;
  },
};

function counts(reservations: readonly Reservation[]): Record<string, number> {
  const byKind: Record<string, number> = {};
  for (const { kind } of reservations) byKind[kind] = (byKind[kind] ?? 0) + 1;
  return byKind;
}

const everyByte = Uint8Array.from({ length: 256 }, (_, index) => index);

/** The contract, case by case. */
export const storeContract: readonly ContractCase[] = [
  {
    name: "a new key may be executed, with fence 1",
    async run({ store }) {
      const request = fresh();
      const reservation = await store.reserve(request);
      assert.deepEqual(reservation, {
        kind: "execute",
        after: "absent",
        lease: { scope: request.scope, key: request.key, fence: 1, owner: request.owner },
      });
    },
  },
  {
    name: "a duplicate of a running request is in flight",
    async run({ store }) {
      const request = fresh();
      await lease(store, request);
      const duplicate = await store.reserve(again(request));
      assert.equal(duplicate.kind, "inFlight");
      assert.ok(
        duplicate.kind === "inFlight" && duplicate.retryAfterMs > 0 && duplicate.retryAfterMs <= longMs,
      );
    },
  },
  {
    name: "a completed request is replayed byte for byte, with its headers in order",
    async run({ store }) {
      const request = fresh();
      const response: StoredResponse = {
        kind: "full",
        status: 207,
        headers: [
          ["link", '</a>; rel="next"'],
          ["content-type", "application/octet-stream"],
          ["link", '</b>; rel="prev"'],
          ["x-text", 'quotes " backslash \\ and ünïcode'],
        ],
        body: everyByte,
      };
      const settled = await store.settle(await lease(store, request), complete(response));
      assert.ok(settled.kind === "settled");
      const replay = await store.reserve(again(request));
      if (replay.kind !== "replay" || replay.response.kind !== "full") assert.fail(replay.kind);
      assert.equal(replay.response.status, 207);
      assert.deepEqual(replay.response.headers, response.headers);
      assert.deepEqual(new Uint8Array(replay.response.body), everyByte);
      assert.equal(replay.expiresAt, settled.expiresAt);
    },
  },
  {
    name: "an empty body is replayed as an empty body",
    async run({ store }) {
      const request = fresh();
      const empty: StoredResponse = { kind: "full", status: 204, headers: [], body: new Uint8Array() };
      await store.settle(await lease(store, request), complete(empty));
      const replay = await store.reserve(again(request));
      if (replay.kind !== "replay" || replay.response.kind !== "full") assert.fail(replay.kind);
      assert.equal(replay.response.body.byteLength, 0);
    },
  },
  {
    name: "a response that was too large is replayed as a marker",
    async run({ store }) {
      const request = fresh();
      const omitted: StoredResponse = { kind: "omitted", status: 201, bodyBytes: 5_000_000 };
      await store.settle(await lease(store, request), complete(omitted));
      const replay = await store.reserve(again(request));
      assert.ok(replay.kind === "replay");
      assert.deepEqual(replay.response, omitted);
    },
  },
  {
    name: "another fingerprint is refused in every state, and changes nothing",
    async run(harness) {
      for (const [state, make] of Object.entries(everyState)) {
        const request = await make(harness);
        const before = (await harness.store.read(request)).record;
        const answer = await harness.store.reserve(
          again(request, { fingerprint: "v1:other", onCrash: "retry" }),
        );
        assert.equal(answer.kind, "mismatch", state);
        assert.deepEqual((await harness.store.read(request)).record, before, state);
      }
    },
  },
  {
    name: "a released key may be executed again, with the next fence",
    async run({ store }) {
      const request = fresh();
      await store.settle(await lease(store, request), release);
      const reservation = await store.reserve(again(request));
      assert.ok(reservation.kind === "execute");
      assert.equal(reservation.after, "failed_retryable");
      assert.equal(reservation.lease.fence, 2);
    },
  },
  {
    name: "a dead owner's key becomes unknown, and no retry executes it",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs });
      await lease(store, request);
      await passTime(shortMs + 10);
      const discovered = await store.reserve(again(request));
      assert.ok(discovered.kind === "unknown" && discovered.discovered);
      const later = await store.reserve(again(request));
      assert.ok(later.kind === "unknown" && !later.discovered);
      assert.equal(await stateOf(store, request), "unknown");
    },
  },
  ...(["retry", "resume"] as const).map((onCrash: OnCrash) => ({
    name: `a dead owner's key is taken over under onCrash "${onCrash}"`,
    async run({ store, passTime }: StoreHarness) {
      const request = fresh({ leaseMs: shortMs, onCrash });
      await lease(store, request);
      await passTime(shortMs + 10);
      const reservation = await store.reserve(again(request, { leaseMs: longMs }));
      assert.ok(reservation.kind === "execute");
      assert.equal(reservation.after, "crash");
      assert.equal(reservation.lease.fence, 2);
      assert.equal((await store.reserve(again(request))).kind, "inFlight");
    },
  })),
  {
    name: "what a crash means is decided by the request that started the execution",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs, onCrash: "reconcile" });
      await lease(store, request);
      await passTime(shortMs + 10);
      assert.equal((await store.reserve(again(request, { onCrash: "retry" }))).kind, "unknown");
    },
  },
  {
    name: "past its retention a key may be used for another request, and the fence goes on",
    async run({ store, passTime }) {
      const request = fresh();
      await store.settle(await lease(store, request), complete(created, shortMs));
      await passTime(shortMs + 10);
      const reservation = await store.reserve(again(request, { fingerprint: "v1:other" }));
      assert.ok(reservation.kind === "execute");
      assert.equal(reservation.after, "expired");
      assert.equal(reservation.lease.fence, 2);
      assert.equal((await store.reserve(again(request, { fingerprint: "v1:other" }))).kind, "inFlight");
      assert.equal((await store.reserve(again(request))).kind, "mismatch");
    },
  },
  {
    name: "an unknown outcome stays, however old it is",
    async run({ store, passTime }) {
      const request = fresh({ retentionMs: shortMs });
      await store.settle(await lease(store, request), suspend);
      await passTime(shortMs + 10);
      assert.equal((await store.reserve(again(request))).kind, "unknown");
    },
  },
  {
    name: "a running execution stays, however old it is",
    async run({ store, passTime }) {
      const request = fresh({ retentionMs: shortMs });
      await lease(store, request);
      await passTime(shortMs + 10);
      assert.equal((await store.reserve(again(request))).kind, "inFlight");
    },
  },
  {
    name: "fifty duplicates of a new request: one executes, the others are in flight",
    async run({ store }) {
      const request = fresh();
      const answers = await Promise.all(Array.from({ length: 50 }, () => store.reserve(again(request))));
      assert.deepEqual(counts(answers), { execute: 1, inFlight: 49 });
    },
  },
  {
    name: "fifty retries of a failed request: one executes",
    async run({ store }) {
      const request = fresh();
      await store.settle(await lease(store, request), release);
      const answers = await Promise.all(Array.from({ length: 50 }, () => store.reserve(again(request))));
      assert.deepEqual(counts(answers), { execute: 1, inFlight: 49 });
    },
  },
  {
    name: "fifty retries of a dead request: one takes over",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs, onCrash: "retry" });
      await lease(store, request);
      await passTime(shortMs + 10);
      const answers = await Promise.all(
        Array.from({ length: 50 }, () => store.reserve(again(request, { leaseMs: longMs }))),
      );
      assert.deepEqual(counts(answers), { execute: 1, inFlight: 49 });
    },
  },
  {
    name: "fifty retries of a dead request under reconcile: all learn that nobody knows, one discovers it",
    async run({ store, passTime }) {
      const request = fresh({ leaseMs: shortMs });
      await lease(store, request);
      await passTime(shortMs + 10);
      const answers = await Promise.all(Array.from({ length: 50 }, () => store.reserve(again(request))));
      assert.deepEqual(counts(answers), { unknown: 50 });
      assert.equal(answers.filter((answer) => answer.kind === "unknown" && answer.discovered).length, 1);
    },
  },
  {
    name: "many different keys at once do not disturb each other",
    async run({ store }) {
      const requests = Array.from({ length: 100 }, () => fresh());
      const leases = await Promise.all(requests.map((request) => lease(store, request)));
      const answers = await Promise.all(leases.map((held) => store.settle(held, complete())));
      assert.ok(answers.every((answer) => answer.kind === "settled"));
      const replays = await Promise.all(requests.map((request) => store.reserve(again(request))));
      assert.deepEqual(counts(replays), { replay: 100 });
    },
  },
  {
    name: "one key in two scopes is two records",
    async run({ store }) {
      const request = fresh();
      await store.settle(await lease(store, request), complete());
      const other = await store.reserve(again(request, { scope: `${request.scope}-other` }));
      assert.equal(other.kind, "execute");
    },
  },
  {
    name: "keys are compared exactly: case, spaces and length matter",
    async run({ store }) {
      const request = fresh({ key: "Key" });
      await store.settle(await lease(store, request), complete());
      for (const key of ["key", "KEY", "Key ", " Key", "Ke", "Key%", "K_y", "Key\\"]) {
        assert.equal((await store.reserve(again(request, { key }))).kind, "execute", JSON.stringify(key));
      }
    },
  },
  {
    name: "the longest key and the longest scope fit",
    async run({ store }) {
      const request = fresh({ key: "k".repeat(255), scope: "s".repeat(512) });
      await store.settle(await lease(store, request), complete());
      assert.equal((await store.reserve(again(request))).kind, "replay");
    },
  },
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
      for (;;) {
        const batch = await store.sweep({ limit: 1 });
        assert.ok(batch.unknown + batch.retryable <= 1, "no more than the limit");
        swept.unknown += batch.unknown;
        swept.retryable += batch.retryable;
        if (batch.unknown + batch.retryable === 0) break;
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
      await store.settle(await lease(store, failed), { ...release, retentionMs: shortMs });
      await store.settle(await lease(store, unknown), suspend);
      await lease(store, running);
      await lease(store, dead);
      await store.settle(await lease(store, kept), complete());
      await passTime(shortMs + 10);
      for (;;) {
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
    async run({ store }) {
      if (!store.capabilities.push) return;
      if (store.watch === undefined) assert.fail("capabilities.push promises a watch");
      for (const settlement of everySettlement) {
        const held = await lease(store, fresh());
        const woken = new Promise<void>((resolve, reject) => {
          const timer = setTimeout(() => reject(new Error(`not woken by ${settlement.kind}`)), 5000);
          store
            .watch?.(held, () => {
              clearTimeout(timer);
              resolve();
            })
            .then(
              (unwatch) => store.settle(held, settlement).then(() => woken.then(unwatch, unwatch)),
              reject,
            );
        });
        await woken;
      }
    },
  },
];
