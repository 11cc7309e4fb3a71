import Database from "libsql";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Settlement } from "../../src/core/store.ts";
import * as statements from "../../src/stores/sqlite/statements.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import {
  complete,
  everyByte,
  lease,
  planOf,
  release,
  request,
  suspend,
  unclaimed,
  useFolder,
} from "./sqlite-support.ts";

const place = useFolder();

afterEach(() => {
  vi.restoreAllMocks();
});

describe("values", () => {
  it("keeps times of the real clock to the millisecond", async () => {
    const store = sqliteStore(place.path);
    const before = Date.now();
    const asked = request({ leaseMs: 12_345, retentionMs: 86_400_001 });
    await lease(store, asked);
    const { record, now } = await store.read(asked);
    if (record?.state !== "in_progress") expect.fail(record?.state);
    expect(record.createdAt).toBeGreaterThanOrEqual(before);
    expect(record.createdAt).toBeLessThanOrEqual(now);
    expect(Number.isInteger(record.createdAt)).toBe(true);
    expect(record.leaseUntil - record.createdAt).toBe(12_345);
    expect(record.expiresAt - record.createdAt).toBe(86_400_001);
    await store.close();
  });

  it("keeps a retention that never ends until the last date there is", async () => {
    const store = sqliteStore(place.path);
    const lastDate = 8_640_000_000_000_000;
    const asked = request({ retentionMs: Number.POSITIVE_INFINITY });
    const held = await lease(store, asked);
    const forever: Settlement = { ...complete(), retentionMs: Number.POSITIVE_INFINITY };
    expect(await store.settle(held, forever)).toEqual({ kind: "settled", expiresAt: lastDate });
    expect(await store.settle(held, forever)).toEqual({ kind: "settled", expiresAt: lastDate });
    expect(await store.reserve(asked)).toMatchObject({ kind: "replay", expiresAt: lastDate });
    expect(await store.reap({ limit: 10, expiry: "delete" })).toEqual({ deleted: 0, expired: 0 });

    const suspended = await lease(store, request());
    const never: Settlement = { ...suspend, reconcileAfterMs: Number.POSITIVE_INFINITY };
    expect((await store.settle(suspended, never)).kind).toBe("settled");
    expect((await store.read(suspended)).record).toMatchObject({ reconcileAfter: lastDate });
    await store.close();
  });

  it("keeps exactly the bytes of a view into a larger buffer", async () => {
    const store = sqliteStore(place.path);
    const asked = request();
    await store.settle(await lease(store, asked), complete(everyByte.subarray(10, 20)));
    const replay = await store.reserve(asked);
    if (replay.kind !== "replay" || replay.response.kind !== "full") expect.fail(replay.kind);
    expect(replay.response.body).toEqual(new Uint8Array([10, 11, 12, 13, 14, 15, 16, 17, 18, 19]));
    await store.close();
  });

  it("keeps a body of many megabytes", async () => {
    const store = sqliteStore(place.path);
    const asked = request();
    const body = new Uint8Array(8 * 1024 * 1024).fill(7);
    body[body.length - 1] = 8;
    await store.settle(await lease(store, asked), complete(body));
    const replay = await store.reserve(asked);
    if (replay.kind !== "replay" || replay.response.kind !== "full") expect.fail(replay.kind);
    expect(Buffer.compare(replay.response.body, body)).toBe(0);
    await store.close();
  });
});

describe("sweeping and reaping", () => {
  it("begins with what is due longest", async () => {
    const clock = manualClock();
    const store = sqliteStore(place.path, { clock: clock.now });
    const late = request({ leaseMs: 2_000 });
    const early = request({ leaseMs: 1_000 });
    for (const asked of [late, early]) await lease(store, asked);
    await clock.advance(5_000);
    expect(await store.sweep({ limit: 1, unclaimed })).toEqual({ unknown: 1, retryable: 0, unclaimed: 0 });
    expect((await store.read(early)).record?.state).toBe("unknown");
    expect((await store.read(late)).record?.state).toBe("in_progress");
    await store.close();
  });

  it("takes a record one step at a time, even where its retention is over as well", async () => {
    const clock = manualClock();
    const store = sqliteStore(place.path, { clock: clock.now });
    const held = await lease(store, request({ leaseMs: 1_000, retentionMs: 1_000, onCrash: "retry" }));
    await store.advance(held, { progress: [{ kind: "atomic", name: "a", result: "1" }], onCrash: "retry" });
    await clock.advance(2_000);
    expect(await store.sweep({ limit: 10, unclaimed })).toEqual({ unknown: 0, retryable: 1, unclaimed: 0 });
    expect(await store.sweep({ limit: 10, unclaimed })).toEqual({ unknown: 1, retryable: 0, unclaimed: 0 });
    await store.close();
  });

  it("takes the word from an owner whose execution was swept, even where both say the same", async () => {
    const clock = manualClock();
    const store = sqliteStore(place.path, { clock: clock.now });
    const unknown = await lease(store, request({ leaseMs: 1_000 }));
    const retryable = await lease(store, request({ leaseMs: 1_000, onCrash: "retry" }));
    await clock.advance(1_000);
    expect(await store.sweep({ limit: 10, unclaimed })).toEqual({ unknown: 1, retryable: 1, unclaimed: 0 });
    expect(await store.settle(unknown, suspend)).toEqual({ kind: "lost" });
    expect(await store.settle(retryable, release)).toEqual({ kind: "lost" });
    await store.close();
  });

  it("removes no more than the limit of settled and soft-expired records together", async () => {
    const clock = manualClock();
    const store = sqliteStore(place.path, { clock: clock.now });
    const settleTwo = async () => {
      for (const asked of [request(), request()]) await store.settle(await lease(store, asked), complete());
      await clock.advance(60_000);
    };
    await settleTwo();
    expect(await store.reap({ limit: 10, expiry: "soft" })).toEqual({ deleted: 0, expired: 2 });
    await settleTwo();
    expect(await store.reap({ limit: 3, expiry: "delete" })).toEqual({ deleted: 3, expired: 0 });
    expect(await store.reap({ limit: 3, expiry: "delete" })).toEqual({ deleted: 1, expired: 0 });
    await store.close();
  });

  it("finds its work by the partial indexes, however many other records there are", async () => {
    const database = new Database(place.path);
    sqliteStore(database);
    for (const [sql, index] of [
      [statements.findDeadExecutions, "latchkey_records_lease"],
      [statements.findUnclaimed, "latchkey_records_unclaimed"],
      [statements.findResumable, "latchkey_records_resume"],
      [statements.findUnknown, "latchkey_records_reconcile"],
      [statements.markExpired, "latchkey_records_expiry"],
      [statements.deleteSettled, "latchkey_records_expiry"],
      [statements.deleteExpired, "latchkey_records_expired"],
    ] as const) {
      const plan = planOf(database, sql);
      expect(plan).toMatch(new RegExp(`SEARCH latchkey_records USING (COVERING )?INDEX ${index} \\(`));
      expect(plan).not.toContain("TEMP B-TREE");
      expect(plan).not.toContain("SCAN");
    }
    database.close();
  });
});

describe("several writes at once", () => {
  it("share one transaction", async () => {
    const database = new Database(place.path);
    const store = sqliteStore(database);
    const exec = vi.spyOn(database, "exec");
    await Promise.all(Array.from({ length: 20 }, () => lease(store, request())));
    expect(exec.mock.calls).toEqual([["BEGIN IMMEDIATE"], ["COMMIT"]]);
    database.close();
  });

  it("fail only where they are at fault", async () => {
    const store = sqliteStore(place.path);
    const leases = await Promise.all([request(), request(), request()].map((asked) => lease(store, asked)));
    const settlements = [complete(), { ...complete(), retentionMs: Number.NaN }, complete()];
    const answers = await Promise.allSettled(
      leases.map((held, index) => store.settle(held, settlements[index] as Settlement)),
    );
    expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    const states = await Promise.all(leases.map(async (held) => (await store.read(held)).record?.state));
    expect(states).toEqual(["completed", "in_progress", "completed"]);
    await store.close();
  });

  it("are written down before the store closes", async () => {
    const store = sqliteStore(place.path);
    const asked = request();
    const reserving = store.reserve(asked);
    await store.close();
    expect((await reserving).kind).toBe("execute");
    const reopened = sqliteStore(place.path);
    expect((await reopened.reserve(asked)).kind).toBe("inFlight");
    await reopened.close();
  });
});
