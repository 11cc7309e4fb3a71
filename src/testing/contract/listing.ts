import assert from "node:assert/strict";
import { type ListedRecord, listed, type RecordId } from "../../core/record.ts";
import type { ListQuery, Store } from "../../core/store.ts";
import type { ContractCase } from "./harness.ts";
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
  suspend,
} from "./requests.ts";

/** An operator can find records: by what they are, whose they are, their key, and when they came. */
export const listingCases: readonly ContractCase[] = [
  {
    name: "a list shows of each record what reading it shows, whatever its state",
    async run({ store }) {
      const { scope } = fresh();
      const own = await oneOfEachState(store, scope);
      const found = await listAll(store, { tenantScope: scope });
      assert.deepEqual(names(found), names(own));
      for (const record of found) {
        const { record: whole } = await store.read(record);
        assert.ok(whole !== undefined);
        assert.deepEqual(record, listed(whole));
      }
    },
  },
  {
    name: "which of many have a record is told of each, whatever its state, where a store can tell it",
    async run({ store }) {
      if (store.exist === undefined) return;
      const { scope } = fresh();
      const own = await oneOfEachState(store, scope);
      // The key of one that is there, in a scope that has none; and characters that mean something to a database.
      const others = [
        { scope: `${scope}x`, key: own[0]?.key ?? "" },
        fresh({ scope }),
        { scope, key: "a\",\\{}'\n" },
      ];
      const ids = [...others, ...own, ...others, ...own];
      const isOwn = (id: RecordId) => own.some((one) => one.scope === id.scope && one.key === id.key);
      assert.deepEqual(await store.exist(ids), ids.map(isOwn));
      assert.deepEqual(await store.exist([]), []);
    },
  },
  {
    name: "a list goes on where the page before it ended, and shows every record once",
    async run({ store }) {
      const { scope } = fresh();
      const own: RecordId[] = [];
      for (let index = 0; index < 7; index += 1) {
        const request = fresh({ scope: index % 2 === 0 ? scope : `${scope} POST /rides/${index}` });
        own.push(request);
        await store.settle(await lease(store, request), complete(created));
      }
      for (const limit of [1, 2, 7, 8]) {
        assert.deepEqual(names(await listAll(store, { tenantScope: scope }, limit)), names(own));
      }
    },
  },
  {
    name: "the latest come first where a store says so, also over more than one page",
    async run({ store, passTime }) {
      if (store.capabilities.listing === "unordered") return;
      const { scope } = fresh();
      const keys: string[] = [];
      for (let index = 0; index < 4; index += 1) {
        const request = fresh({ scope });
        keys.unshift(request.key);
        await lease(store, request);
        await passTime(3);
      }
      for (const limit of [2, 10]) {
        const found = await listAll(store, { tenantScope: scope }, limit);
        assert.deepEqual(
          found.map(({ key }) => key),
          keys,
        );
      }
    },
  },
  {
    name: "a list shows one state, one route or one stretch of time",
    async run({ store, passTime }) {
      const { scope } = fresh();
      const own = await oneOfEachState(store, scope);
      await passTime(3);
      const late = fresh({ scope, route: "refunds" });
      await lease(store, late);
      const createdAt = (await store.read(late)).record?.createdAt;
      assert.ok(createdAt !== undefined);

      for (const { state } of own) {
        const found = await listAll(store, { tenantScope: scope, state });
        const expected = own.filter((record) => record.state === state);
        assert.deepEqual(names(found), names(state === "in_progress" ? [...expected, late] : expected));
      }
      const refunds = { tenantScope: scope, route: "refunds" };
      assert.deepEqual(names(await listAll(store, refunds)), names([late]));
      assert.deepEqual(names(await listAll(store, { ...refunds, state: "completed" })), []);
      const from = { tenantScope: scope, createdFrom: createdAt };
      assert.deepEqual(names(await listAll(store, from)), names([late]));
      const before = { tenantScope: scope, createdBefore: createdAt };
      assert.deepEqual(names(await listAll(store, before)), names(own));
      assert.deepEqual(await listAll(store, { ...from, createdBefore: createdAt }), []);
    },
  },
  {
    name: "a tenant's list shows the scopes of all of its endpoints, and of nobody else",
    async run({ store }) {
      const { scope } = fresh();
      const own = [scope, `${scope} POST /rides`, `${scope} PATCH /rides/1`].map((one) =>
        fresh({ scope: one }),
      );
      const others = [`${scope}x`, `${scope}%20x`, `x${scope}`, `x ${scope}`].map((one) =>
        fresh({ scope: one }),
      );
      for (const request of [...own, ...others]) await lease(store, request);
      assert.deepEqual(names(await listAll(store, { tenantScope: scope })), names(own));
      assert.deepEqual(names(await listAll(store, { tenantScope: `${scope} POST /rides` })), []);
    },
  },
  {
    name: "a key is found in every scope that it was used in, and only as a whole",
    async run({ store }) {
      const first = fresh();
      const elsewhere = [
        fresh({ key: first.key }),
        fresh({ key: first.key, scope: `${first.scope} POST /a` }),
      ];
      const longer = fresh({ scope: first.scope, key: `${first.key}0` });
      for (const request of [first, ...elsewhere, longer]) await lease(store, request);
      const { key } = first;
      assert.deepEqual(names(await listAll(store, { key })), names([first, ...elsewhere]));
      assert.deepEqual(names(await listAll(store, { key }, 1)), names([first, ...elsewhere]));
      const [, own] = elsewhere;
      assert.ok(own !== undefined);
      assert.deepEqual(names(await listAll(store, { key, tenantScope: first.scope })), names([first, own]));
      assert.deepEqual(await listAll(store, { key: `${key}-nobody-sent-this` }), []);
    },
  },
  {
    name: "a list cannot be gone on with from a place that no page has named",
    async run({ store }) {
      await lease(store, fresh());
      await assert.rejects(store.list({ limit: 10, after: "nowhere" }));
    },
  },
];

/** Every page of a list. An empty one is not the end unless it says so. */
async function listAll(store: Store, query: Omit<ListQuery, "limit">, limit = 100): Promise<ListedRecord[]> {
  const found: ListedRecord[] = [];
  let after: string | undefined;
  for (let page = 0; page < pagesMax; page += 1) {
    const { records, next } = await store.list({ ...query, limit, after });
    assert.ok(records.length <= limit, "a page has no more than was asked for");
    found.push(...records);
    if (next === undefined) return found;
    after = next;
  }
  return assert.fail("the list has no end");
}

/** Far more than any test database needs. */
const pagesMax = 10_000;

async function oneOfEachState(store: Store, scope: string): Promise<ListedRecord[]> {
  const running = fresh({ scope });
  await lease(store, running);
  const done = fresh({ scope, route: "rides" });
  await store.settle(await lease(store, done), complete(created));
  const failed = fresh({ scope });
  await store.settle(await lease(store, failed), release);
  const waiting = fresh({ scope, request: kept, onCrash: "resume" });
  await store.settle(await lease(store, waiting), { ...release, resumeAfterMs: longMs });
  const unknown = fresh({ scope });
  await store.settle(await lease(store, unknown), suspend);
  const escalated = fresh({ scope });
  const { fence } = await lease(store, escalated);
  await store.settle({ ...escalated, fence }, suspend);
  await store.resolve(escalated, fence, { kind: "escalate", reason: "nobody could tell" }, "ada");
  const pending = accepting({ scope });
  await store.reserve(pending);
  const busted = fresh({ scope });
  await store.settle(await lease(store, busted), complete(created));
  await store.bust(busted, { by: "ada", reason: "wrong" });
  const retried = fresh({ scope });
  await store.settle(await lease(store, retried), release);
  await store.reserve(again(retried));
  const all = [running, done, failed, waiting, unknown, escalated, pending, busted, retried];
  const records = await Promise.all(all.map(async (id) => (await store.read(id)).record));
  return records.map((record) => {
    assert.ok(record !== undefined);
    return listed(record);
  });
}

/** In an order of their own, since not every store keeps one. */
function names(records: readonly RecordId[]): string[] {
  return records.map(({ scope, key }) => `${scope} ${key}`).sort();
}
