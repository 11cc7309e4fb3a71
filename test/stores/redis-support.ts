import { Cluster, Redis } from "ioredis";
import { createClient, createCluster, createSentinel } from "redis";
import { afterAll, afterEach, beforeAll } from "vitest";
import type { RecordId } from "../../src/core/record.ts";
import type { Store } from "../../src/core/store.ts";
import { nameOf } from "../../src/stores/redis/names.ts";
import { RedisStore, type RedisStoreSeams } from "../../src/stores/redis/redis-store.ts";
import type { RedisClient, RedisStoreOptions } from "../../src/stores/redis/store.ts";
import { type RedisSentinel, type RedisServer, startRedis } from "../support/redis-server.ts";

/** A client of the user's own, and its end. */
export interface OpenedClient {
  readonly client: RedisClient;
  end(): Promise<unknown>;
}

interface Nodes {
  readonly nodes: readonly { readonly host: string; readonly port: number }[];
}

export function ioredisSingle(url: string): OpenedClient {
  const client = new Redis(url);
  return { client, end: async () => client.disconnect() };
}

/** Not even connected: the store's own connections are what counts. */
export function nodeRedisSingle(url: string): OpenedClient {
  return { client: createClient({ url }), end: async () => {} };
}

export function ioredisCluster({ nodes }: Nodes): OpenedClient {
  const client = new Cluster([...nodes], { lazyConnect: true });
  return { client, end: async () => client.disconnect() };
}

export function nodeRedisCluster({ nodes }: Nodes): OpenedClient {
  const rootNodes = nodes.map(({ host, port }) => ({ url: `redis://${host}:${port}` }));
  return { client: createCluster({ rootNodes }), end: async () => {} };
}

export function ioredisSentinel({ sentinels, name }: RedisSentinel): OpenedClient {
  const client = new Redis({ sentinels: [...sentinels], name, lazyConnect: true });
  return { client, end: async () => client.disconnect() };
}

export function nodeRedisSentinel({ sentinels, name }: RedisSentinel): OpenedClient {
  return { client: createSentinel({ name, sentinelRootNodes: [...sentinels] }), end: async () => {} };
}

export const lacks = {
  transactions: "business data is in another database",
  "outbox push": "there is no outbox without transactions",
  "bust generation": "a server that has lost its latest writes would use one again",
};

export const clusterLacks = {
  ...lacks,
  "bust news": "no client knows whether it has missed a message of a cluster",
};

/** A server for the tests of one file, and what they look into it with. */
export interface RedisBench {
  readonly server: RedisServer;
  readonly client: Redis;
  /** Of the store that was opened last. */
  readonly prefix: string;
  readonly tag: string;
  keyOf(id: RecordId): string;
  /** A store on keys of its own, or under the prefix that is given, until the test is over. */
  open(options?: RedisStoreOptions, seams?: RedisStoreSeams, client?: RedisClient): RedisStore;
}

export function redisBench(name: string): RedisBench {
  let server: RedisServer;
  let client: Redis;
  let prefixes = 0;
  let prefix = "";
  const stores: Store[] = [];

  beforeAll(async () => {
    server = await startRedis();
    client = new Redis(server.url);
  });

  afterEach(async () => {
    for (const store of stores.splice(0)) await store.close();
  });

  afterAll(async () => {
    client?.disconnect();
    await server?.stop();
  });

  const tag = () => `{${prefix}:0}`;
  return {
    get server() {
      return server;
    },
    get client() {
      return client;
    },
    get prefix() {
      return prefix;
    },
    get tag() {
      return tag();
    },
    keyOf: (id) => tag() + nameOf(id),
    open(options = {}, seams = {}, through = client) {
      prefixes += 1;
      prefix = options.prefix ?? `${name}-${prefixes}`;
      const store = new RedisStore(through, { warn: () => {}, ...options, prefix }, seams);
      stores.push(store);
      return store;
    },
  };
}

/** How often a command was called since the counts began. */
export async function callsOf(client: Redis, command: string): Promise<number> {
  const counts = await client.info("commandstats");
  return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(counts)?.[1] ?? 0);
}

/** Servers that a test starts for itself, and whatever else ends with it, the latest first. */
export function serversOfTests(): {
  readonly cleanUp: (() => unknown)[];
  start(...args: string[]): Promise<RedisServer>;
} {
  const cleanUp: (() => unknown)[] = [];
  afterEach(async () => {
    for (const step of cleanUp.splice(0).reverse()) await step();
  });
  return {
    cleanUp,
    async start(...args) {
      const server = await startRedis({ args });
      cleanUp.push(() => server.stop());
      return server;
    },
  };
}
