import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { PostgresStoreOptions } from "../../src/stores/postgres/store.ts";
import { migrate } from "../../src/stores/postgres/store.ts";
import { runStoreContract } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { inUse, ioredis, layeredOver, nodeRedis, type OpenClient } from "./layered-support.ts";
import { businessTable } from "./postgres-support.ts";

interface Subject {
  readonly open: (url: string) => OpenClient;
  readonly postgres?: PostgresStoreOptions;
  /** Nobody listens where the front should be. */
  readonly isDown?: boolean;
}

const subjects: Readonly<Record<string, Subject>> = {
  "ioredis in front of Postgres": { open: ioredis },
  "node-redis in front of Postgres": { open: nodeRedis },
  "ioredis in front of Postgres with advisory locks": { open: ioredis, postgres: { lock: "advisory" } },
  "ioredis without a server": { open: ioredis, isDown: true },
};

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis?.stop());

for (const [name, subject] of Object.entries(subjects)) {
  // Each subject has a database of its own, and the cases mostly wait for leases to run out: all subjects at once.
  describe.concurrent(name, () => {
    let pool: pg.Pool;
    let business: Awaited<ReturnType<typeof businessTable>>;
    const cleanUp: (() => Promise<unknown>)[] = [];
    const asked = { front: 0, truth: 0 };

    beforeAll(async () => {
      const database = await freshDatabase();
      pool = new pg.Pool({ connectionString: database.url });
      cleanUp.push(() => pool.end(), database.drop);
      await migrate(pool);
      business = await businessTable(pool);
    });

    afterAll(async () => {
      for (const step of cleanUp) await step();
    });

    runStoreContract({
      it: it.sequential,
      async open() {
        const { postgres = { listen: true } } = subject;
        const layered = subject.isDown
          ? layeredOver(pool, subject.open(nobodyHere), { postgres, frontTimeoutMs: 20 })
          : layeredOver(pool, subject.open(redis.url), { postgres });
        if (!subject.isDown) await inUse(layered);
        const before = layered.truth.calls.reserve;
        const { store } = layered;
        const reserve = store.reserve.bind(store);
        const counted = Object.assign(store, {
          reserve: (...args: Parameters<typeof reserve>) => {
            asked.front += 1;
            return reserve(...args);
          },
        });
        return {
          store: counted,
          passTime: async (ms) => void (await sleep(ms)),
          business,
          async close() {
            asked.truth += layered.truth.calls.reserve - before;
            await layered.close();
          },
        };
      },
    });

    it.sequential("the front took part in all of this, if it was there", () => {
      if (subject.isDown) expect(asked.truth).toBe(asked.front);
      else expect(asked.truth).toBeLessThan(asked.front);
    });
  });
}

const nobodyHere = "redis://127.0.0.1:1";
