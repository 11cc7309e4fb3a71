import { Cluster, Redis } from "ioredis";
import { createClient, createCluster } from "redis";
import type { RedisClient } from "../../src/stores/redis/store.ts";
import type { RedisSentinel } from "../support/redis-server.ts";

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

export const lacks = {
  transactions: "business data is in another database",
  "outbox push": "there is no outbox without transactions",
};

export const clusterLacks = {
  ...lacks,
  "bust news": "no client knows whether it has missed a message of a cluster",
};
