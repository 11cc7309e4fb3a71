import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { createLatchkey, type Latchkey, type Store } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { inUse, ioredis, type Layered, layeredOver } from "../stores/layered-support.ts";
import { useDatabase } from "../stores/postgres-support.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { codeOf, startService } from "./service.ts";

/*
 * Under random load and a hostile hand on Redis, test/stores/layered-proof.test.ts shows the same for the layered store;
 * test/engine/replay-cache*.test.ts has the rules of the cache in memory one by one. Here are the attacks themselves.
 */

describe("answers in a process's memory", () => {
  it("are given to their own tenant, session and request only, and to nobody once they are busted", async () => {
    const service = await startService({
      store: memoryStore(),
      latchkey: { cache: {} },
      policy: { binding: (req) => req.get("x-session") },
    });
    try {
      const owner = { tenant: "victim", session: "s1" };
      const first = await service.pay(owner, "k");
      // From now on the owner's retries come from memory.
      const events: unknown[] = [];
      service.latchkey.subscribe((event) => {
        if (event.type === "reserved") events.push(event.cached);
      });
      expect((await service.pay(owner, "k")).text).toBe(first.text);
      expect(events).toEqual([true]);

      const foreign = await service.pay({ tenant: "attacker", session: "s1" }, "k");
      expect(JSON.parse(foreign.text)).toMatchObject({ paidBy: "attacker" });
      expect(codeOf(await service.pay({ tenant: "victim", session: "s2" }, "k"))).toBe("key-reused");
      expect(codeOf(await service.pay(owner, "k", { json: { amount: 11 } }))).toBe("key-reused");
      expect((await service.pay(owner, "k")).text).toBe(first.text);

      await service.latchkey.bust({
        of: { tenant: "victim", key: "k" },
        by: "ada",
        reason: "a wrong price",
      });
      const fresh = await service.pay(owner, "k");
      expect(fresh.headers["idempotency-replayed"]).toBeUndefined();
      expect(fresh.text).not.toBe(first.text);
    } finally {
      await service.close();
    }
  });
});

describe("answers in a Redis that an attacker can write to", () => {
  const database = useDatabase();
  let server: RedisServer;
  let redis: Redis;
  let layered: Layered;
  let latchkey: Latchkey;

  beforeAll(async () => {
    // One of its own: everything in it is written over.
    server = await startRedis({ args: [] });
    redis = new Redis(server.url);
  });
  afterAll(async () => {
    redis.disconnect();
    await server.stop();
  });
  afterEach(async () => {
    await latchkey.close({ drainMs: 0 });
    await layered.close();
    await redis.flushall();
  });

  /** Two tenants have paid under one key, and both answers are in Redis. */
  async function twoAnswers() {
    layered = layeredOver(database.pool(), ioredis(server.url));
    await inUse(layered);
    await redis.flushall();
    latchkey = createLatchkey({ store: layered.store as unknown as Store, tenant: "single" });
    const paid: string[] = [];
    const key = `k-${randomUUID()}`;
    const pay = (tenant: string, input = 10) =>
      latchkey.run({ tenant, key, input }, () => {
        paid.push(tenant);
        return `paid by ${tenant}`;
      });
    await pay("victim");
    await pay("attacker");
    let names: string[] = [];
    while (names.length < 2) names = await redis.keys("*");
    return { key, pay, paid, names };
  }

  /** Each does with the entries what it can, knowing everything that is in Redis. */
  const attacks: Readonly<Record<string, (names: readonly string[]) => Promise<unknown>>> = {
    "swaps two entries": async ([one = "", two = ""]) => {
      await redis.rename(one, "swapping");
      await redis.rename(two, one);
      await redis.rename("swapping", two);
    },
    "writes one entry under every name": async ([one = "", ...others]) => {
      const value = await redis.getBuffer(one);
      for (const name of others) await redis.set(name, value ?? "");
    },
    "forges the answer inside": async (names) => {
      for (const name of names) {
        const value = (await redis.getBuffer(name)) ?? Buffer.alloc(0);
        const at = value.indexOf("paid");
        expect(at).toBeGreaterThan(0);
        value.write("PAID", at);
        await redis.set(name, value);
      }
    },
    "cuts entries short": async (names) => {
      for (const name of names) {
        const value = (await redis.getBuffer(name)) ?? Buffer.alloc(0);
        await redis.set(name, value.subarray(0, value.length - 5));
      }
    },
    "empties entries": async (names) => {
      for (const name of names) await redis.set(name, "");
    },
    "makes entries of another type": async (names) => {
      for (const name of names) {
        await redis.del(name);
        await redis.hset(name, { paid: "by nobody" });
      }
    },
    "puts noise everywhere": async (names) => {
      for (const name of names) await redis.set(name, Buffer.alloc(300, 0xff));
    },
    "deletes everything": async () => {
      await redis.flushall();
    },
  };

  it.each(Object.entries(attacks))(
    "who %s gets nobody a foreign answer, and nothing paid twice",
    async (_what, attack) => {
      const { pay, paid, names } = await twoAnswers();
      const asked = layered.truth.calls.reserve;
      // Unharmed, the entries are what retries are answered with: there is something to attack.
      expect(await pay("victim")).toBe("paid by victim");
      expect(layered.truth.calls.reserve).toBe(asked);
      await attack(names);
      for (const tenant of ["victim", "attacker", "victim"])
        expect(await pay(tenant)).toBe(`paid by ${tenant}`);
      await expect(pay("victim", 11)).rejects.toMatchObject({ code: "key-reused" });
      expect(paid).toEqual(["victim", "attacker"]);
    },
  );

  it("an old answer that is put back after a bust is not given any more", async () => {
    const { key, pay, paid, names } = await twoAnswers();
    const kept = await Promise.all(names.map(async (name) => [name, await redis.getBuffer(name)] as const));
    await latchkey.bust({ of: { tenant: "victim", key }, by: "ada", reason: "a wrong price" });
    for (const [name, value] of kept) await redis.set(name, value ?? "");
    await pay("victim");
    expect(paid).toEqual(["victim", "attacker", "victim"]);
  });
});
