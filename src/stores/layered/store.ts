import { ConfigError } from "../../core/errors.ts";
import type { Store } from "../../core/store.ts";
import { linkOf, type RedisClient } from "../redis/client.ts";
import { type LayeredSettings, LayeredStore, type Truth } from "./layered-store.ts";

export type { RedisClient } from "../redis/client.ts";

export interface LayeredStoreOptions {
  /** What the names of entries in Redis begin with; `latchkey` if left out. */
  readonly prefix?: string;
  /** How long Redis may take to answer before the truth is asked instead; 20 ms if left out. */
  readonly frontTimeoutMs?: number;
  /** Answers with a larger body are not put into Redis; 256 KiB if left out. */
  readonly entryBytesMax?: number;
  /**
   * Whether Redis may also say that a request is still being executed. Only for executions that take longer than half a
   * second and are asked for by another process meanwhile: their outcome is then written down up to a twentieth later. True
   * unless you say otherwise, or the truth can end a lease before its time (`lock: "advisory"`).
   */
  readonly inFlight?: boolean;
}

/**
 * Redis or Valkey in front of another store, for answers that are given again. The store behind it is the truth: whatever
 * becomes of Redis, every answer stays the one that the truth would have given, and only takes longer. Everything else that
 * a store does is done by the truth.
 *
 * The truth must tell of busts, as `postgresStore` does with a Pool of the package pg and `listen: true`.
 *
 * @example
 * ```ts
 * const store = layeredStore(postgresStore(pool, { listen: true }), new Redis(process.env.REDIS_URL));
 * const latchkey = createLatchkey({ store, tenant: "single" });
 * ```
 */
export function layeredStore<Tx>(
  truth: Store<Tx>,
  front: RedisClient,
  options: LayeredStoreOptions = {},
): Store<Tx> {
  if (!isTruth(truth)) throw new ConfigError(cannotBeTruth(truth.name));
  const settings = checked(options, { canPledge: truth.onOwnershipLost === undefined });
  return new LayeredStore(truth, linkOf(front), settings);
}

function isTruth<Tx>(store: Store<Tx>): store is Truth<Tx> {
  return store.onBusted !== undefined && store.bustGeneration !== undefined;
}

function cannotBeTruth(storeName: string): string {
  return (
    `the ${storeName} store, as it was made here, does not tell when another process busts a key, and Redis would go on ` +
    'replaying it: use postgresStore with a Pool of the package pg and listen: true or lock: "advisory"'
  );
}

function checked(
  options: LayeredStoreOptions,
  { canPledge }: { readonly canPledge: boolean },
): LayeredSettings {
  const { prefix = "latchkey", frontTimeoutMs = 20, entryBytesMax = 256 * 1024 } = options;
  const { inFlight = canPledge } = options;
  if (typeof prefix !== "string") throw new ConfigError(`prefix is ${prefix} and must be a text`);
  for (const [name, value] of Object.entries({ frontTimeoutMs, entryBytesMax })) {
    if (Number.isSafeInteger(value) && value > 0) continue;
    throw new ConfigError(`${name} is ${value} and must be a whole number above 0`);
  }
  if (typeof inFlight !== "boolean")
    throw new ConfigError(`inFlight is "${inFlight}" and must be true or false`);
  if (inFlight && !canPledge) {
    throw new ConfigError(
      'inFlight is true, and with lock: "advisory" an execution ends as soon as its process does, which Redis would not ' +
        'know: leave out inFlight, or leave lock at "lease"',
    );
  }
  return { prefix, frontTimeoutMs, entryBytesMax, inFlight };
}
