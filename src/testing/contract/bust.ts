import assert from "node:assert/strict";
import type { BustListener, ReserveRequest, Store } from "../../core/store.ts";
import type { ContractCase, StoreHarness } from "./harness.ts";
import {
  accepting,
  again,
  claimOne,
  complete,
  counts,
  created,
  everyState,
  fresh,
  kept,
  lease,
  recordIn,
  release,
  someProgress,
  stateOf,
  suspend,
  until,
} from "./requests.ts";

const wrongPrice = { by: "Ada", reason: "the price was wrong" };

/** Answers that an operator takes away. */
export const bustCases: readonly ContractCase[] = [
  {
    name: "a busted answer is gone, and the next request executes with the next fence, whatever it asks for",
    async run({ store }) {
      for (const fingerprint of ["v1:first", "v1:other"]) {
        const request = await completed(store);
        const before = await recordIn(store, request, "completed");
        assert.deepEqual(await store.bust(request, wrongPrice), { kind: "busted" });
        const record = await recordIn(store, request, "expired");
        assert.equal(record.fence, before.fence);
        assert.equal(
          record.expiresAt,
          before.expiresAt,
          "the fence is kept for as long as the answer was to be",
        );
        assert.ok(!("response" in record));
        const reservation = await store.reserve(again(request, { fingerprint }));
        assert.ok(reservation.kind === "execute" && reservation.after === "expired");
        assert.equal(reservation.lease.fence, 2);
        assert.deepEqual(reservation.progress, []);
        await store.settle(reservation.lease, complete({ ...created, status: 202 }));
        const replay = await store.reserve(again(request, { fingerprint }));
        assert.ok(replay.kind === "replay" && replay.response.status === 202);
      }
    },
  },
  {
    name: "an answer that phases have led to can be busted, and so can a failure that has begun nothing",
    async run({ store }) {
      const request = fresh();
      const held = await lease(store, request);
      await store.advance(held, { progress: someProgress, onCrash: "resume" });
      await store.settle(held, complete());
      assert.deepEqual(await store.bust(request, wrongPrice), { kind: "busted" });
      assert.deepEqual((await recordIn(store, request, "expired")).progress, []);

      const failed = fresh({ request: kept });
      await store.settle(await lease(store, failed), release);
      assert.deepEqual(await store.bust(failed, wrongPrice), { kind: "busted" });
      await recordIn(store, failed, "expired");
      assert.equal(await claimOne(store, failed), undefined);
    },
  },
  {
    name: "what is under way, in doubt or half done cannot be busted, says what it is, and stays so",
    async run(harness) {
      const { store } = harness;
      const { completed: _, failed_retryable: __, ...unsettled } = everyState;
      const cases: typeof everyState = { ...unsettled, "failed_retryable, half done": halfDone };
      for (const [name, make] of Object.entries(cases)) {
        const request = await make(harness);
        const before = (await store.read(request)).record;
        const answer = await store.bust(request, wrongPrice);
        assert.deepEqual(answer, { kind: "not-settled", state: before?.state }, name);
        assert.deepEqual((await store.read(request)).record, before, name);
      }
    },
  },
  {
    name: "what is not there, or is busted already, is told so, and nothing is written down twice",
    async run({ store }) {
      assert.deepEqual(await store.bust(fresh(), wrongPrice), { kind: "nothing", state: "absent" });
      const request = await completed(store);
      await store.bust(request, wrongPrice);
      assert.deepEqual(await store.bust(request, wrongPrice), { kind: "nothing", state: "expired" });
      assert.equal((await store.audit({ ...idOf(request), limit: 10 })).length, 1);
    },
  },
  {
    name: "a bust of one attempt's answer leaves that of another",
    async run({ store }) {
      const request = await completed(store);
      await store.bust(request, { ...wrongPrice, attempt: 1 });
      await store.settle(await lease(store, again(request)), complete());
      for (const attempt of [1, 3]) {
        const answer = await store.bust(request, { ...wrongPrice, attempt });
        assert.deepEqual(answer, { kind: "another-attempt", attempt: 2 });
      }
      assert.equal((await store.reserve(again(request))).kind, "replay");
      assert.deepEqual(await store.bust(request, { ...wrongPrice, attempt: 2 }), { kind: "busted" });
    },
  },
  {
    name: "a bust is audited, with who and why",
    async run({ store }) {
      const request = await completed(store);
      await store.bust(request, wrongPrice);
      const [entry] = await store.audit({ ...idOf(request), limit: 10 });
      assert.ok(entry !== undefined);
      const { id: _, at, ...told } = entry;
      assert.deepEqual(told, { ...idOf(request), ...wrongPrice, fence: 1, from: "completed", to: "expired" });
      assert.ok(Math.abs(at - (await store.read(request)).now) < 30_000);

      const failed = fresh();
      await store.settle(await lease(store, failed), release);
      await store.bust(failed, wrongPrice);
      const [latest] = await store.audit({ ...idOf(failed), limit: 1 });
      assert.equal(latest?.from, "failed_retryable");
    },
  },
  {
    name: "ten busts at once: one counts",
    async run({ store }) {
      const request = await completed(store);
      const answers = await Promise.all(Array.from({ length: 10 }, () => store.bust(request, wrongPrice)));
      assert.equal(answers.filter(({ kind }) => kind === "busted").length, 1);
      assert.equal(answers.filter(({ kind }) => kind === "nothing").length, 9);
      assert.equal((await store.audit({ ...idOf(request), limit: 20 })).length, 1);
    },
  },
  {
    name: "fifty requests for a busted key at once: one executes",
    async run({ store }) {
      const request = await completed(store);
      await store.bust(request, wrongPrice);
      const reservations = await Promise.all(Array.from({ length: 50 }, () => store.reserve(again(request))));
      assert.deepEqual(counts(reservations), { execute: 1, inFlight: 49 });
    },
  },
  {
    name: "an owner whose answer was busted cannot bring it back",
    async run({ store }) {
      const request = fresh();
      const held = await lease(store, request);
      await store.settle(held, complete());
      await store.bust(request, wrongPrice);
      for (const settlement of [complete(), release, suspend]) {
        assert.deepEqual(await store.settle(held, settlement), { kind: "lost" }, settlement.kind);
      }
      assert.equal(await stateOf(store, request), "expired");
    },
  },
  {
    name: "a busted key can be accepted for a worker again",
    async run({ store }) {
      const request = await completed(store);
      await store.bust(request, wrongPrice);
      const { scope, key } = request;
      assert.equal((await store.reserve(again(request, { mode: "claim" }))).kind, "absent");
      assert.equal((await store.reserve(accepting({ scope, key }))).kind, "pending");
      assert.notEqual(await claimOne(store, request), undefined);
    },
  },
  {
    name: "a replay says for how long it will still be given",
    async run({ store }) {
      const request = await completed(store);
      const replay = await store.reserve(again(request));
      assert.ok(replay.kind === "replay");
      const { now } = await store.read(request);
      assert.ok(Math.abs(replay.expiresAt - now - replay.remainingMs) < 30_000);
      assert.ok(replay.remainingMs <= complete().retentionMs);
    },
  },
  {
    name: "the generation of answers changes with every bust, is never used again, and changes with nothing else",
    needs: "bust generation",
    async run({ store }) {
      const generation = async () => {
        const answer = await store.bustGeneration?.();
        return answer?.generation ?? assert.fail("the store has no generations");
      };
      const seen = [await generation()];
      for (let busts = 0; busts < 3; busts += 1) {
        const request = await completed(store);
        await store.reserve(again(request));
        await store.bust(fresh(), wrongPrice);
        await store.bust(request, { ...wrongPrice, attempt: 7 });
        assert.equal(await generation(), seen.at(-1));
        await store.bust(request, wrongPrice);
        seen.push(await generation());
      }
      assert.equal(new Set(seen).size, 4);
    },
  },
  {
    name: "busts at once: whoever asks for the generation after one of them does not get one from before it",
    needs: "bust generation",
    async run({ store }) {
      const requests = await Promise.all(Array.from({ length: 10 }, () => completed(store)));
      const before = await store.bustGeneration?.();
      const after = await Promise.all(
        requests.map(async (request) => {
          const old = await store.bustGeneration?.();
          assert.deepEqual(await store.bust(request, wrongPrice), { kind: "busted" });
          return [old, await store.bustGeneration?.()];
        }),
      );
      for (const [old, next] of after) {
        assert.notEqual(next?.generation, old?.generation);
        assert.notEqual(next?.generation, before?.generation);
      }
    },
  },
  {
    name: "the generation comes with the store's clock, at a moment between asking and being answered",
    needs: "bust generation",
    async run({ store }) {
      const before = (await store.read(fresh())).now;
      const answer = await store.bustGeneration?.();
      const after = (await store.read(fresh())).now;
      assert.ok(answer !== undefined && before <= answer.now && answer.now <= after);
    },
  },
  {
    name: "whoever listens is told of every bust, by the name of the record, and of nothing else",
    // A store that cannot tell other processes, or does not know when it could not, has no such verb.
    needs: "bust news",
    async run({ store }) {
      if (store.onBusted === undefined) assert.fail("the store tells of no busts");
      const heard: string[] = [];
      let isListening = false;
      const listener: BustListener = {
        listening: () => {
          isListening = true;
        },
        busted: (name) => heard.push(name),
        interrupted: () => {
          isListening = false;
        },
      };
      const nameOf = store.onBusted(listener);
      await until(() => isListening);
      const { scope } = fresh();
      const odd = fresh({ scope: `${scope} ten\\ant ☃`, key: `'key" 🙂` });
      const requests = [fresh({ scope, key: "ab" }), fresh({ scope: `${scope}a`, key: "b" }), odd];
      for (const request of requests) await store.settle(await lease(store, request), complete());
      const running = fresh();
      await lease(store, running);
      await store.bust(running, wrongPrice);
      for (const request of requests) await store.bust(request, wrongPrice);
      await until(() => heard.length >= requests.length);
      assert.deepEqual(heard, requests.map(idOf).map(nameOf));
      assert.equal(new Set(heard).size, requests.length);
    },
  },
];

async function completed(store: Store): Promise<ReserveRequest> {
  const request = fresh();
  await store.settle(await lease(store, request), complete());
  return request;
}

async function halfDone({ store }: StoreHarness): Promise<ReserveRequest> {
  const request = fresh();
  const held = await lease(store, request);
  await store.advance(held, { progress: someProgress, onCrash: "resume" });
  await store.settle(held, release);
  return request;
}

function idOf({ scope, key }: ReserveRequest) {
  return { scope, key };
}
