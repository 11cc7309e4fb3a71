import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, it } from "vitest";
import { RedisStore } from "../../src/stores/redis/redis-store.ts";
import type { RedisStoreOptions } from "../../src/stores/redis/store.ts";
import type { Need } from "../../src/testing/contract/harness.ts";
import { runStoreContract } from "../../src/testing/index.ts";
import { startRedis, startRedisCluster, startSentinel } from "../support/redis-server.ts";
import {
  clusterLacks,
  ioredisCluster,
  ioredisSentinel,
  ioredisSingle,
  lacks,
  nodeRedisCluster,
  nodeRedisSentinel,
  nodeRedisSingle,
  type OpenedClient,
} from "./redis-support.ts";

interface Subject {
  readonly open: () => OpenedClient;
  readonly options?: RedisStoreOptions;
  readonly lacks?: Partial<Record<Need, string>>;
  /** Lets a batch of one look like any other, so that the cases, which ask one by one, see batches. */
  readonly batchesOfOne?: boolean;
}

let redis: Awaited<ReturnType<typeof startRedis>>;
let cluster: Awaited<ReturnType<typeof startRedisCluster>>;
let sentinel: Awaited<ReturnType<typeof startSentinel>>;

beforeAll(async () => {
  [redis, cluster, sentinel] = await Promise.all([startRedis(), startRedisCluster(), startSentinel()]);
}, 60_000);

afterAll(async () => {
  await Promise.all([redis, cluster, sentinel].map((server) => server?.stop()));
});

const subjects: Readonly<Record<string, Subject>> = {
  ioredis: { open: () => ioredisSingle(redis.url) },
  "node-redis": { open: () => nodeRedisSingle(redis.url) },
  "ioredis, in batches only": { open: () => ioredisSingle(redis.url), batchesOfOne: true },
  "ioredis, without group commit": { open: () => ioredisSingle(redis.url), options: { groupCommit: false } },
  "node-redis, in many buckets of one server": {
    open: () => nodeRedisSingle(redis.url),
    options: { buckets: 20 },
  },
  "an ioredis cluster": { open: () => ioredisCluster(cluster), lacks: clusterLacks },
  "a node-redis cluster": { open: () => nodeRedisCluster(cluster), lacks: clusterLacks },
  "ioredis behind Sentinel, which waits for a replica": {
    open: () => ioredisSentinel(sentinel),
    options: { waitForReplicas: { count: 1, timeoutMs: 5_000 } },
  },
  "node-redis behind Sentinel, which waits for a replica": {
    open: () => nodeRedisSentinel(sentinel),
    options: { waitForReplicas: { count: 1, timeoutMs: 5_000 } },
  },
};

for (const [name, subject] of Object.entries(subjects)) {
  // Each subject has keys of its own, and the cases mostly wait for leases to run out: all subjects at once.
  describe.concurrent(name, () => {
    let opened: OpenedClient;
    beforeAll(() => {
      opened = subject.open();
    });
    afterAll(() => opened.end());

    runStoreContract({
      it: it.sequential,
      lacks: subject.lacks ?? lacks,
      async open() {
        const options = { prefix: name.replaceAll(" ", "-"), warn: () => {}, ...subject.options };
        const store = new RedisStore(opened.client, options, subject.batchesOfOne ? { aloneMax: 0 } : {});
        return { store, passTime: async (ms) => void (await sleep(ms)), close: () => store.close() };
      },
    });
  });
}
