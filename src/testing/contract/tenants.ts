import assert from "node:assert/strict";
import type { BustListener, ForgetCounts, Store } from "../../core/store.ts";
import type { ContractCase } from "./harness.ts";
import { delivered, died, outboxCase } from "./outbox-bench.ts";
import {
  accepting,
  again,
  complete,
  created,
  fresh,
  kept,
  lease,
  longMs,
  release,
  rounds,
  someProgress,
  stateOf,
  suspend,
  until,
} from "./requests.ts";

/** What is kept about one tenant can be removed, and nothing else is; how much is in doubt can be told. */
export const tenantCases: readonly ContractCase[] = [
  {
    name: "what is settled of a tenant is removed from all of its scopes, with its audit trail",
    async run({ store }) {
      const { scope: tenantScope } = fresh();
      const scopes = [tenantScope, `${tenantScope} POST /rides`, `${tenantScope} PATCH /rides/1`];
      const own = scopes.flatMap((scope) => [fresh({ scope }), fresh({ scope })]);
      for (const [index, request] of own.entries()) {
        const held = await lease(store, request);
        await store.settle(held, index % 2 === 0 ? complete() : release);
      }
      const others = [`${tenantScope}x`, `${tenantScope}%20x`, `x${tenantScope}`, `x ${tenantScope}`].map(
        (scope) => fresh({ scope }),
      );
      for (const request of others) await store.settle(await lease(store, request), release);
      assert.equal((await store.audit({ limit: 10, scope: tenantScope })).length, 1);

      const counts = await forget(store, tenantScope, 3);
      assert.equal(counts.unsettled, 0);
      for (const request of own) {
        assert.equal(await stateOf(store, request), "absent");
        assert.deepEqual(await store.audit({ limit: 10, scope: request.scope }), []);
      }
      for (const request of others) {
        assert.equal(await stateOf(store, request), "failed_retryable");
        assert.equal((await store.audit({ limit: 10, scope: request.scope })).length, 1);
      }
      const [first] = own;
      assert.ok(first !== undefined);
      const next = await store.reserve(again(first));
      assert.ok(next.kind === "execute" && next.after === "absent");
    },
  },
  {
    name: "what is under way, in doubt or half done stays when its tenant is forgotten, and is counted",
    async run({ store }) {
      const { scope: tenantScope } = fresh();
      const running = fresh({ scope: tenantScope });
      const runningLease = await lease(store, running);
      const unknown = fresh({ scope: `${tenantScope} POST /a` });
      await store.settle(await lease(store, unknown), suspend);
      const halfDone = fresh({ scope: tenantScope });
      const held = await lease(store, halfDone);
      await store.advance(held, { progress: someProgress, onCrash: "retry" });
      await store.settle(held, release);
      const waiting = fresh({ scope: tenantScope, request: kept, onCrash: "resume" });
      await store.settle(await lease(store, waiting), { ...release, resumeAfterMs: longMs });
      const pending = accepting({ scope: tenantScope });
      await store.reserve(pending);
      const before = new Map<string, string>();
      const all = [running, unknown, halfDone, waiting, pending];
      for (const request of all) before.set(request.key, await stateOf(store, request));

      const { unsettled } = await forget(store, tenantScope);
      assert.equal(unsettled, all.length);
      for (const request of all) assert.equal(await stateOf(store, request), before.get(request.key));
      // Its owner still has it.
      assert.deepEqual(await store.renew([runningLease], longMs), ["held"]);
    },
  },
  {
    name: "an answer that its tenant is forgotten with is not given by those who kept it either",
    needs: "bust news",
    async run({ store }) {
      if (store.onBusted === undefined) assert.fail("the store tells of no busts");
      let isListening = false;
      let told = 0;
      const listener: BustListener = {
        listening: () => {
          isListening = true;
        },
        busted: () => {
          told += 1;
        },
        interrupted: () => {
          isListening = false;
          told += 1;
        },
      };
      store.onBusted(listener);
      await until(() => isListening);
      const request = fresh();
      await store.settle(await lease(store, request), complete(created));
      const generation = await store.bustGeneration?.();
      told = 0;
      await forget(store, request.scope);
      await until(() => told > 0 && isListening);
      if (generation !== undefined) {
        assert.notEqual((await store.bustGeneration?.())?.generation, generation.generation);
      }
    },
  },
  outboxCase(
    "messages of a tenant are removed when nobody has to deliver them any more",
    async ({ store, send, relay, dead, outbox }) => {
      const { scope: tenantScope } = fresh();
      const { scope: otherScope } = fresh();
      const message = (payload: string, scope = `${tenantScope} POST /a`) => ({ payload, scope });
      await send(
        message("dead"),
        message("done"),
        message("waits", tenantScope),
        message("other", otherScope),
      );
      const worker = relay();
      const claimed = await worker.claim();
      const byName = (name: string) => claimed.find(({ payload }) => payload === name);
      await worker.settle(died(byName("dead")), died(byName("other")), {
        ...delivered(byName("done")),
        reference: "re_1",
      });
      const { unsettled } = await forget(store, tenantScope);
      // The records of the phases are of other tenants: only the message that waits is left.
      assert.equal(unsettled, 1);
      assert.deepEqual(
        (await dead()).map(({ payload }) => payload),
        ["other"],
      );
      const left = await worker.claim();
      assert.deepEqual(
        left.map(({ payload }) => payload),
        ["waits"],
      );
      await worker.settle(...left.map(delivered));
      assert.equal(await outbox.prune({ limit: 1_000, retentionMs: 0 }), 0);
      assert.deepEqual(await forget(store, tenantScope), { removed: 0, unsettled: 0 });
    },
  ),
  {
    name: "unknown outcomes are counted, those that an operator has to settle on their own",
    async run({ store, passTime }) {
      const before = await store.unknownCounts();
      const [one, two] = [fresh(), fresh()];
      await store.settle(await lease(store, one), suspend);
      await passTime(shortPause);
      const held = await lease(store, two);
      await store.settle(held, suspend);
      await store.resolve(two, held.fence, { kind: "escalate", reason: "nobody knows" }, "test");
      const counts = await store.unknownCounts();
      assert.equal(counts.waiting, before.waiting + 1);
      assert.equal(counts.escalated, before.escalated + 1);
      assert.ok(counts.oldestMs >= shortPause && counts.oldestMs >= before.oldestMs);
      await store.resolve(two, held.fence, complete(), "test");
      const after = await store.unknownCounts();
      assert.deepEqual([after.waiting, after.escalated], [before.waiting + 1, before.escalated]);
    },
  },
];

const shortPause = 20;

/** Round after round, until nothing more is removed; answers with the last round's counts. */
async function forget(store: Store, tenantScope: string, limit = 100): Promise<ForgetCounts> {
  for (const _ of rounds()) {
    const counts = await store.forgetTenant({ tenantScope, limit });
    assert.ok(counts.removed <= limit);
    if (counts.removed === 0) return counts;
    assert.equal(counts.unsettled, 0);
  }
  return assert.fail("unreachable");
}
