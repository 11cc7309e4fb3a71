import { Cluster, Redis } from "ioredis";
import { createClient, createClientPool } from "redis";
import { describe, expect, it } from "vitest";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/store.ts";
import { linkOf } from "../../src/stores/redis/client.ts";
import { type RedisClient, type RedisStoreOptions, redisStore } from "../../src/stores/redis/store.ts";
import { complete } from "../../src/testing/contract/requests.ts";
import type { RedisServer } from "../support/redis-server.ts";
import { again, request } from "../support/reserve-request.ts";
import { eventually } from "./postgres-support.ts";
import { serversOfTests } from "./redis-support.ts";

const { cleanUp, start } = serversOfTests();

function open(client: RedisClient, options: RedisStoreOptions = {}) {
  const store = redisStore(client, { warn: () => {}, ...options });
  cleanUp.push(() => store.close());
  return store;
}

function ioredis(server: RedisServer, options: object = {}): Redis {
  const client = new Redis(server.url, options);
  client.on("error", () => {});
  cleanUp.push(() => client.disconnect());
  return client;
}

const libraries = {
  ioredis: (server: RedisServer): RedisClient => ioredis(server),
  redis: (server: RedisServer): RedisClient => createClient({ url: server.url }),
};

async function execute(store: Store) {
  const asked = request();
  const reservation = await store.reserve(asked);
  if (reservation.kind !== "execute")
    throw new Error(`expected the right to execute, got ${reservation.kind}`);
  await store.settle(reservation.lease, complete());
  return asked;
}

it.each(Object.entries(libraries))(
  "a crowd that comes before the connection is no reason for a warning (%s)",
  async (_name, clientOf) => {
    const warnings: string[] = [];
    const heard = (warning: Error) => warnings.push(warning.name);
    process.on("warning", heard);
    cleanUp.push(() => process.off("warning", heard));
    const link = linkOf(clientOf(await start()));
    cleanUp.push(() => link.close());
    await Promise.all(Array.from({ length: 50 }, () => link.send("key", ["GET", "key"])));
    // Warnings are told in a later turn.
    await new Promise((resolve) => setImmediate(resolve));
    expect(warnings).toEqual([]);
  },
);

describe("what it warns of", () => {
  const cases: Readonly<Record<string, { args: string[]; says: RegExp[] }>> = {
    "records that can be evicted": {
      args: ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"],
      says: [/allkeys-lru may evict any record/],
    },
    "answers that can be evicted": {
      args: ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl", "--appendonly", "yes"],
      says: [/volatile-ttl may evict answers/],
    },
    "a server that writes nothing down": { args: [], says: [/a restart loses all of them/] },
    "a server that only takes snapshots": {
      args: ["--save", "3600 1"],
      says: [/since the last snapshot/],
    },
    "a server that lets nobody look": {
      args: ["--rename-command", "CONFIG", "", "--appendonly", "yes"],
      says: [/could not read Redis's settings/],
    },
    "nothing, where records are safe": {
      args: ["--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "noeviction"],
      says: [],
    },
    "no eviction, where memory has no limit": {
      args: ["--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"],
      says: [],
    },
  };
  for (const [name, { args, says }] of Object.entries(cases)) {
    it(name, async () => {
      const server = await start(...args);
      for (const client of Object.values(libraries)) {
        const said: string[] = [];
        const store = open(client(server), { warn: (sentence) => said.push(sentence) });
        await store.ready();
        await execute(store);
        await store.ready();
        expect(said).toHaveLength(says.length);
        for (const [nth, pattern] of says.entries()) expect(said[nth]).toMatch(pattern);
      }
    });
  }

  it("the first request looks by itself, and does not wait for it", async () => {
    const server = await start();
    const said: string[] = [];
    const store = open(ioredis(server), { warn: (sentence) => said.push(sentence) });
    await execute(store);
    await eventually(() => said.length === 1);
  });
});

describe("a server that is lost", () => {
  for (const [name, connect] of Object.entries(libraries)) {
    it(`calls fail soon, nothing is sent later, and it goes on when the server is back, with ${name}`, async () => {
      const server = await start("--appendonly", "yes", "--appendfsync", "always");
      const store = open(connect(server));
      const news: string[] = [];
      store.onBusted?.({
        listening: () => news.push("listening"),
        interrupted: () => news.push("interrupted"),
        busted: () => news.push("busted"),
      });
      const done = await execute(store);
      await eventually(() => news.at(-1) === "listening");
      await server.kill();
      await eventually(() => news.at(-1) === "interrupted");
      const lost = request();
      const askedAt = performance.now();
      await expect(store.reserve(lost)).rejects.toThrow(StoreError);
      expect(performance.now() - askedAt).toBeLessThan(4_000);
      await server.restart();
      await eventually(async () => (await store.read(lost).catch(() => undefined)) !== undefined, 10_000);
      expect((await store.read(lost)).record).toBeUndefined();
      expect((await store.reserve(again(done))).kind).toBe("replay");
      await execute(store);
      await eventually(() => news.at(-1) === "listening", 10_000);
      expect(await store.bust(done, { by: "Ada", reason: "none" })).toEqual({ kind: "busted" });
      await eventually(() => news.at(-1) === "busted");
    }, 30_000);

    it(`a server that is not there yet is waited for, but not for long, with ${name}`, async () => {
      const server = await start();
      await server.kill();
      const store = open(connect(server));
      await expect(store.reserve(request())).rejects.toThrow(/nothing was sent/);
      await server.restart();
      await eventually(
        async () => (await store.reserve(request()).catch(() => undefined)) !== undefined,
        10_000,
      );
    }, 30_000);
  }

  it("a full server refuses, and nothing has happened", async () => {
    const server = await start("--maxmemory", "3mb");
    const client = ioredis(server);
    const store = open(client);
    const done = await execute(store);
    const running = request();
    await store.reserve(running);
    await client.config("SET", "maxmemory", "1");
    const asked = request();
    await expect(store.reserve(asked)).rejects.toThrow(/its memory is full/);
    await expect(store.settle({ ...running, fence: 1 }, complete())).rejects.toThrow(/its memory is full/);
    expect((await store.reserve(again(done))).kind).toBe("replay");
    await client.config("SET", "maxmemory", "0");
    expect((await store.read(asked)).record).toBeUndefined();
    expect((await store.read(running)).record?.state).toBe("in_progress");
    expect(await client.zcard("{latchkey:0}@sweep")).toBe(1);
    expect((await store.reserve(asked)).kind).toBe("execute");
    expect((await store.settle({ ...running, fence: 1 }, complete())).kind).toBe("settled");
  });
});

describe("waiting for replicas", () => {
  for (const [name, connect] of Object.entries(libraries)) {
    it(`what they have counts, and what they do not have does not, with ${name}`, async () => {
      const server = await start("--repl-diskless-sync-delay", "0");
      const store = open(connect(server), { waitForReplicas: { count: 1, timeoutMs: 500 } });
      const asked = request();
      await expect(store.reserve(asked)).rejects.toThrow(/0 of 1 replicas had what was written/);
      expect((await store.read(asked)).record?.state).toBe("in_progress");
      const replica = await start("--replicaof", "127.0.0.1", String(server.port));
      await eventually(
        async () => (await store.reserve(asked).catch(() => undefined))?.kind === "execute",
        10_000,
      );
      const done = await execute(store);
      expect(await ioredis(replica).exists(`{latchkey:0}${done.key.length}:${done.key}${done.scope}`)).toBe(
        1,
      );
    }, 20_000);
  }
});

describe("how it is put together", () => {
  it("whoever divides the records otherwise is refused, and says how to go on", async () => {
    const server = await start();
    const client = ioredis(server);
    await execute(open(client, { buckets: 4 }));
    const store = open(client);
    await expect(store.reserve(request())).rejects.toThrow(ConfigError);
    await expect(store.sweep({ limit: 1, unclaimed: complete().response })).rejects.toThrow(
      /pass \{ buckets: 4 \}/,
    );
    await execute(open(client, { prefix: "elsewhere" }));
  });

  it("a store that was closed opens nothing any more, and leaves the client as it is", async () => {
    const server = await start();
    const client = ioredis(server);
    for (const each of [client, createClient({ url: server.url })]) {
      const store = open(each);
      await execute(store);
      await (await store.watch?.(request(), () => {}))?.();
      await store.close();
      await expect(store.reserve(request())).rejects.toThrow(/the store was closed/);
      await expect(store.watch?.(request(), () => {})).rejects.toThrow(/the store was closed/);
    }
    await eventually(
      async () =>
        String(await client.client("LIST"))
          .trim()
          .split("\n").length === 1,
    );
    expect(await client.ping()).toBe("PONG");
  });

  it("a client's own prefix is before every key, and its other options count as well", async () => {
    const server = await start();
    const plain = ioredis(server, { db: 3 });
    const clients: RedisClient[] = [
      ioredis(server, { keyPrefix: "app:", db: 3, enableAutoPipelining: true, stringNumbers: true }),
      createClient({ url: `${server.url}/3`, keyPrefix: "app:" }),
    ];
    for (const client of clients) {
      await plain.flushdb();
      const store = open(client);
      const asked = await execute(store);
      expect((await store.reserve(again(asked))).kind).toBe("replay");
      const keys = await plain.keys("*");
      expect(keys.length).toBeGreaterThan(1);
      expect(keys.filter((key) => !key.startsWith("app:"))).toEqual([]);
    }
  });

  it("what is no client it knows is refused with what to pass", async () => {
    const pool = createClientPool({ url: "redis://127.0.0.1:1" });
    for (const wrong of [pool, {}, { get: () => {} }, undefined, null, "redis://localhost"]) {
      expect(() => redisStore(wrong as never)).toThrow(ConfigError);
      expect(() => redisStore(wrong as never)).toThrow(/pass new Redis\(…\)/);
    }
  });

  it("options that cannot work are refused", () => {
    const client = new Cluster([{ host: "127.0.0.1", port: 1 }], { lazyConnect: true });
    const wrong: RedisStoreOptions[] = [
      { prefix: "" },
      { prefix: "a b" },
      { prefix: "{a}" },
      { buckets: 0 },
      { buckets: 1.5 },
      { buckets: 5_000 },
      { waitForReplicas: { count: 0, timeoutMs: 100 } },
      { waitForReplicas: { count: 1, timeoutMs: 0 } },
    ];
    for (const options of wrong) expect(() => redisStore(client, options)).toThrow(ConfigError);
    client.disconnect();
  });
});
