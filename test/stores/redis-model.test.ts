import { Redis } from "ioredis";
import { afterAll, beforeAll, it } from "vitest";
import type { Store } from "../../src/core/store.ts";
import { RedisStore } from "../../src/stores/redis/redis-store.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { assertAnswersAsMemoryDoes } from "./store-model.ts";

let server: RedisServer;
let client: Redis;

beforeAll(async () => {
  server = await startRedis();
  client = new Redis(server.url);
});

afterAll(async () => {
  client?.disconnect();
  await server?.stop();
});

// Alone and in a batch, a call is the same script; with many buckets the indexes are others.
for (const [name, buckets] of Object.entries({ "one bucket": 1, "five buckets": 5 })) {
  it(`answers any sequence of calls as the memory store does, in ${name}`, async () => {
    let runs = 0;
    await assertAnswersAsMemoryDoes(
      async (clock) => {
        runs += 1;
        const prefix = `run-${buckets}-${runs}`;
        const store = new RedisStore(client, { prefix, buckets, warn: () => {} }, { clock });
        return forgetful(store, prefix);
      },
      { numRuns: 60 },
    );
  }, 60_000);
}

/** The memory store forgets a fence with its record, so what remembers it here is taken away. */
function forgetful(store: Store, prefix: string): Store {
  return new Proxy(store, {
    get(target, name) {
      if (name !== "reap") {
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      }
      return async (options: Parameters<Store["reap"]>[0]) => {
        const counts = await target.reap(options);
        for (const key of await client.keys(`{${prefix}:*}[0-9]*`)) {
          if ((await client.getBuffer(key))?.[1] === goneState) await client.del(key);
        }
        return counts;
      };
    },
  });
}

const goneState = 7;
