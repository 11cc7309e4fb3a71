import { describe, expect, it } from "vitest";
import type { BustListener, ForgetCounts, ReserveRequest, Store } from "../../src/core/store.ts";
import { nameOf } from "../../src/stores/redis/names.ts";
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
import { callsOf, redisBench } from "./redis-support.ts";

const bench = redisBench("forgetting");
const tenantScope = "the-tenant";
const hourMs = 3_600_000;

async function execute(store: Store, overrides: Partial<ReserveRequest> = {}): Promise<ReserveRequest> {
  const asked = request({ scope: tenantScope, ...overrides });
  await store.settle(await lease(store, asked), complete(created, hourMs));
  return asked;
}

/** Executed twice, so that its fence is 2. */
async function executeAgain(store: Store, overrides: Partial<ReserveRequest> = {}): Promise<ReserveRequest> {
  const asked = request({ scope: tenantScope, ...overrides });
  await store.settle(await lease(store, asked), { ...release, retentionMs: hourMs });
  await store.settle(await lease(store, again(asked)), complete(created, 2 * hourMs));
  return asked;
}

async function forget(store: Store, limit = 100, scope = tenantScope): Promise<ForgetCounts> {
  for (;;) {
    const counts = await store.forgetTenant({ tenantScope: scope, limit });
    if (counts.removed === 0) return counts;
  }
}

/** Every key of the store, and what is behind it, as one text. */
async function everything(): Promise<string> {
  const keys = (await bench.client.keys(`*${bench.prefix}:*`)).sort();
  const values = await Promise.all(
    keys.map(async (key) => {
      switch (await bench.client.type(key)) {
        case "string":
          return bench.client.get(key);
        case "list":
          return (await bench.client.lrange(key, 0, -1)).join();
        case "zset":
          return (await bench.client.zrange(key, 0, "-1")).join();
        case "stream":
          return JSON.stringify(await bench.client.xrange(key, "-", "+"));
        default:
          return "";
      }
    }),
  );
  return keys.map((key, nth) => `${key} = ${values[nth]}`).join("\n");
}

describe("forgetting a tenant", () => {
  it("leaves nothing that names it or its keys, not even where fences are remembered", async () => {
    const store = bench.open();
    const asked = await executeAgain(store, { request: kept });
    const reaped = request({ scope: tenantScope });
    await store.settle(await lease(store, reaped), release);
    await store.settle(await lease(store, again(reaped)), complete(created, 1));
    await eventually(async () => (await store.reap({ limit: 10, expiry: "delete" })).deleted === 1);
    await executeAgain(store, { scope: `${tenantScope} POST /rides` });
    const soft = await execute(store);
    expect(await everything()).toContain(tenantScope);
    expect(await forget(store)).toEqual({ removed: 0, unsettled: 0 });
    const left = await everything();
    for (const text of [tenantScope, asked.key, reaped.key, soft.key, asked.owner]) {
      expect(left).not.toContain(text);
    }
  });

  it("takes no fence back: the next attempt has the next one, and an earlier owner stays a stranger", async () => {
    const store = bench.open();
    const [first, twice] = [await execute(store), await executeAgain(store)];
    const accepted = await executeAgain(store);
    await forget(store);
    const mayBegin = await store.reserve(again(first));
    expect(mayBegin).toMatchObject({ kind: "execute", after: "absent", lease: { fence: 1 } });
    const next = await store.reserve(again(twice));
    expect(next).toMatchObject({ kind: "execute", after: "absent", lease: { fence: 3 } });
    expect(await store.settle({ ...twice, fence: 2 }, complete())).toEqual({ kind: "lost" });
    await store.reserve(again(accepted, { mode: "accept", request: kept }));
    expect(await store.reserve(again(accepted, { mode: "claim" }))).toMatchObject({ lease: { fence: 3 } });
    // Somebody else's key is not looked for under anything but its own name.
    expect(await store.reserve(request())).toMatchObject({ lease: { fence: 1 } });
    for (const key of await bench.client.keys(`${bench.tag}f*`)) {
      expect(await bench.client.pttl(key)).toBeGreaterThan(29 * 24 * hourMs);
      expect(await bench.client.pttl(`{${bench.prefix}@forgotten`)).toBeGreaterThanOrEqual(
        await bench.client.pttl(key),
      );
    }
  });

  it("goes on where the call before has ended, and begins anew for another tenant", async () => {
    const store = bench.open();
    await Promise.all(Array.from({ length: 3_000 }, () => execute(store, { scope: "another" })));
    await Promise.all(Array.from({ length: 200 }, () => execute(store)));
    await bench.client.config("RESETSTAT");
    let calls = 0;
    for (; (await store.forgetTenant({ tenantScope, limit: 20 })).removed > 0; calls += 1);
    expect(calls).toBe(10);
    const scans = await callsOf(bench.client, "scan");
    // One pass to remove, and one that finds nothing; from the beginning each time it would be ten.
    const passes = (await bench.client.dbsize()) / 1_000;
    expect(scans).toBeLessThan(4 * passes);
    await store.forgetTenant({ tenantScope: "another", limit: 20 });
    await execute(store);
    expect(await store.forgetTenant({ tenantScope, limit: 20 })).toEqual({ removed: 1, unsettled: 0 });
    expect(await store.forgetTenant({ tenantScope, limit: 20 })).toEqual({ removed: 0, unsettled: 0 });
    expect(await store.forgetTenant({ tenantScope, limit: 0 })).toEqual({ removed: 0, unsettled: 0 });
  });

  it("finds what came behind it when nothing seemed to be left of a pass", async () => {
    const store = bench.open();
    for (let nth = 0; nth < 3; nth += 1) await execute(store);
    expect((await store.forgetTenant({ tenantScope, limit: 2 })).removed).toBe(2);
    // What the pass was going to remove next is gone, and what is there now it has passed already.
    await bench.client.del(await bench.client.keys(`${bench.tag}[0-9]*`));
    await Promise.all(Array.from({ length: 20 }, () => execute(store)));
    let removed = 0;
    for (let some = -1; some !== 0; removed += some) {
      // The pass may meet some of them where it goes on, and the next one finds the rest.
      some = (await store.forgetTenant({ tenantScope, limit: 100 })).removed;
    }
    expect(removed).toBe(20);
  });

  it("takes a prefix and a tenant for what they are, and no other's keys", async () => {
    const [odd, similar] = ["a*[b-c]^?\\", "aXXbcZ"];
    const tenants = ["t*", "t?", "tx"];
    const stores = [odd, similar].map((prefix) => bench.open({ prefix }));
    for (const store of stores) for (const scope of tenants) await execute(store, { scope });
    const [store] = stores;
    if (store === undefined) throw new Error("there is no store");
    expect(await store.forgetTenant({ tenantScope: "t*", limit: 10 })).toEqual({ removed: 1, unsettled: 0 });
    await forget(store, 10, "t*");
    const records = (await bench.client.keys("*}[0-9]*")).filter((key) => /^\{a/.test(key));
    expect(records.map((key) => key.replace(/key-\d+/, "")).sort()).toEqual(
      ["t?", "tx", ...tenants]
        .map((scope, nth) => expect.stringMatching(named(nth < 2 ? odd : similar, scope)))
        .sort(),
    );
  });

  it("finds names that have no UTF-8, and the requests of records that were lost", async () => {
    const store = bench.open();
    const odd = await execute(store, { key: "half \ud800 a pair" });
    const lost = request({ scope: tenantScope, request: kept, mode: "accept" });
    await store.reserve(lost);
    await bench.client.del(bench.keyOf(lost));
    expect(await bench.client.exists(`${bench.tag}q${nameOf(lost)}`)).toBe(1);
    await forget(store);
    expect((await store.read(odd)).record).toBeUndefined();
    expect(await bench.client.exists(`${bench.tag}q${nameOf(lost)}`)).toBe(0);
  });

  it("leaves what is not settled, and what a newer version has written, and counts both", async () => {
    const store = bench.open();
    await store.settle(await lease(store, request({ scope: tenantScope })), suspend);
    const halfDone = request({ scope: tenantScope });
    const held = await lease(store, halfDone);
    await store.advance(held, { progress: someProgress, onCrash: "resume" });
    await store.settle(held, release);
    const newer = await execute(store);
    await bench.client.setrange(bench.keyOf(newer), 0, "\t");
    expect(await forget(store)).toEqual({ removed: 0, unsettled: 3 });
    expect(await bench.client.exists(bench.keyOf(newer), bench.keyOf(halfDone))).toBe(2);
  });

  it("tells every process that any answer may be gone", async () => {
    const store = bench.open();
    const other = bench.open({ prefix: bench.prefix });
    const told: string[] = [];
    const listener: BustListener = {
      listening: () => told.push("listening"),
      busted: () => told.push("busted"),
      interrupted: () => told.push("interrupted"),
    };
    other.onBusted?.(listener);
    await eventually(async () => told.includes("listening"));
    await execute(store);
    await forget(store);
    await eventually(async () => told.includes("interrupted") && told.at(-1) === "listening");
    expect(told).not.toContain("busted");
  });

  it("does not keep the reaper from what has expired beside it", async () => {
    let now = Date.now();
    const store = bench.open({}, { clock: () => now });
    for (let nth = 0; nth < 5; nth += 1) {
      await execute(store);
      await execute(store, { scope: "another" });
    }
    await forget(store);
    now += 2 * hourMs;
    expect(await store.reap({ limit: 100, expiry: "delete" })).toEqual({ deleted: 5, expired: 0 });
  });
});

function named(prefix: string, scope: string): RegExp {
  return new RegExp(`^\\{${literal(prefix)}:0\\}\\d+:${literal(scope)}$`);
}

function literal(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|-]/g, "\\$&");
}
