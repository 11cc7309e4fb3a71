import assert from "node:assert/strict";
import { type AuditEntry, auditActors, auditReasons } from "../../core/audit.ts";
import type { RecordId } from "../../core/record.ts";
import type { Store } from "../../core/store.ts";
import { crashReason } from "../../core/transition.ts";
import type { ContractCase } from "./harness.ts";
import {
  accepting,
  again,
  claimAll,
  claimOne,
  complete,
  created,
  fresh,
  kept,
  lease,
  longMs,
  release,
  rounds,
  shortMs,
  someProgress,
  stateOf,
  suspend,
  sweep,
  sweepAll,
} from "./requests.ts";

/** Every change off the happy path is written down, once, with who, when, from what, to what, and why. */
export const auditCases: readonly ContractCase[] = [
  {
    name: "the happy path writes nothing into the audit trail",
    async run({ store, passTime }) {
      const executed = fresh();
      const held = await lease(store, executed);
      await store.renew([held], longMs);
      await store.advance(held, { progress: someProgress, onCrash: "resume" });
      await store.settle(held, complete());
      await store.settle(held, complete());
      await store.reserve(again(executed));
      const expired = fresh();
      for (let use = 0; use < 2; use += 1) {
        await store.settle(await lease(store, again(expired)), complete(created, shortMs));
        await passTime(shortMs + 10);
      }
      await store.reap({ limit: 1_000, expiry: "delete" });
      const accepted = accepting();
      await store.reserve(accepted);
      await claimOne(store, accepted);
      await store.settle(await lease(store, again(accepted, { mode: "claim" })), complete());
      for (const request of [executed, expired, accepted]) assert.deepEqual(await trail(store, request), []);
    },
  },
  {
    name: "a refused or lost attempt writes nothing into the audit trail",
    async run({ store }) {
      const request = fresh();
      const held = await lease(store, request);
      await store.reserve(again(request));
      await store.reserve(again(request, { fingerprint: "v1:other" }));
      await store.settle({ ...held, fence: 7 }, release);
      await store.resolve(request, held.fence, complete(), "operator");
      assert.deepEqual(await trail(store, request), []);
    },
  },
  {
    name: "a release and a suspension are audited once, however often they are told",
    async run({ store }) {
      for (const [settlement, to] of [
        [release, "failed_retryable"],
        [suspend, "unknown"],
      ] as const) {
        const request = fresh();
        const held = await lease(store, request);
        for (let told = 0; told < 2; told += 1) await store.settle(held, settlement);
        const { reason } = settlement;
        const by = request.owner;
        assert.deepEqual(await trail(store, request), [{ fence: 1, from: "in_progress", to, by, reason }]);
      }
    },
  },
  {
    name: "an execution and an acceptance after a failed attempt are audited",
    async run({ store }) {
      for (const [mode, to, fence] of [
        ["execute", "in_progress", 2],
        ["accept", "pending", 1],
      ] as const) {
        const request = fresh();
        await store.settle(await lease(store, request), release);
        const next = again(request, { mode, request: kept });
        await store.reserve(next);
        const [, entry, ...more] = await trail(store, request);
        const expected = { from: "failed_retryable", by: next.owner, reason: auditReasons.retried } as const;
        assert.deepEqual(entry, { ...expected, fence, to });
        assert.deepEqual(more, []);
      }
    },
  },
  {
    name: "a takeover after a crash is audited, to execute and to accept",
    async run({ store, passTime }) {
      for (const [mode, to, fence] of [
        ["execute", "in_progress", 2],
        ["accept", "pending", 1],
      ] as const) {
        const request = fresh({ leaseMs: shortMs, onCrash: "retry" });
        await lease(store, request);
        await passTime(shortMs + 10);
        const next = again(request, { mode, request: kept });
        await store.reserve(next);
        const expected = { from: "in_progress", by: next.owner, reason: auditReasons.takenOver } as const;
        assert.deepEqual(await trail(store, request), [{ ...expected, fence, to }]);
      }
    },
  },
  {
    name: "a crash is audited under the name of whoever found it, by fifty at once only once",
    async run({ store, passTime }) {
      const found = fresh({ leaseMs: shortMs });
      await lease(store, found);
      await passTime(shortMs + 10);
      await Promise.all(Array.from({ length: 50 }, () => store.reserve({ ...found, owner: "finder" })));
      const crash = { fence: 1, from: "in_progress", reason: crashReason } as const;
      assert.deepEqual(await trail(store, found), [{ ...crash, to: "unknown", by: "finder" }]);

      for (const [onCrash, to] of [
        ["reconcile", "unknown"],
        ["retry", "failed_retryable"],
        ["resume", "failed_retryable"],
      ] as const) {
        const swept = fresh({ leaseMs: shortMs, onCrash, request: kept });
        await lease(store, swept);
        await passTime(shortMs + 10);
        await sweep(store, swept);
        assert.deepEqual(await trail(store, swept), [{ ...crash, to, by: auditActors.sweeper }], onCrash);
      }
    },
  },
  {
    name: "an accepted request that nobody executed in time is audited",
    async run({ store, passTime }) {
      const request = accepting({ retentionMs: shortMs });
      await store.reserve(request);
      await passTime(shortMs + 10);
      for (const _ of rounds()) {
        if ((await stateOf(store, request)) !== "pending") break;
        await store.sweep(sweepAll);
      }
      const expected = { by: auditActors.sweeper, reason: auditReasons.unclaimed } as const;
      assert.deepEqual(await trail(store, request), [
        { ...expected, fence: 0, from: "pending", to: "completed" },
      ]);
    },
  },
  {
    name: "giving an operation up is audited, whatever becomes of it",
    async run({ store }) {
      for (const [onCrash, to] of [
        ["resume", "unknown"],
        ["retry", "failed_retryable"],
      ] as const) {
        const request = fresh({ onCrash, request: kept });
        await store.settle(await lease(store, request), { ...release, resumeAfterMs: 0 });
        await store.claimResumable({ ...claimAll, attemptsMax: 1 });
        const [, entry, ...more] = await trail(store, request);
        const expected = { by: auditActors.completer, reason: auditReasons.gaveUp } as const;
        assert.deepEqual(entry, { ...expected, fence: 1, from: "failed_retryable", to });
        assert.deepEqual(more, []);
      }
    },
  },
  {
    name: "every resolution is audited under the name of whoever said it",
    async run({ store }) {
      const unknown = { fence: 1, from: "unknown" } as const;
      const request = fresh();
      await store.settle(await lease(store, request), suspend);
      await store.resolve(request, 1, { kind: "escalate", reason: "nobody answers" }, "reconciler");
      await store.resolve(request, 1, { ...release, reason: "never sent", progress: [] }, "Ada");
      await store.resolve(request, 1, { ...release, reason: "never sent", progress: [] }, "Ada");
      assert.deepEqual((await trail(store, request)).slice(1), [
        { ...unknown, to: "unknown", by: "reconciler", reason: "nobody answers" },
        { ...unknown, to: "failed_retryable", by: "Ada", reason: "never sent" },
      ]);
      const other = fresh();
      await store.settle(await lease(store, other), suspend);
      await store.resolve(other, 1, complete(), "webhook");
      assert.deepEqual((await trail(store, other)).slice(1), [
        { ...unknown, to: "completed", by: "webhook", reason: auditReasons.foundOut },
      ]);
    },
  },
  {
    name: "the audit trail is read from its end, page by page, of one record, one scope, or all",
    async run({ store }) {
      const { scope } = fresh();
      const first = fresh({ scope, key: "first" });
      const second = fresh({ scope, key: "second" });
      const elsewhere = fresh({ key: "first" });
      for (const request of [first, second, elsewhere, first]) {
        await store.settle(await lease(store, again(request)), { ...release, reason: request.key });
      }
      const { now } = await store.read(first);
      const all = await store.audit({ scope, limit: 100 });
      assert.deepEqual(
        all.map(({ key, to }) => `${key} ${to}`),
        ["first failed_retryable", "first in_progress", "second failed_retryable", "first failed_retryable"],
      );
      assert.ok(all.every((entry) => entry.scope === scope && entry.at <= now && now - entry.at < 30_000));
      const pages: AuditEntry[] = [];
      for (const _ of rounds()) {
        const before = pages.at(-1)?.id;
        const page = await store.audit({ scope, limit: 3, ...(before === undefined ? {} : { before }) });
        assert.ok(page.length <= 3);
        if (page.length === 0) break;
        pages.push(...page);
      }
      assert.deepEqual(pages, all);
      assert.deepEqual(
        await store.audit({ scope, key: "first", limit: 100 }),
        all.filter(({ key }) => key === "first"),
      );
      const latest = await store.audit({ limit: 5 });
      assert.ok(latest.some((entry) => entry.scope === elsewhere.scope));
      assert.deepEqual(latest[0], all[0]);
    },
  },
];

type Told = Omit<AuditEntry, "id" | "at" | keyof RecordId>;

/** What the trail tells of this record, the earliest first. */
async function trail(store: Store, { scope, key }: RecordId): Promise<readonly Told[]> {
  const entries = await store.audit({ scope, key, limit: 100 });
  return entries.map(({ id, at, scope: _, key: __, ...told }) => told).reverse();
}
