import { afterEach, describe, expect, it } from "vitest";
import { StoreError, StoreRefusedError, UnreadableError } from "../../src/core/errors.ts";
import { RedisStore } from "../../src/stores/redis/redis-store.ts";
import { complete, created, kept, lease, suspend } from "../../src/testing/contract/requests.ts";
import { startRedisCluster } from "../support/redis-server.ts";
import { request } from "../support/reserve-request.ts";
import { listAll, namesOf, pagesOf } from "./listing-support.ts";
import {
  ioredisCluster,
  ioredisSingle,
  nodeRedisCluster,
  redisBench,
  serversOfTests,
} from "./redis-support.ts";

const bench = redisBench("listing");
const servers = serversOfTests();

function many(count: number, scope: string) {
  return Array.from({ length: count }, () => request({ scope }));
}

const cursorOf = (parts: unknown) => Buffer.from(JSON.stringify(parts)).toString("base64url");

describe("a list of records in Redis", () => {
  it.each([7, 100, 1_000])("shows a thousand records once each, in pages of %i", async (limit) => {
    const store = bench.open();
    const asked = many(1_000, "acme");
    await Promise.all(asked.map((each) => store.reserve(each)));
    expect(namesOf(await listAll(store, { limit }))).toEqual(namesOf(asked));
  });

  it("leaves out the requests that are kept, and what another store has", async () => {
    const other = bench.open({ prefix: "listing" });
    await Promise.all(many(50, "acme").map((each) => other.reserve(each)));
    const store = bench.open({ prefix: "listing-too" });
    const asked = Array.from({ length: 500 }, () => request({ request: kept, onCrash: "resume" }));
    await Promise.all(asked.map((each) => store.reserve(each)));
    expect(namesOf(await listAll(store, { limit: 50 }))).toEqual(namesOf(asked));
  });

  it("shows nothing twice if the server makes room for more keys between two pages", async () => {
    const store = bench.open();
    const asked = many(300, "acme");
    await Promise.all(asked.map((each) => store.reserve(each)));
    const shown: string[] = [];
    for await (const page of pagesOf(store, { tenantScope: "acme", limit: 3 })) {
      shown.push(...namesOf(page));
      // Enough for the server to double its table several times in the course of the list.
      await Promise.all(many(60, "other").map((each) => store.reserve(each)));
    }
    expect(shown.sort()).toEqual(namesOf(asked));
  });

  it("costs little where bodies are large, and many records are another tenant's", async () => {
    const store = bench.open();
    const large = { ...created, body: new Uint8Array(200_000) };
    for (const each of many(20, "acme")) await store.settle(await lease(store, each), complete(large));
    await Promise.all(many(2_000, "other").map((each) => store.reserve(each)));
    const sent = async () =>
      Number(/total_net_output_bytes:(\d+)/.exec(await bench.client.info("stats"))?.[1]);
    const before = await sent();
    expect(await listAll(store, { tenantScope: "acme", limit: 100 })).toHaveLength(20);
    // The names of all records, and what a list shows of some: far less than one body.
    expect((await sent()) - before).toBeLessThan(1_000_000);
    expect(await listAll(store, { state: "completed", limit: 100 })).toHaveLength(20);
  });

  it("looks at no more in one call than it can within a moment, and says where to go on", async () => {
    const store = bench.open();
    await bench.client.mset(
      Object.fromEntries(Array.from({ length: 20_000 }, (_, nth) => [`somebody-else-${nth}`, ""])),
    );
    const asked = request();
    await store.reserve(asked);
    let pages = 0;
    let found = 0;
    for await (const page of pagesOf(store, { limit: 10, key: asked.key })) {
      pages += 1;
      found += page.length;
    }
    expect(found).toBe(1);
    expect(pages).toBeGreaterThan(1);
    expect(pages).toBeLessThan(20);
  });

  it("refuses a cursor that no page has named, and goes on as if nothing was", async () => {
    const store = bench.open();
    await Promise.all(many(5, "acme").map((each) => store.reserve(each)));
    const { next = "" } = await store.list({ limit: 1 });
    const [life] = JSON.parse(Buffer.from(next, "base64url").toString()) as string[];
    const cursors = [
      "",
      "0",
      "nowhere",
      cursorOf({}),
      cursorOf([]),
      cursorOf([life, 0, ""]),
      cursorOf([life, "-1", ""]),
      cursorOf([life, "0 COUNT 1000000", ""]),
      cursorOf([life, "0"]),
      cursorOf([life, "0", ["x"]]),
      cursorOf(["no such server", "0", ""]),
    ];
    for (const after of cursors) {
      await expect(store.list({ limit: 1, after }), after).rejects.toThrow(StoreRefusedError);
    }
    // What only looks like one finds whatever is there.
    await store.list({ limit: 1, after: cursorOf([life, "99999999999999999999", "????"]) }).catch((error) => {
      expect(error).toBeInstanceOf(StoreError);
    });
    expect(await listAll(store, { limit: 2 })).toHaveLength(5);
  });

  it("says which record cannot be read, instead of leaving it out", async () => {
    const store = bench.open();
    const [later, damaged] = [request(), request()];
    for (const each of [later, damaged]) await store.reserve(each);
    await bench.client.setrange(bench.keyOf(later), 0, "\x09");
    await bench.client.set(bench.keyOf(damaged), "\x01\x02");
    for (const each of [later, damaged]) {
      const listing = listAll(store, { limit: 10, key: each.key });
      await expect(listing).rejects.toThrow(UnreadableError);
      await expect(listing).rejects.toThrow(bench.keyOf(each));
    }
    await expect(listAll(store, { limit: 10, key: later.key })).rejects.toThrow("encoding version 9");
  });
});

describe("a list of records in Redis that was begun on a server that is not there any more", () => {
  const opened: { close(): Promise<unknown> }[] = [];
  afterEach(async () => {
    for (const each of opened.splice(0)) await each.close();
  });

  it("is refused, because its place means nothing any more", async () => {
    const first = await servers.start();
    const second = await servers.start();
    const listOn = async (url: string, after?: string) => {
      const { client, end } = ioredisSingle(url);
      const store = new RedisStore(client, { warn: () => {} });
      opened.push({ close: () => store.close().then(end) });
      await Promise.all(many(10, "acme").map((each) => store.reserve(each)));
      return store.list({ limit: 2, after });
    };
    const { next } = await listOn(first.url);
    await expect(listOn(second.url, next)).rejects.toThrow("begin the list anew");
  });
});

describe("a list of records in a cluster", () => {
  it.each([
    ["ioredis", ioredisCluster],
    ["redis", nodeRedisCluster],
  ] as const)(
    "shows those of all nodes once each, with %s",
    async (_, open) => {
      const cluster = await startRedisCluster();
      servers.cleanUp.push(() => cluster.stop());
      const { client, end } = open(cluster);
      const store = new RedisStore(client, { warn: () => {} });
      servers.cleanUp.push(end, () => store.close());
      const asked = many(1_000, "acme");
      await Promise.all(asked.map((each) => store.reserve(each)));
      const doubtful = many(5, "acme");
      for (const each of doubtful) await store.settle(await lease(store, each), suspend);
      for (const limit of [50, 1_000]) {
        expect(namesOf(await listAll(store, { limit }))).toEqual(namesOf([...asked, ...doubtful]));
      }
      expect(namesOf(await listAll(store, { limit: 2, state: "unknown" }))).toEqual(namesOf(doubtful));
      // Another process, whose client knows the nodes in another order, goes on where this one has ended.
      const again = open({ nodes: cluster.nodes.toReversed() });
      const other = new RedisStore(again.client, { warn: () => {} });
      servers.cleanUp.push(again.end, () => other.close());
      const { records, next } = await store.list({ limit: 600 });
      const rest: (typeof records)[number][] = [];
      for (let after = next; after !== undefined; ) {
        const page = await other.list({ limit: 600, after });
        rest.push(...page.records);
        after = page.next;
      }
      expect(namesOf([...records, ...rest])).toEqual(namesOf([...asked, ...doubtful]));
    },
    30_000,
  );
});
