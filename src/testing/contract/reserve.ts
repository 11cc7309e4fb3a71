import assert from "node:assert/strict";
import { boundFingerprint } from "../../core/binding.ts";
import type { OnCrash } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import type { ContractCase, StoreHarness } from "./harness.ts";
import {
  again,
  complete,
  counts,
  created,
  everyByte,
  everyState,
  fresh,
  lease,
  longMs,
  recordIn,
  release,
  shortMs,
  stateOf,
  suspend,
} from "./requests.ts";

/** What an arriving request is answered. */
export const reserveCases: readonly ContractCase[] = [
  {
    name: "a new key may be executed, with fence 1",
    async run({ store }) {
      const request = fresh();
      const reservation = await store.reserve(request);
      assert.equal(reservation.kind, "execute");
      // What is said counts: a store's leases may be of a class of its own.
      const said = { ...reservation, lease: { ...reservation.lease } };
      assert.deepEqual(said, {
        kind: "execute",
        after: "absent",
        progress: [],
        createdAt: (await recordIn(store, request, "in_progress")).createdAt,
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
    name: "a fingerprint that is tied to a session is kept and compared whole",
    async run({ store }) {
      const plain = fresh();
      const request = { ...plain, fingerprint: boundFingerprint(plain.fingerprint, plain, "session-1") };
      await store.settle(await lease(store, request), complete());
      assert.equal((await recordIn(store, request, "completed")).fingerprint, request.fingerprint);
      assert.equal((await store.reserve(again(request))).kind, "replay");
      const foreign = boundFingerprint(plain.fingerprint, plain, "session-2");
      for (const fingerprint of [foreign, plain.fingerprint, request.fingerprint.slice(0, -1)]) {
        assert.equal((await store.reserve({ ...again(request), fingerprint })).kind, "mismatch");
      }
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
      const { key, scope } = fresh();
      const request = fresh({ key: key.padEnd(255, "k"), scope: scope.padEnd(512, "s") });
      await store.settle(await lease(store, request), complete());
      assert.equal((await store.reserve(again(request))).kind, "replay");
    },
  },
];
