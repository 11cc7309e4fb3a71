import { describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { ReserveRequest, Store } from "../../src/core/store.ts";
import { nameOf } from "../../src/stores/redis/names.ts";
import type { RedisStoreSeams } from "../../src/stores/redis/redis-store.ts";
import {
  complete,
  created,
  kept,
  lease,
  release,
  someProgress,
  suspend,
} from "../../src/testing/contract/requests.ts";
import { again, request } from "../support/reserve-request.ts";
import { callsOf, redisBench } from "./redis-support.ts";

const bench = redisBench("damage");

/** A store on keys of its own. */
const open = (seams: RedisStoreSeams = {}) => bench.open({}, seams);

async function execute(store: Store, response = created): Promise<ReserveRequest> {
  const asked = request();
  await store.settle(await lease(store, asked), complete(response));
  return asked;
}

const backoff = { baseMs: 600_000, capMs: 600_000 };

describe("an index that is wrong", () => {
  it("is put right, and does not keep the sweeper from what stands behind", async () => {
    let now = Date.now();
    const store = open({ clock: () => now });
    const settled = await Promise.all(Array.from({ length: 250 }, () => execute(store)));
    for (const [nth, asked] of settled.entries())
      await bench.client.zadd(`${bench.tag}@sweep`, 1 + nth, nameOf(asked));
    const [dead, alive] = [request({ leaseMs: 50 }), request()];
    await store.reserve(dead);
    await store.reserve(alive);
    await bench.client.zadd(`${bench.tag}@sweep`, 1, nameOf(alive));
    now += 100;
    expect(await store.sweep({ limit: 10, unclaimed: created })).toMatchObject({ unknown: 1 });
    expect((await store.read(dead)).record?.state).toBe("unknown");
    expect(await bench.client.zcard(`${bench.tag}@sweep`)).toBe(1);
    expect(Number(await bench.client.zscore(`${bench.tag}@sweep`, nameOf(alive)))).toBe(
      now - 100 + alive.leaseMs,
    );
  });

  it("does not change a lease: what is in progress is not claimed as unknown, or to be resumed", async () => {
    let now = Date.now();
    const store = open({ clock: () => now });
    const asked = request();
    await store.settle(await lease(store, asked), { ...suspend, reconcileAfterMs: 0 });
    await bench.client.del(bench.keyOf(asked));
    const held = await lease(store, again(asked));
    await bench.client.zadd(`${bench.tag}@resume`, 1, nameOf(asked));
    await bench.client.set(`${bench.tag}q${nameOf(asked)}`, "");
    const { record } = await store.read(asked);
    now += 1;
    expect(await store.claimUnknown({ limit: 10, backoff })).toEqual([]);
    expect(await store.claimResumable({ limit: 10, attemptsMax: 5, backoff })).toEqual({
      claimed: [],
      gaveUp: 0,
    });
    expect((await store.read(asked)).record).toEqual(record);
    expect(await bench.client.exists(`${bench.tag}@unknown`, `${bench.tag}@resume`)).toBe(0);
    expect((await store.settle(held, complete())).kind).toBe("settled");
  });

  it("records of a newer version do not keep workers from what stands behind", async () => {
    let now = Date.now();
    const store = open({ clock: () => now });
    for (const isNewer of [true, true, true, false]) {
      const asked = request();
      await store.settle(await lease(store, asked), { ...suspend, reconcileAfterMs: 0 });
      if (isNewer) await bench.client.setrange(bench.keyOf(asked), 0, "\t");
      now += 1;
    }
    expect(await store.claimUnknown({ limit: 2, backoff })).toHaveLength(1);
    expect(await bench.client.zcard(`${bench.tag}@unknown`)).toBe(4);
  });
});

describe("a record that cannot be decoded", () => {
  it("fails whoever asks for it, and spoils nothing for those who came with it", async () => {
    const store = open({ aloneMax: 0 });
    const [newer, good] = [await execute(store), await execute(store)];
    const halfDone = request({ onCrash: "retry" });
    const held = await lease(store, halfDone);
    await store.advance(held, { progress: someProgress, onCrash: "resume" });
    await store.settle(held, release);
    await damage(newer, '{"v":1', '{"v":9');
    await damage(halfDone, "[", "!");
    const fresh = [request(), request()];
    const answers = await Promise.allSettled(
      [again(newer), again(halfDone), again(good), ...fresh].map((asked) => store.reserve(asked)),
    );
    expect(answers.slice(0, 2)).toEqual([
      { status: "rejected", reason: expect.any(StoreError) },
      { status: "rejected", reason: expect.any(StoreError) },
    ]);
    expect(answers.slice(2)).toMatchObject(
      ["replay", "execute", "execute"].map((kind) => ({ status: "fulfilled", value: { kind } })),
    );
  });

  it("does not keep what was claimed with it from a worker", async () => {
    let now = Date.now();
    const store = open({ clock: () => now });
    const [bad, good] = [request({ request: kept }), request({ request: kept })];
    for (const asked of [bad, good]) {
      const held = await lease(store, asked);
      await store.advance(held, { progress: someProgress, onCrash: "resume" });
      await store.settle(held, { ...release, resumeAfterMs: 0 });
    }
    const unknown = [request(), request()] as const;
    for (const asked of unknown) {
      const held = await lease(store, asked);
      await store.advance(held, { progress: someProgress, onCrash: "reconcile" });
      await store.settle(held, { ...suspend, reconcileAfterMs: 0 });
    }
    await damage(bad, "[", "!");
    await damage(unknown[0], "[", "!");
    now += 1;
    const resumable = await store.claimResumable({ limit: 10, attemptsMax: 5, backoff });
    expect(resumable.claimed.map(({ record }) => record.key)).toEqual([good.key]);
    const asked = await store.claimUnknown({ limit: 10, backoff });
    expect(asked.map(({ key }) => key)).toEqual([unknown[1].key]);
    // Once it is alone, somebody has to be told.
    await store.settle(await lease(store, again(good)), complete());
    await store.resolve(unknown[1], 1, complete(), "Ada");
    now += backoff.capMs;
    await expect(store.claimResumable({ limit: 10, attemptsMax: 5, backoff })).rejects.toThrow();
    await expect(store.claimUnknown({ limit: 10, backoff })).rejects.toThrow();
  });
});

describe("a batch", () => {
  it("of retries of large answers is answered in many short scripts, and everybody is answered", async () => {
    const store = open({ aloneMax: 0 });
    const large = { ...created, body: new Uint8Array(100 * 1024).fill(7) };
    const settled = await Promise.all(Array.from({ length: 20 }, () => execute(store, large)));
    const asked = [...settled.map((each) => again(each)), request(), request()];
    await bench.client.config("RESETSTAT");
    const answers = await Promise.all(asked.map((each) => store.reserve(each)));
    for (const answer of answers.slice(0, 20)) {
      if (answer.kind !== "replay" || answer.response.kind !== "full") throw new Error("expected the answer");
      expect(Buffer.compare(answer.response.body, large.body)).toBe(0);
    }
    expect(answers.slice(20)).toMatchObject([{ kind: "execute" }, { kind: "execute" }]);
    // Two answers of this size fit into one script.
    expect(await callsOf(bench.client, "evalsha")).toBeGreaterThan(10);
  });

  it("that a server without memory refuses still answers the retries in it", async () => {
    const store = open({ aloneMax: 0 });
    const settled = await Promise.all(Array.from({ length: 10 }, () => execute(store)));
    await bench.client.config("SET", "maxmemory", "1mb");
    try {
      const answers = await Promise.allSettled(
        [...settled.map((each) => again(each)), request()].map((each) => store.reserve(each)),
      );
      expect(answers.map(({ status }) => status)).toEqual([...settled.map(() => "fulfilled"), "rejected"]);
    } finally {
      await bench.client.config("SET", "maxmemory", "0");
    }
  });
});

/** The times in its head may happen to look like any text. */
const headBytes = 54;

/** Puts other bytes into a record. */
async function damage(asked: ReserveRequest, from: string, to: string): Promise<void> {
  const value = await bench.client.getBuffer(bench.keyOf(asked));
  const at = value?.indexOf(from, headBytes) ?? -1;
  if (at < 0) throw new Error(`there is no ${from} in the record`);
  await bench.client.setrange(bench.keyOf(asked), at, to);
}
