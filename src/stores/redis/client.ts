import { ConfigError } from "../../core/errors.ts";
import { type ConnectionLimits, connectionLimits } from "./connecting.ts";
import { type IoredisClient, IoredisLink, isIoredis } from "./ioredis.ts";
import { isNodeRedis, isNodeRedisPool, type NodeRedisClient, NodeRedisLink } from "./node-redis.ts";
import { isNodeRedisSentinel } from "./node-redis-sentinel.ts";

/**
 * A client of the user's own: of the package ioredis a `Redis` (one that was made with `sentinels` as well) or a
 * `Cluster`; of the package redis what `createClient`, `createCluster` or `createSentinel` gives.
 */
export type RedisClient = IoredisClient | NodeRedisClient;

export type RedisArgument = string | Buffer;
export type RedisReply = Buffer | string | number | null | readonly RedisReply[];

/**
 * What is needed of a client library. It opens connections of its own, with the options of the user's client: so that
 * nothing is sent late (a command that could not be sent is refused instead of queued, and one that was sent is not
 * sent again by a single server's client), and nothing that the client is otherwise used for waits behind a script.
 */
export interface RedisLink {
  readonly isCluster: boolean;
  /** What the user's client puts before each key. It has to be part of the keys here. */
  readonly keyPrefix: string;
  /** Sends a command to whoever serves the key. Rejects soon if there is no connection. */
  send(key: string, args: readonly RedisArgument[]): Promise<RedisReply>;
  /** Whoever has keys, to be asked one by one. */
  primaries(): Promise<readonly RedisPrimary[]>;
  /**
   * Waits until what was sent for the key before has reached some replicas, and answers how many. The connection waits
   * with it.
   */
  waitForReplicas(key: string, wait: { readonly count: number; readonly timeoutMs: number }): Promise<number>;
  /** A connection that hears what is published. In a cluster the channels are sharded ones. */
  listen(listener: ChannelListener): RedisListening;
  /** Closes what was opened here; the user's client stays as it is. */
  close(): Promise<void>;
}

export interface RedisPrimary {
  send(args: readonly RedisArgument[]): Promise<RedisReply>;
}

export interface ChannelListener {
  heard(channel: string, message: Buffer): void;
  /** Everything that is published on the channels from now on is heard. Never called for a cluster. */
  connected(): void;
  /** From now on something may be missed, until `connected` is called again. */
  interrupted(): void;
}

export interface RedisListening {
  /**
   * Resolves when the channels are heard as well. Goes on trying by itself, even when it rejects because there is no
   * connection, and after every interruption.
   */
  subscribe(channels: readonly string[]): Promise<void>;
  close(): Promise<void>;
}

/** Finds out which library a client is of. Other limits are for tests. */
export function linkOf(client: RedisClient, limits: ConnectionLimits = connectionLimits): RedisLink {
  const isObject = typeof client === "object" && client !== null;
  if (isObject && isIoredis(client)) return new IoredisLink(client, limits);
  if (isObject && isNodeRedis(client)) return new NodeRedisLink(client, limits);
  const what = isObject ? reasonAgainst(client) : undefined;
  throw new ConfigError(
    `${what ?? "this is no client that redisStore knows"}: pass new Redis(…) or new Cluster(…) of the package ioredis (for ` +
      "Sentinel, new Redis({ sentinels, name })), or createClient(…), createCluster(…) or createSentinel(…) of the package redis",
  );
}

function reasonAgainst(client: object): string | undefined {
  if (isNodeRedisPool(client)) return "a pool of the package redis is not supported";
  if (!isNodeRedisSentinel(client)) return undefined;
  return "a Sentinel client of the package redis cannot be asked for another connection before version 6: install redis@6";
}
