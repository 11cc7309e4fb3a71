import type { RedisClient } from "./client.ts";
import type { RedisStoreOptions } from "./options.ts";
import { RedisStore } from "./redis-store.ts";

export type { RedisClient } from "./client.ts";
export type { RedisStoreOptions } from "./options.ts";
export type { RedisStore } from "./redis-store.ts";

/**
 * Records in Redis (6.2 or later) or Valkey, a single server, one behind Sentinel, or a Cluster (7 or later for waiters to
 * be woken). Fast and as durable as the server is configured to be: after a failover, records that were acknowledged may
 * be missing, and their requests would be executed again. Business data cannot commit with them.
 *
 * @example
 * ```ts
 * import { Redis } from "ioredis";
 * const store = redisStore(new Redis("redis://localhost:6379"));
 * ```
 */
export function redisStore(client: RedisClient, options: RedisStoreOptions = {}): RedisStore {
  return new RedisStore(client, options);
}
