import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/store.ts";
import { Names, nameOf } from "../../src/stores/redis/names.ts";
import { redisStore } from "../../src/stores/redis/store.ts";
import { complete, created, kept, lease, suspend } from "../../src/testing/contract/requests.ts";
import { type RedisCluster, startRedisCluster } from "../support/redis-server.ts";
import { again, request } from "../support/reserve-request.ts";
import { eventually } from "./postgres-support.ts";
import { ioredisCluster, nodeRedisCluster } from "./redis-support.ts";

let cluster: RedisCluster;
let nodes: Redis[];

beforeAll(async () => {
  cluster = await startRedisCluster();
  nodes = cluster.nodes.map(({ host, port }) => new Redis(port, host));
}, 30_000);

afterAll(async () => {
  for (const node of nodes ?? []) node.disconnect();
  await cluster?.stop();
});

const names = new Names({ keyPrefix: "", prefix: "latchkey", buckets: 64 });

it("records are spread over the buckets, and buckets over the nodes", async () => {
  const { client, end } = ioredisCluster(cluster);
  const store = redisStore(client, { warn: () => {} });
  const asked = Array.from({ length: 640 }, () => request());
  await Promise.all(asked.map((each) => store.reserve(each)));
  const buckets = new Map<number, number>();
  for (const each of asked) {
    const bucket = names.bucketOf(each);
    buckets.set(bucket, (buckets.get(bucket) ?? 0) + 1);
  }
  expect(buckets.size).toBe(64);
  expect(Math.max(...buckets.values())).toBeLessThan(30);
  const sizes = await Promise.all(nodes.slice(0, 3).map((node) => node.dbsize()));
  for (const size of sizes) expect(size).toBeGreaterThan(100);
  await store.close();
  await end();
});

for (const [library, open] of Object.entries({ ioredis: ioredisCluster, redis: nodeRedisCluster })) {
  it(`while a slot moves nothing of its bucket is written in part, and afterwards all of it is there, with ${library}`, async () => {
    const { client, end } = open(cluster);
    const store = redisStore(client, { prefix: `moving-${library}`, buckets: 1, warn: () => {} });
    const tag = `{moving-${library}:0}`;
    const done = await execute(store);
    const running = request();
    await store.reserve(running);

    const { from, to, slot } = await nodesOf(tag);
    await to.client.cluster("SETSLOT", slot, "IMPORTING", from.id);
    await from.client.cluster("SETSLOT", slot, "MIGRATING", to.id);
    // One of the keys that a script writes to is elsewhere already, behind those that it writes first.
    await move([`${tag}@sweep`], from, to);
    const asked = request();
    await expect(store.reserve(asked)).rejects.toThrow(StoreError);
    await expect(store.settle({ ...running, fence: 1 }, complete())).rejects.toThrow(StoreError);
    for (const node of [from, to]) {
      await node.client.call("ASKING");
      expect(await node.client.exists(tag + nameOf(asked)).catch(() => 0)).toBe(0);
    }

    await move(await from.client.cluster("GETKEYSINSLOT", slot, 1_000), from, to);
    for (const node of [to, from]) await node.client.cluster("SETSLOT", slot, "NODE", to.id);
    expect((await store.reserve(again(done))).kind).toBe("replay");
    expect((await store.reserve(asked)).kind).toBe("execute");
    expect((await store.settle({ ...running, fence: 1 }, complete())).kind).toBe("settled");
    expect(await to.client.zcard(`${tag}@sweep`)).toBe(1);
    await store.close();
    await end();
  }, 30_000);
}

it("while a slot moves nothing is written in part either where a request or the list of a minute is elsewhere", async () => {
  const { client, end } = ioredisCluster(cluster);
  const store = redisStore(client, { prefix: "parts", buckets: 1, warn: () => {} });
  const tag = "{parts:0}";
  // So that every key that a script may write to is there, but for those in question.
  await store.settle(await lease(store, request()), suspend);
  await store.reserve(request({ mode: "accept", request: kept }));
  await store.settle(await lease(store, request()), complete(created, 1));
  await eventually(async () => (await store.reap({ limit: 1, expiry: "soft" })).expired === 1);
  const [keeping, plain] = [request({ request: kept }), request()];
  const held = [await lease(store, keeping), await lease(store, plain)] as const;
  await store.settle(await lease(store, request()), complete(created, settledMs));

  const { from, to, slot } = await nodesOf(tag);
  const contents = async () => {
    const keys = await from.client.cluster("GETKEYSINSLOT", slot, 1_000);
    return Promise.all(keys.sort().map(async (key) => [key, await from.client.dump(key)] as const));
  };
  await to.client.cluster("SETSLOT", slot, "IMPORTING", from.id);
  await from.client.cluster("SETSLOT", slot, "MIGRATING", to.id);
  await move([`${tag}q${nameOf(keeping)}`], from, to);
  const before = await contents();
  await expect(store.settle(held[0], complete(created, settledMs))).rejects.toThrow(StoreError);
  await expect(store.settle(held[1], complete(created, 2 * settledMs))).rejects.toThrow(StoreError);
  await expect(store.reserve(request({ request: kept }))).rejects.toThrow(StoreError);
  expect(await contents()).toEqual(before);

  await move(await from.client.cluster("GETKEYSINSLOT", slot, 1_000), from, to);
  for (const node of [to, from]) await node.client.cluster("SETSLOT", slot, "NODE", to.id);
  for (const each of held) expect((await store.settle(each, complete())).kind).toBe("settled");
  expect(await to.client.exists(`${tag}q${nameOf(keeping)}`)).toBe(0);
  expect(await to.client.zcard(`${tag}@sweep`)).toBe(1);
  await store.close();
  await end();
}, 30_000);

for (const [library, open] of Object.entries({ ioredis: ioredisCluster, redis: nodeRedisCluster })) {
  it(`a tenant is forgotten on all nodes, but not while slots move, with ${library}`, async () => {
    const { client, end } = open(cluster);
    const prefix = `forgetting-${library}`;
    const store = redisStore(client, { prefix, warn: () => {} });
    const scopes = ["leaving", "leaving POST /rides", "staying"];
    for (const scope of scopes) {
      const asked = Array.from({ length: 150 }, () => request({ scope }));
      await Promise.all(asked.map(async (each) => store.settle(await lease(store, each), complete())));
    }
    const options = { tenantScope: "leaving", limit: 40 };

    const { from, to, slot } = await nodesOf(`{${prefix}:00}`);
    await from.client.cluster("SETSLOT", slot, "MIGRATING", to.id);
    await expect(store.forgetTenant(options)).rejects.toThrow("slots of the cluster are being moved");
    await from.client.cluster("SETSLOT", slot, "STABLE");

    let removed = 0;
    for (;;) {
      const counts = await store.forgetTenant(options);
      removed += counts.removed;
      if (counts.removed === 0) break;
    }
    expect(removed).toBe(300);
    const left = await Promise.all(nodes.slice(0, 3).map((node) => node.keys(`{${prefix}:*}[0-9]*`)));
    expect(left.flat().filter((key) => key.endsWith("staying"))).toHaveLength(150);
    expect(left.flat()).toHaveLength(150);
    for (const keys of left) expect(keys.length).toBeGreaterThan(10);
    await store.close();
    await end();
  }, 30_000);
}

const settledMs = 3_600_000;

async function execute(store: Store) {
  const asked = request();
  await store.settle(await lease(store, asked), complete());
  return asked;
}

interface Node {
  readonly client: Redis;
  readonly port: number;
  readonly id: string;
}

/** Who serves a key, and another primary. */
async function nodesOf(key: string): Promise<{ from: Node; to: Node; slot: number }> {
  const slot = await (nodes[0] as Redis).cluster("KEYSLOT", key);
  const primaries = await Promise.all(
    nodes.slice(0, 3).map(async (client, index) => {
      const id = String(await client.cluster("MYID"));
      const isServing = (await client.exists(key).catch(() => undefined)) !== undefined;
      return { client, port: cluster.nodes[index]?.port ?? 0, id, isServing };
    }),
  );
  const [from, to] = [
    primaries.find(({ isServing }) => isServing),
    primaries.find(({ isServing }) => !isServing),
  ];
  if (from === undefined || to === undefined) throw new Error(`nobody serves ${key}`);
  return { from, to, slot };
}

async function move(keys: string[], from: Node, to: Node): Promise<void> {
  await from.client.call("MIGRATE", "127.0.0.1", String(to.port), "", "0", "5000", "KEYS", ...keys);
}
