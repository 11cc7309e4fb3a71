import Database from "libsql";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Store } from "../../src/core/store.ts";
import * as statements from "../../src/stores/sqlite/outbox-statements.ts";
import { type SqliteDatabase, sqliteStore } from "../../src/stores/sqlite/store.ts";
import {
  claimAll,
  kept,
  lease,
  message,
  outboxOf,
  planOf,
  release,
  request,
  transact,
  useFolder,
} from "./sqlite-support.ts";

const place = useFolder();
let database: Database.Database;
let store: Store<SqliteDatabase>;

beforeEach(() => {
  database = new Database(place.path);
  store = sqliteStore(database, { synchronous: "normal" });
});

afterEach(async () => {
  await store.close();
  database.close();
});

describe("the outbox", () => {
  it("finds its work by its indexes", () => {
    for (const [sql, index] of [
      [statements.findLanes, "latchkey_outbox_due (is_head=? AND lane=?)"],
      [statements.findHeads, "latchkey_outbox_due (is_head=? AND lane=? AND due_at<?)"],
      [statements.readPartition, "latchkey_outbox_partition (partition_key=?)"],
      [statements.promoteHead, "latchkey_outbox_partition (partition_key=?)"],
      [statements.pruneDelivered, "latchkey_outbox_delivered (delivered_at"],
      [statements.readDead, "latchkey_outbox_dead (id>?)"],
      [statements.countMessages, "latchkey_outbox_due"],
      [statements.countMessages, "latchkey_outbox_dead"],
    ] as const) {
      const plan = planOf(database, sql);
      expect(plan).toContain(`INDEX ${index}`);
      expect(plan).not.toMatch(/(SCAN|SEARCH) latchkey_outbox(?! USING)/);
    }
  });

  it("never gives an id twice, so that a late word cannot meet another message", async () => {
    const outbox = outboxOf(store);
    const ids: string[] = [];
    for (let nth = 0; nth < 3; nth += 1) {
      await transact(store, await lease(store, request()), undefined, { messages: [message()] });
      const [only] = await outbox.claim({ owner: "relay", limit: 1, leaseMs: 60_000 });
      if (only === undefined) expect.fail("nothing was claimed");
      ids.push(only.id);
      await outbox.settle("relay", [{ kind: "delivered", id: only.id }]);
    }
    expect(new Set(ids).size).toBe(3);
  });

  it("keeps its messages through close and reopen", async () => {
    const sent = message({ partition: "p", payload: '{"ride":1}' });
    await transact(store, await lease(store, request()), undefined, { messages: [sent] });
    await store.close();
    const reopened = sqliteStore(place.path);
    const { delayMs: _, ...expected } = sent;
    const claimed = await outboxOf(reopened).claim({ owner: "relay", limit: 10, leaseMs: 60_000 });
    expect(claimed).toMatchObject([expected]);
    await reopened.close();
  });

  it("wakes whoever watches, for what is enqueued and for what is requeued, until it is told not to", async () => {
    const outbox = outboxOf(store);
    let woken = 0;
    const wake = () => {
      woken += 1;
    };
    const unwatch = await outbox.watch?.(wake);
    const other = await outbox.watch?.(wake);
    const held = await lease(store, request());
    await transact(store, held);
    expect(woken).toBe(0);
    await transact(store, held, undefined, { messages: [message()] });
    expect(woken).toBe(2);
    other?.();
    const [only] = await outbox.claim({ owner: "relay", limit: 1, leaseMs: 60_000 });
    const id = only?.id ?? expect.fail("nothing was claimed");
    await outbox.settle("relay", [{ kind: "dead", id, error: "refused" }]);
    expect(await outbox.requeue([id], "ada")).toBe(1);
    expect(woken).toBe(3);
    unwatch?.();
    await transact(store, held, undefined, { messages: [message()] });
    expect(woken).toBe(3);
  });

  it("leaves lanes for other relays, however much one of them asks for", async () => {
    const messages = Array.from({ length: 640 }, (_, index) => message({ partition: `p${index}` }));
    await transact(store, await lease(store, request()), undefined, { messages });
    const outbox = outboxOf(store);
    const batches = [];
    for (const owner of ["a", "b", "c", "d"]) {
      batches.push(await outbox.claim({ owner, limit: 1_000, leaseMs: 60_000 }));
    }
    for (const batch of batches) {
      expect(batch.length).toBeGreaterThan(50);
      const ids = batch.map(({ id }) => Number(id));
      expect(ids, "in the order of their commits").toEqual(ids.toSorted((a, b) => a - b));
    }
    expect(new Set(batches.flat().map(({ id }) => id)).size).toBe(640);
  });

  it("passes by a partition that cannot go on, however much waits in it", async () => {
    const held = await lease(store, request());
    const blocked = Array.from({ length: 20_000 }, () => message({ partition: "blocked" }));
    await transact(store, held, undefined, { messages: blocked });
    expect(database.prepare("SELECT sum(is_head) AS heads FROM latchkey_outbox").get()).toMatchObject({
      heads: 1,
    });
    const outbox = outboxOf(store);
    const [head] = await outbox.claim({ owner: "relay", limit: 1, leaseMs: 60_000 });
    const id = head?.id ?? expect.fail("nothing was claimed");
    await outbox.settle("relay", [{ kind: "failed", id, error: "not now", retryAfterMs: 60_000 }]);
    const before = performance.now();
    for (let nth = 0; nth < 100; nth += 1) {
      expect(await outbox.claim({ owner: "relay", limit: 250, leaseMs: 60_000 })).toEqual([]);
    }
    // Looking through all of it would take ten times as long.
    expect(performance.now() - before).toBeLessThan(500);
  });
});

describe("a kept request", () => {
  it("has its body beside the record, and loses it with its outcome, its reuse and its deletion", async () => {
    const bodies = () =>
      (database.prepare("SELECT count(*) AS count FROM latchkey_request_bodies").get() as { count: number })
        .count;
    const asked = request({ request: kept });
    const held = await lease(store, asked);
    expect(bodies()).toBe(1);
    await store.settle(held, {
      kind: "complete",
      response: { kind: "omitted", status: 201, bodyBytes: 1 },
      retentionMs: 0,
    });
    expect(bodies()).toBe(0);

    const retried = request({ request: kept });
    await store.settle(await lease(store, retried), { ...release, retentionMs: 0 });
    expect(bodies()).toBe(1);
    await lease(store, { ...retried, request: undefined });
    expect(bodies()).toBe(0);

    for (const expiry of ["soft", "delete"] as const) {
      await store.settle(await lease(store, request({ request: kept })), { ...release, retentionMs: 0 });
      expect(bodies()).toBe(1);
      await store.reap({ limit: 10, expiry });
      expect(bodies()).toBe(0);
    }
    expect((await store.claimResumable(claimAll)).claimed).toEqual([]);
  });
});
