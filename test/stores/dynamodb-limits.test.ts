import { describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { Lease, ReserveRequest, Settlement, Store } from "../../src/core/store.ts";
import {
  type DynamoDbStoreOptions,
  type DynamoWrites,
  dynamodbStore,
} from "../../src/stores/dynamodb/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { again, request } from "../support/reserve-request.ts";
import { useDynamoDb } from "./dynamodb-support.ts";

const place = useDynamoDb();
const clock = manualClock({ startMs: Date.now() });

function open(options: Partial<DynamoDbStoreOptions> = {}): Store<DynamoWrites> {
  return dynamodbStore(place.client, { table: place.table, clock: clock.now, clockSkewMs: 0, ...options });
}

async function lease(store: Store<DynamoWrites>, asked: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(asked);
  if (reservation.kind !== "execute") expect.fail(`expected to execute, got ${reservation.kind}`);
  return reservation.lease;
}

function complete(size: number): Extract<Settlement, { kind: "complete" }> {
  const response = { kind: "full", status: 201, headers: [], body: new Uint8Array(size).fill(65) } as const;
  return { kind: "complete", response, retentionMs: 60_000 };
}
const release = { kind: "release", reason: "the handler threw", retentionMs: 60_000 } as const;
const suspend = { kind: "suspend", reason: "no answer came", reconcileAfterMs: 0 } as const;
const sweepAll = { limit: 1_000, unclaimed: complete(1).response };
const backoff = { baseMs: 60_000, capMs: 60_000 };

function keeping(bodyBytes: number, overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  const kept = {
    method: "POST",
    target: "/",
    tenant: "t",
    headers: [],
    body: new Uint8Array(bodyBytes),
  };
  return request({ leaseMs: 1_000, onCrash: "resume", request: kept, ...overrides });
}

function progressOf(bytes: number) {
  return [{ kind: "atomic", name: "large", result: JSON.stringify("x".repeat(bytes)) }] as const;
}

/** The largest size that is taken, found by halving. What else a record says is a few bytes longer for some keys. */
async function largest(isTaken: (size: number) => Promise<boolean>): Promise<number> {
  let taken = 300_000;
  let refused = 410_000;
  while (refused - taken > 1) {
    const size = (taken + refused) >> 1;
    if (await isTaken(size)) taken = size;
    else refused = size;
  }
  return taken - 4;
}

/** False only where the store says that there is no room. */
async function isRoom(doing: Promise<unknown>): Promise<boolean> {
  try {
    await doing;
    return true;
  } catch (error) {
    expect(error).toBeInstanceOf(StoreError);
    expect(String(error)).toMatch(/requestBytesMax/);
    return false;
  }
}

describe("a record that is as large as it may be", () => {
  // Every key has as many characters as those that the size was found with.
  let sequence = 100_000;
  const name = () => ({ key: `largest-${sequence++}`, owner: `owner-${sequence}` });

  it("because of its request can leave every state that it gets into", async () => {
    const store = open();
    const size = await largest((bytes) => isRoom(store.reserve(keeping(bytes, name()))));
    await clock.advance(2_000);
    await store.sweep(sweepAll);

    for (const settlement of [release, { ...release, resumeAfterMs: 0 }, suspend, complete(1)]) {
      const held = await lease(store, keeping(size, name()));
      expect((await store.settle(held, settlement)).kind, settlement.kind).toBe("settled");
    }

    const crashed = keeping(size, name());
    await lease(store, crashed);
    await clock.advance(2_000);
    await store.sweep(sweepAll);
    expect((await store.read(crashed)).record?.state).toBe("failed_retryable");
    const { claimed } = await store.claimResumable({ limit: 1_000, attemptsMax: 9, backoff });
    expect(claimed.map(({ record }) => record.key)).toContain(crashed.key);
    const next = await lease(store, again(crashed, { owner: "a worker's own name" }));
    expect((await store.settle(next, complete(1))).kind).toBe("settled");
  });

  it("because of a request that was accepted can be executed", async () => {
    const store = open();
    const accepting = (bytes: number) => keeping(bytes, { ...name(), mode: "accept" });
    const size = await largest((bytes) => isRoom(store.reserve(accepting(bytes))));
    const accepted = accepting(size);
    expect((await store.reserve(accepted)).kind).toBe("pending");
    const worker = await lease(store, again(accepted, { mode: "claim" }));
    expect((await store.settle(worker, suspend)).kind).toBe("settled");
  });

  it("because of its progress can be settled, and swept when its owner dies", async () => {
    const store = open();
    const probe = await lease(store, request(name()));
    const size = await largest((bytes) =>
      isRoom(store.advance(probe, { progress: progressOf(bytes), onCrash: "reconcile" })),
    );
    // What was refused has cost nothing.
    expect(await store.renew([probe], 1_000)).toEqual(["held"]);
    const released = await lease(store, request(name()));
    await store.advance(released, { progress: progressOf(size), onCrash: "resume" });
    expect((await store.settle(released, release)).kind).toBe("settled");

    const crashed = request({ ...name(), leaseMs: 1_000 });
    await store.advance(await lease(store, crashed), { progress: progressOf(size), onCrash: "reconcile" });
    await clock.advance(2_000);
    await store.sweep(sweepAll);
    expect((await store.read(crashed)).record?.state).toBe("unknown");
  });

  it("because of both is refused the last of it", async () => {
    const store = open();
    const asked = keeping(300_000, { ...name(), leaseMs: 60_000 });
    const held = await lease(store, asked);
    const step = { progress: progressOf(101_000), onCrash: "resume" } as const;
    await expect(store.advance(held, step)).rejects.toThrow(/requestBytesMax/);
    const phase = store.transact?.(
      held,
      () => undefined,
      () => ({ ...step, messages: [] }),
    );
    await expect(phase).rejects.toThrow(/return less from each phase/);
    expect(await store.advance({ ...held, owner: "thief" }, step)).toBe("lost");
    expect(await store.advance(held, { ...step, progress: progressOf(90_000) })).toBe("held");
    expect((await store.settle(held, release)).kind).toBe("settled");
  });
});

describe("an answer beside so much progress that there is no room for it", () => {
  const progress = progressOf(380_000);
  const step = { progress, onCrash: "reconcile" } as const;

  async function expectReplayed(store: Store<DynamoWrites>, asked: ReserveRequest): Promise<void> {
    const answer = await store.reserve(again(asked));
    if (answer.kind !== "replay" || answer.response.kind !== "full") expect.fail(answer.kind);
    expect(Buffer.from(answer.response.body).equals(Buffer.alloc(60_000, 65))).toBe(true);
  }

  it("is kept in parts, whoever gives it", async () => {
    const store = open();
    const settled = request();
    const held = await lease(store, settled);
    await store.advance(held, step);
    expect((await store.settle(held, complete(60_000))).kind).toBe("settled");
    await expectReplayed(store, settled);

    const resolved = request();
    const suspended = await lease(store, resolved);
    await store.advance(suspended, step);
    await store.settle(suspended, suspend);
    const answer = await store.resolve(resolved, suspended.fence, complete(60_000), "Ada");
    expect(answer.kind).toBe("resolved");
    await expectReplayed(store, resolved);

    const committed = request();
    const phase = await store.transact?.(
      await lease(store, committed),
      () => undefined,
      () => ({ ...step, response: complete(60_000), messages: [] }),
    );
    expect(phase?.kind).toBe("committed");
    await expectReplayed(store, committed);
  });

  it("is refused where bodies are not to be split, and a smaller one is still taken", async () => {
    const store = open({ largeBodies: "refuse" });
    const held = await lease(store, request());
    await store.advance(held, step);
    await expect(store.settle(held, complete(60_000))).rejects.toThrow(/responseBytesMax/);
    expect((await store.settle(held, complete(100))).kind).toBe("settled");
  });
});
