import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ConfigError, createLatchkey, type Latchkey, type LatchkeyEvent } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { completer, reaper, startWorkers, sweeper, toHandlers } from "../../src/workers/workers.ts";
import { type Business, businesses } from "../support/business.ts";

const stored = {
  method: "POST",
  target: "/rides?x=1",
  tenant: "acme",
  headers: [["content-type", "application/json"]],
  body: Buffer.from('{"ride":1}'),
} as const;
const request = {
  scope: "acme",
  key: "key-1",
  fingerprint: "v1:a",
  leaseMs: 60_000,
  retentionMs: 60_000,
  onCrash: "resume",
  reconcileAfterMs: 0,
  mode: "execute",
  route: "rides",
  request: stored,
  owner: "dead",
} as const;

describe.each(businesses)("the workers on %s", (_name, open) => {
  let business: Business;
  let latchkey: Latchkey;
  let events: LatchkeyEvent[];

  beforeEach(async () => {
    business = await open();
    events = [];
    latchkey = createLatchkey({
      store: business.store,
      tenant: "single",
      onEvent: (event) => events.push(event),
    });
  });
  afterEach(async () => {
    await latchkey.close();
    await business.close();
  });

  const stateOf = async (key = "key-1") => (await business.store.read({ scope: "acme", key })).record?.state;

  it("the sweeper ends what dead processes left, and answers 408 for what nobody executed", async () => {
    await business.store.reserve({ ...request, leaseMs: 0 });
    await business.store.reserve({ ...request, key: "key-2", leaseMs: 0, onCrash: "reconcile" });
    await business.store.reserve({ ...request, key: "key-3", mode: "accept", retentionMs: 0 });
    await business.store.reserve({ ...request, key: "key-4" });
    expect(await sweeper(latchkey).runOnce()).toEqual({ unknown: 1, retryable: 1, unclaimed: 1 });
    expect(await Promise.all(["key-1", "key-2", "key-3", "key-4"].map(stateOf))).toEqual([
      "failed_retryable",
      "unknown",
      "completed",
      "in_progress",
    ]);
    const { record } = await business.store.read({ scope: "acme", key: "key-3" });
    expect(record).toMatchObject({ response: { status: 408 } });
    expect(events).toContainEqual({
      type: "worker",
      worker: "sweeper",
      counts: { unknown: 1, retryable: 1, unclaimed: 1 },
    });
    expect(await sweeper(latchkey).runOnce()).toEqual({ unknown: 0, retryable: 0, unclaimed: 0 });
  });

  it("what was accepted after a half-done attempt, and not executed in time, is not said to be undone", async () => {
    const reservation = await business.store.reserve(request);
    if (reservation.kind !== "execute") throw new Error(reservation.kind);
    const { lease } = reservation;
    const progress = [{ kind: "atomic", name: "ride", result: "1" }] as const;
    await business.store.advance(lease, { progress, onCrash: "resume" });
    await business.store.settle(lease, {
      kind: "release",
      reason: "failed",
      retentionMs: 60_000,
      resumeAfterMs: 0,
    });
    await business.store.reserve({ ...request, mode: "accept", retentionMs: 0 });
    expect(await sweeper(latchkey).runOnce()).toEqual({ unknown: 0, retryable: 0, unclaimed: 1 });
    expect((await business.store.read(request)).record).toMatchObject({ state: "unknown", progress });
    expect((await latchkey.audit(request))[0]).toMatchObject({
      from: "pending",
      to: "unknown",
      by: "sweeper",
    });
  });

  it("the reaper removes what is past its retention, in batches, and nothing that is not settled", async () => {
    const complete = async (key: string, retentionMs: number) => {
      const reservation = await business.store.reserve({ ...request, key });
      if (reservation.kind !== "execute") throw new Error(reservation.kind);
      await business.store.settle(reservation.lease, {
        kind: "complete",
        retentionMs,
        response: { kind: "full", status: 201, headers: [], body: Buffer.from("x") },
      });
    };
    for (let index = 0; index < 5; index += 1) await complete(`old-${index}`, 0);
    await complete("young", 60_000);
    await business.store.reserve({ ...request, retentionMs: 0, leaseMs: 0 });
    await business.store.reserve({ ...request, key: "accepted", mode: "accept", retentionMs: 0 });
    const worker = reaper(latchkey, { batch: 2 });
    const rounds = [
      await worker.runOnce(),
      await worker.runOnce(),
      await worker.runOnce(),
      await worker.runOnce(),
    ];
    expect(rounds.map(({ deleted }) => deleted)).toEqual([2, 2, 1, 0]);
    expect(await Promise.all(["young", "key-1", "accepted", "old-0"].map(stateOf))).toEqual([
      "completed",
      "in_progress",
      "pending",
      undefined,
    ]);
  });

  it("the completer sends what was kept, as it was, and backs off", async () => {
    await business.store.reserve({ ...request, mode: "accept" });
    const sent: unknown[] = [];
    const worker = completer(latchkey, {
      dispatch: async (kept) => {
        sent.push({ ...kept, body: Buffer.from(kept.body).toString() });
      },
    });
    expect(await worker.runOnce()).toEqual({ dispatched: 1, failed: 0, gaveUp: 0 });
    expect(await worker.runOnce()).toEqual({ dispatched: 0, failed: 0, gaveUp: 0 });
    expect(sent).toEqual([
      {
        ...stored,
        scope: "acme",
        key: "key-1",
        attempts: 0,
        headers: [...stored.headers, ["latchkey-claim", "true"]],
        body: '{"ride":1}',
      },
    ]);
  });

  it("the completer gives up in the end: what may be half done goes to reconciliation", async () => {
    await business.store.reserve({ ...request, leaseMs: 0 });
    await sweeper(latchkey).runOnce();
    const worker = completer(latchkey, { dispatch: async () => {}, attemptsMax: 1 });
    expect(await worker.runOnce()).toEqual({ dispatched: 0, failed: 0, gaveUp: 1 });
    expect(await stateOf()).toBe("unknown");
    expect((await latchkey.audit({ scope: "acme", key: "key-1" }))[0]).toMatchObject({
      from: "failed_retryable",
      to: "unknown",
      by: "completer",
    });
  });

  it("a service that cannot be reached costs an attempt of the worker, not of the operation", async () => {
    await business.store.reserve({ ...request, mode: "accept" });
    const worker = completer(latchkey, { dispatch: () => Promise.reject(new Error("refused")) });
    expect(await worker.runOnce()).toEqual({ dispatched: 0, failed: 1, gaveUp: 0 });
    expect(await stateOf()).toBe("pending");
    expect(events).toContainEqual(expect.objectContaining({ type: "worker_error", worker: "completer" }));
  });

  it("a dispatch that takes too long is not waited for", async () => {
    await business.store.reserve({ ...request, mode: "accept" });
    const worker = completer(latchkey, {
      dispatchTimeoutMs: 20,
      dispatch: (_kept, { signal }) =>
        new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("too long")))),
    });
    expect(await worker.runOnce()).toMatchObject({ failed: 1 });
  });

  it("all of them run side by side, do their work, and stop", async () => {
    const delivered: unknown[] = [];
    const sent: string[] = [];
    const workers = startWorkers(latchkey, {
      sweeper: { intervalMs: 10 },
      reaper: { intervalMs: 10 },
      reconciler: { intervalMs: 10, hooks: { rides: () => ({ kind: "not-executed" }) } },
      relay: {
        intervalMs: 10,
        deliver: toHandlers({
          receipt: async ({ payload }) => {
            delivered.push(payload);
          },
        }),
      },
      completer: {
        intervalMs: 10,
        dispatch: async ({ key }) => {
          sent.push(key);
        },
      },
    });
    expect(workers.names).toEqual(["sweeper", "reaper", "reconciler", "relay", "completer"]);
    await business.store.reserve({ ...request, key: "crashed", leaseMs: 0, onCrash: "reconcile" });
    await latchkey.run({ tenant: "acme", key: "message", input: 1 }, (op) =>
      op.atomic("enqueued", async (tx) => {
        await op.enqueue(tx, "receipt", { ride: 1 });
      }),
    );
    const giveUpAt = Date.now() + 10_000;
    while (delivered.length === 0 || sent.length === 0) {
      expect(Date.now(), "the workers did nothing").toBeLessThan(giveUpAt);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await workers.stop();
    expect(delivered).toEqual([{ ride: 1 }]);
    expect(sent).toContain("crashed");
    expect(await latchkey.outboxCounts()).toEqual({ waiting: 0, dead: 0, oldestDueMs: 0 });
  });
});

describe("workers on a store without transactions", () => {
  it("have no outbox, and say so when they are made", async () => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    expect(() => startWorkers(latchkey, { relay: { deliver: async () => {} } })).toThrow(ConfigError);
    expect(() => latchkey.deadLetters()).toThrow(
      /use sqliteStore, postgresStore, mysqlStore or dynamodbStore/,
    );
    expect(() => completer(latchkey, {} as never)).toThrow(/pass dispatch/);
    const workers = startWorkers(latchkey);
    expect(workers.names).toEqual(["sweeper", "reaper", "reconciler"]);
    await workers.stop();
    await latchkey.close();
  });
});
