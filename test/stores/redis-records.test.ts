import { createClient } from "redis";
import { describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { ReserveRequest, Settlement } from "../../src/core/store.ts";
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
import { eventually } from "./postgres-support.ts";
import { redisBench } from "./redis-support.ts";

const bench = redisBench("records");
const { open, keyOf } = bench;

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

describe("how long records stay", () => {
  it("what is settled goes by itself an hour past its retention", async () => {
    const store = open();
    for (const settlement of [complete(created, dayMs), { ...release, retentionMs: dayMs }]) {
      const asked = request();
      await store.settle(await lease(store, asked), settlement);
      const left = await bench.client.pttl(keyOf(asked));
      expect(left).toBeGreaterThan(dayMs + hourMs - 10_000);
      expect(left).toBeLessThanOrEqual(dayMs + hourMs);
    }
  });

  it("what is not settled never goes by itself, whatever it was before", async () => {
    const store = open();
    const settled: Settlement[] = [complete(created, 1), { ...release, retentionMs: dayMs }];
    const unsettled: Record<string, (asked: ReserveRequest) => Promise<unknown>> = {
      in_progress: (asked) => lease(store, asked),
      pending: (asked) => store.reserve({ ...asked, mode: "accept", request: kept }),
      unknown: async (asked) => store.settle(await lease(store, asked), suspend),
      "failed_retryable, for a worker": async (asked) =>
        store.settle(await lease(store, asked), { ...release, resumeAfterMs: 0 }),
      "failed_retryable, half done": async (asked) => {
        const held = await lease(store, asked);
        await store.advance(held, { progress: someProgress, onCrash: "resume" });
        await store.settle(held, release);
      },
    };
    for (const [name, make] of Object.entries(unsettled)) {
      for (const first of [undefined, ...settled]) {
        const asked = request({ request: kept });
        if (first !== undefined) {
          await store.settle(await lease(store, asked), first);
          expect(await bench.client.pttl(keyOf(asked)), name).toBeGreaterThan(0);
          if (first.kind === "complete") await new Promise((resolve) => setTimeout(resolve, 5));
        }
        await make(again(asked));
        expect(await bench.client.pttl(keyOf(asked)), name).toBe(-1);
        expect(await bench.client.pttl(keyOf(asked).replace("}", "}q")), `the request of ${name}`).toBe(-1);
      }
    }
  });

  it("nothing else stays behind: after its records a bucket goes as a whole, but for its marker and its trail", async () => {
    const store = open();
    for (const settlement of [complete(created, 1), { ...release, retentionMs: 1 }]) {
      await store.settle(await lease(store, request({ request: kept })), settlement);
    }
    for (const key of await bench.client.keys(`*${bench.prefix}:*`)) {
      if (/:buckets|@audit|@windows/.test(key)) continue;
      expect(await bench.client.pttl(key), key).toBeGreaterThan(0);
    }
    expect(await bench.client.zcard(`{${bench.prefix}:0}@sweep`)).toBe(0);
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(await store.reap({ limit: 10, expiry: "delete" })).toEqual({ deleted: 2, expired: 0 });
    const left = await bench.client.keys(`*${bench.prefix}:*`);
    expect(left.sort()).toEqual([`${bench.prefix}:buckets`, `{${bench.prefix}:0}@audit`].sort());
  });

  it("a fence goes on after its record was deleted, and nothing else is remembered", async () => {
    const store = open();
    const asked = request();
    await store.settle(await lease(store, asked), release);
    await store.settle(await lease(store, again(asked)), complete(created, 1));
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(await store.reap({ limit: 10, expiry: "delete" })).toEqual({ deleted: 1, expired: 0 });
    expect((await store.read(asked)).record).toBeUndefined();
    expect((await bench.client.getBuffer(keyOf(asked)))?.byteLength).toBeLessThan(60);
    expect(await bench.client.pttl(keyOf(asked))).toBeGreaterThan(29 * dayMs);
    expect(await store.bust(asked, { by: "Ada", reason: "none" })).toEqual({
      kind: "nothing",
      state: "absent",
    });
    expect(await store.reserve(again(asked, { mode: "claim" }))).toEqual({ kind: "absent" });
    const next = await store.reserve(again(asked, { fingerprint: "v1:other" }));
    expect(next).toMatchObject({ kind: "execute", after: "absent", lease: { fence: 3 } });
  });

  it("a record that was lost is taken out of what workers look through", async () => {
    const store = open();
    const asked = request({ leaseMs: 1, onCrash: "retry", request: kept });
    await lease(store, asked);
    await bench.client.del(keyOf(asked));
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(await bench.client.zcard(`{${bench.prefix}:0}@sweep`)).toBe(1);
    const unclaimed = created;
    expect(await store.sweep({ limit: 10, unclaimed })).toEqual({ unknown: 0, retryable: 0, unclaimed: 0 });
    expect(await bench.client.zcard(`{${bench.prefix}:0}@sweep`)).toBe(0);
  });
});

describe("a record that a failover has lost", () => {
  it("is executed again, and whoever executed it before has nothing to say any more", async () => {
    const store = open();
    const asked = request();
    const before = await lease(store, asked);
    await bench.client.del(keyOf(asked));
    const second = await lease(store, again(asked));
    expect(second.fence).toBe(before.fence);
    expect(await store.renew([before], 60_000)).toEqual(["lost"]);
    expect(await store.advance(before, { progress: [], onCrash: "retry" })).toBe("lost");
    expect(await store.settle(before, complete())).toEqual({ kind: "lost" });
    expect((await store.settle(second, complete())).kind).toBe("settled");
  });

  it("cannot be completed by whoever executed it, if nobody has asked again", async () => {
    const store = open();
    const asked = request();
    const held = await lease(store, asked);
    await bench.client.del(keyOf(asked));
    expect(await store.settle(held, complete())).toEqual({ kind: "lost" });
    expect((await store.read(asked)).record).toBeUndefined();
  });
});

describe("requests that come twice, late or badly", () => {
  it("a reservation that was sent twice has what it was granted the first time", async () => {
    const store = open();
    const asked = request({ onCrash: "retry" });
    const first = await store.reserve(asked);
    expect(await store.reserve(asked)).toEqual(first);
    await store.settle(await lease(store, asked), release);
    const second = again(asked);
    const granted = await store.reserve(second);
    expect(granted).toMatchObject({ kind: "execute", after: "failed_retryable", lease: { fence: 2 } });
    expect(await store.reserve(second)).toEqual(granted);
    expect((await store.reserve(again(asked))).kind).toBe("inFlight");
  });

  it("what Redis comes to when everybody has given up is granted to nobody", async () => {
    let now = Date.now();
    let stepMs = 0;
    const clock = () => {
      now += stepMs;
      return now;
    };
    const store = open({}, { clock });
    await lease(store, request());
    // By the clock of the server each request was under way for a quarter of a minute.
    stepMs = 15_000;
    const late = request();
    await expect(store.reserve(late)).rejects.toThrow(/nobody waited/);
    await expect(store.reserve(late)).rejects.toThrow(StoreError);
    stepMs = 0;
    expect((await store.read(late)).record).toBeUndefined();
    await lease(store, late);
  });

  it("a record of a newer version is refused, and spoils nothing for those who came with it", async () => {
    const store = open({}, { aloneMax: 0 });
    const [newer, other] = [request(), request()];
    const held = await lease(store, newer);
    await bench.client.setrange(keyOf(newer), 0, "\t");
    const answers = await Promise.allSettled([
      store.reserve(again(newer)),
      store.reserve(other),
      store.settle(held, complete()),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(["rejected", "fulfilled", "rejected"]);
    await expect(store.read(newer)).rejects.toThrow(/upgrade this process/);
    await expect(store.bust(newer, { by: "Ada", reason: "none" })).rejects.toThrow(/upgrade this process/);
    expect((await bench.client.getBuffer(keyOf(newer)))?.[0]).toBe(9);
  });

  it("a route that is too long is refused, and spoils nothing for those who came with it", async () => {
    const store = open({}, { aloneMax: 0 });
    const answers = await Promise.allSettled([
      store.reserve(request({ route: "r".repeat(100_000) })),
      store.reserve(request()),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
  });

  it("a duration that is not a number is refused, and nothing is written", async () => {
    const store = open();
    const asked = request({ leaseMs: Number.NaN });
    await expect(store.reserve(asked)).rejects.toThrow(StoreError);
    expect((await store.read(asked)).record).toBeUndefined();
  });

  it("a page of the audit trail that begins nowhere is refused with a sentence", async () => {
    const store = open();
    for (const before of ["abc", "", "1-2", "1-2-x"]) {
      await expect(store.audit({ limit: 1, before })).rejects.toThrow(/is no entry of this audit trail/);
    }
    expect(await store.audit({ limit: 1, before: "1-2-0" })).toEqual([]);
  });

  it("keys and scopes are told apart whatever characters they hold", async () => {
    const store = open({ buckets: 3 });
    const texts = [
      "a",
      "a\0",
      "ä",
      "a\u0308",
      "\ud800",
      "\udfff",
      "\ufffd",
      "🙂",
      "{x}",
      "}",
      "*",
      "q1:a",
      "a\r\nb",
      " ",
    ];
    const seen = new Set<string>();
    for (const scope of texts) {
      for (const key of texts) {
        const asked = request({ scope, key, leaseMs: 1 });
        expect((await store.reserve(asked)).kind, JSON.stringify([scope, key])).toBe("execute");
        seen.add(JSON.stringify([scope, key]));
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
    await store.sweep({ limit: 1_000, unclaimed: created });
    const found = await store.claimUnknown({ limit: 1_000, backoff: { baseMs: 1_000, capMs: 1_000 } });
    expect(new Set(found.map(({ scope, key }) => JSON.stringify([scope, key])))).toEqual(seen);
  });
});

describe("scripts", () => {
  for (const name of ["ioredis", "redis"] as const) {
    it(`are sent again when the server has forgotten them, with ${name}`, async () => {
      const client = name === "ioredis" ? bench.client : createClient({ url: bench.server.url });
      const store = open({ prefix: `flush-${name}` }, {}, client);
      let flushes = 0;
      const flushing = setInterval(() => void bench.client.script("FLUSH").then(() => flushes++), 5);
      try {
        await Promise.all(
          Array.from({ length: 32 }, async () => {
            for (let round = 0; round < 30 || flushes < 5; round += 1) {
              const asked = request();
              await store.settle(await lease(store, asked), complete());
              expect((await store.reserve(again(asked))).kind).toBe("replay");
            }
          }),
        );
      } finally {
        clearInterval(flushing);
      }
      expect(flushes).toBeGreaterThanOrEqual(5);
    });
  }
});

describe("wake-ups", () => {
  it("are published for records that somebody waits for, and for no others", async () => {
    const store = open();
    const heard: string[] = [];
    const listener = bench.client.duplicate();
    try {
      await listener.subscribe(`{${bench.prefix}:0}!`);
      listener.on("message", (_channel, message: string) => heard.push(message));
      const [watched, other] = [request(), request()];
      const held = await lease(store, watched);
      let wakes = 0;
      const unwatch = await store.watch(watched, () => {
        wakes += 1;
      });
      for (const settlement of [release, complete()]) {
        await store.settle(await lease(store, again(other)), settlement);
      }
      await store.renew([held], 60_000);
      await store.settle(held, complete());
      await eventually(() => wakes === 1);
      unwatch();
      expect(heard).toHaveLength(1);
      expect(heard[0]).not.toContain(watched.key);
    } finally {
      listener.disconnect();
    }
  });

  it("come at once, and not with the next poll", async () => {
    const store = open();
    const delays: number[] = [];
    for (let round = 0; round < 30; round += 1) {
      const held = await lease(store, request());
      let settledAt = 0;
      const woken = new Promise<void>((resolve) => {
        void store
          .watch(held, () => {
            delays.push(performance.now() - settledAt);
            resolve();
          })
          .then(async () => {
            settledAt = performance.now();
            await store.settle(held, complete());
          });
      });
      await woken;
    }
    // About a round trip; the limit leaves room for a machine that is busy with other tests.
    expect(delays.sort((a, b) => a - b)[15]).toBeLessThan(50);
  });
});
