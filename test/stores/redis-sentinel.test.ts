import { Redis } from "ioredis";
import { createSentinel } from "redis";
import { afterEach, describe, expect, it } from "vitest";
import { ConfigError } from "../../src/core/errors.ts";
import { linkOf, type RedisLink } from "../../src/stores/redis/client.ts";
import { connectionLimits } from "../../src/stores/redis/connecting.ts";
import { type RedisClient, redisStore } from "../../src/stores/redis/store.ts";
import { type RedisSentinel, startSentinel } from "../support/redis-server.ts";
import { again, request } from "../support/reserve-request.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { eventually } from "./postgres-support.ts";
import { ioredisSentinel, nodeRedisSentinel } from "./redis-support.ts";

const cleanUp: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});

async function start(): Promise<RedisSentinel> {
  const sentinel = await startSentinel();
  cleanUp.push(() => sentinel.stop());
  return sentinel;
}

function link(client: RedisClient, limits: Partial<typeof connectionLimits> = {}): RedisLink {
  const opened = linkOf(client, { ...connectionLimits, ...limits });
  cleanUp.push(() => opened.close());
  return opened;
}

/** What one of the sentinels takes for the primary. */
async function primaryOf({ sentinels, name }: RedisSentinel): Promise<Redis> {
  const [first] = sentinels;
  const asked = new Redis(first?.port ?? 0, "127.0.0.1");
  const [host, port] = (await asked.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)) as [string, string];
  asked.disconnect();
  const primary = new Redis(Number(port), host);
  cleanUp.push(() => primary.disconnect());
  return primary;
}

const libraries = { ioredis: ioredisSentinel, redis: nodeRedisSentinel };

describe.each(Object.entries(libraries))("behind Sentinel, %s", (_name, client) => {
  it("follows the primary: what was written is found, and a listener knows what it may have missed", async () => {
    const sentinel = await start();
    const opened = client(sentinel);
    cleanUp.push(() => opened.end());
    const store = redisStore(opened.client, { warn: () => {} });
    cleanUp.push(() => store.close());
    const asked = link(opened.client);
    const news: string[] = [];
    const listening = asked.listen({
      heard: (_channel, message) => void news.push(message.toString()),
      connected: () => void news.push("connected"),
      interrupted: () => void news.push("interrupted"),
    });
    cleanUp.push(() => listening.close());
    await listening.subscribe(["one", "two"]);
    const wanted = request();
    expect((await store.reserve(wanted)).kind).toBe("execute");
    expect(await asked.waitForReplicas("", { count: 1, timeoutMs: 5_000 })).toBe(1);

    await sentinel.killPrimary();
    await eventually(() => news.includes("interrupted"), 10_000);
    await eventually(
      async () => (await store.reserve(again(wanted)).catch(() => undefined))?.kind === "inFlight",
      30_000,
    );
    await eventually(() => news.at(-1) === "connected", 10_000);
    for (const channel of ["one", "two"]) {
      const publish = () => asked.send("", ["PUBLISH", channel, `on ${channel}`]);
      // This connection may find the new primary later than the others have.
      await eventually(() => publish().then(Boolean, () => false), 10_000);
      await eventually(() => news.at(-1) === `on ${channel}`);
    }
  }, 60_000);
});

it("the account of a node-redis Sentinel client's connections is that of the store's, and so is the prefix", async () => {
  const sentinel = await start();
  const primary = await primaryOf(sentinel);
  await primary.call("ACL", "SETUSER", "latchkey", "on", ">secret", "~*", "&*", "+@all");
  const client = createSentinel({
    name: sentinel.name,
    sentinelRootNodes: [...sentinel.sentinels],
    nodeClientOptions: { username: "latchkey", password: "secret" },
    keyPrefix: "mine:",
  });
  const asked = link(client);
  expect(String(await asked.send("", ["ACL", "WHOAMI"]))).toBe("latchkey");
  const store = redisStore(client, { warn: () => {} });
  cleanUp.push(() => store.close());
  await store.reserve(request());
  const keys = await primary.keys("*");
  expect(keys.length).toBeGreaterThan(0);
  expect(keys.filter((key) => !key.startsWith("mine:") && !key.startsWith("{mine:"))).toEqual([]);
}, 30_000);

it("a node-redis Sentinel client that finds no sentinel lets calls fail, and nothing goes on after the store was closed", async () => {
  const client = createSentinel({ name: "latchkey", sentinelRootNodes: [{ host: "127.0.0.1", port: 1 }] });
  const store = redisStore(client, { warn: () => {} });
  await expect(store.reserve(request())).rejects.toThrow(/there is no connection to Redis/);
  await store.close();
  await expect(store.reserve(request())).rejects.toThrow(/the store was closed/);
});

it("a connection of node-redis's Sentinel client whose host has vanished is given up, and the next call has another", async () => {
  const sentinel = await start();
  const port = (await primaryOf(sentinel)).options.port ?? 0;
  const proxy = await startTcpProxy({ host: "127.0.0.1", port });
  cleanUp.push(() => proxy.close());
  const client = createSentinel({
    name: sentinel.name,
    sentinelRootNodes: [...sentinel.sentinels],
    nodeAddressMap: (address) =>
      address === `127.0.0.1:${port}` ? { host: "127.0.0.1", port: proxy.port } : undefined,
  });
  const asked = link(client, { silenceMs: 400 });
  const answers = () =>
    asked.send("key", ["GET", "key"]).then(
      () => true,
      () => false,
    );
  expect(await answers()).toBe(true);
  proxy.strand();
  expect(await answers()).toBe(false);
  await eventually(answers, 10_000);
}, 30_000);

it("a Sentinel client of redis 5, which has no duplicate, is refused with what to do", () => {
  const client = createSentinel({ name: "latchkey", sentinelRootNodes: [{ host: "127.0.0.1", port: 1 }] });
  const older = new Proxy(client, { has: (target, name) => name !== "duplicate" && name in target });
  expect(() => redisStore(older)).toThrow(ConfigError);
  expect(() => redisStore(older)).toThrow(/before version 6: install redis@6/);
});
