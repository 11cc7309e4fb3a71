import { Redis } from "ioredis";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Store } from "../../src/core/store.ts";
import { systemRuntime } from "../../src/engine/runtime.ts";
import { type LayeredStoreOptions, layeredStore } from "../../src/stores/layered/store.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { type FaultyStore, faultyStore } from "../../src/testing/index.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { inUse, ioredis, isInUse, type Layered, layeredOver, nodeRedis } from "./layered-support.ts";
import {
  again,
  complete,
  eventually,
  leaseOf,
  request,
  response,
  spied,
  useDatabase,
} from "./postgres-support.ts";

const database = useDatabase();
const cleanUp: (() => Promise<unknown>)[] = [];
let redis: RedisServer;
let observer: Redis;

beforeAll(async () => {
  redis = await startRedis();
  observer = new Redis(redis.url);
});
afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});
afterAll(async () => {
  observer.disconnect();
  await redis.stop();
});

/** A process of its own. */
function start(
  options: LayeredStoreOptions & { readonly pool?: pg.Pool; readonly url?: string } = {},
): Layered {
  const { pool = database.pool(), url = redis.url, ...own } = options;
  const layered = layeredOver(pool, ioredis(url), own);
  cleanUp.push(layered.close);
  return layered;
}

async function started(...args: Parameters<typeof start>): Promise<Layered> {
  const layered = start(...args);
  await inUse(layered);
  return layered;
}

/** A key of its own: the tests of other files count from one as well. */
let sequence = 0;
const fresh: typeof request = (overrides) => {
  sequence += 1;
  return request({ key: `trips-${sequence}`, ...overrides });
};

/** How often the truth is asked for a reservation meanwhile. */
async function asked({ truth }: Layered, act: () => Promise<unknown>): Promise<number> {
  const before = truth.calls.reserve;
  await act();
  return truth.calls.reserve - before;
}

describe.each(Object.entries({ ioredis, nodeRedis }))("with %s", (_, open) => {
  it("a fresh request asks Postgres twice, and a replay in any process nothing at all", async () => {
    const statements: string[] = [];
    const spy = () => spied(database.pool(), (text) => void statements.push(text)) as unknown as pg.Pool;
    const [one, other] = [layeredOver(spy(), open(redis.url)), layeredOver(spy(), open(redis.url))];
    cleanUp.push(one.close, other.close);
    await inUse(one);
    await inUse(other);
    statements.length = 0;
    const first = fresh();
    const settled = await one.store.settle(await leaseOf(one.store, first), complete);
    expect(statements).toHaveLength(2);
    for (const { store } of [one, other]) {
      const replay = await store.reserve(again(first));
      expect(replay).toMatchObject({
        kind: "replay",
        response: { status: 201, headers: response.kind === "full" ? response.headers : [] },
      });
      expect(replay.kind === "replay" && settled.kind === "settled" && replay.expiresAt).toBe(
        settled.kind === "settled" && settled.expiresAt,
      );
    }
    expect(statements).toHaveLength(2);
  });
});

it("what the truth replayed once is replayed by the front from then on", async () => {
  const [one, plain] = [await started(), postgresStore(database.pool())];
  const first = fresh();
  await plain.settle(await leaseOf(plain, first), complete);
  expect(await asked(one, () => one.store.reserve(again(first)))).toBe(1);
  await eventually(async () => (await asked(one, () => one.store.reserve(again(first)))) === 0);
});

it("a completing phase fills the front as well", async () => {
  const one = await started();
  const first = fresh();
  const lease = await leaseOf(one.store, first);
  const commit = () => ({ progress: [], onCrash: "retry", messages: [], response: complete }) as const;
  expect(await one.store.transact?.(lease, () => "done", commit)).toMatchObject({
    kind: "committed",
    result: "done",
  });
  expect(await asked(one, () => one.store.reserve(again(first)))).toBe(0);
});

it("another fingerprint, a worker and an accepting route are answered by the truth", async () => {
  const one = await started();
  const first = fresh();
  await one.store.settle(await leaseOf(one.store, first), complete);
  const answers = [
    await one.store.reserve(again(first, { fingerprint: "v1:other" })),
    await one.store.reserve(again(first, { mode: "claim" })),
    await one.store.reserve(again(first, { mode: "accept" })),
  ];
  expect(answers.map(({ kind }) => kind)).toEqual(["mismatch", "replay", "replay"]);
  expect(one.truth.calls.reserve).toBeGreaterThanOrEqual(3);
});

it("a bust in one process empties the front for all, and the next answer is kept again", async () => {
  const [one, other] = [await started(), await started()];
  const [busted, bystander] = [fresh(), fresh()];
  for (const each of [busted, bystander]) await one.store.settle(await leaseOf(one.store, each), complete);
  expect(await asked(other, () => other.store.reserve(again(busted)))).toBe(0);
  await one.store.bust(busted, { by: "ada", reason: "wrong" });
  expect(await one.store.reserve(again(busted))).toMatchObject({ kind: "execute" });
  await eventually(async () => (await asked(other, () => other.store.reserve(again(bystander)))) === 1);
  expect(await other.store.reserve(again(busted))).toMatchObject({ kind: "inFlight" });
  await eventually(async () => (await asked(other, () => other.store.reserve(again(bystander)))) === 0);
});

it.each<[string, (one: Layered) => Store]>([
  ["a process with a front of its own", ({ store }) => store as Store],
  ["one that knows only the truth", () => postgresStore(database.pool())],
])("what %s forgets of a tenant is not replayed by the front, in any process", async (_, forgetterOf) => {
  const [one, other] = [await started(), await started()];
  const forgotten = fresh({ scope: "forgotten POST /rides" });
  await one.store.settle(await leaseOf(one.store, forgotten), complete);
  for (const each of [one, other]) {
    expect(await asked(each, () => each.store.reserve(again(forgotten)))).toBe(0);
  }
  expect(await forgetterOf(one).forgetTenant({ tenantScope: "forgotten", limit: 10 })).toMatchObject({
    removed: 1,
  });
  for (const each of [one, other]) {
    await eventually(async () => (await each.store.reserve(again(forgotten))).kind !== "replay");
    await inUse(each);
    expect(await each.store.reserve(again(forgotten))).toMatchObject({ kind: "inFlight" });
  }
});

it("whoever forgets a tenant does not wait for the news of it", async () => {
  const truth = faultyStore({
    store: postgresStore(database.pool(), { listen: true }) as Store,
    runtime: systemRuntime,
    choose: () => ({ kind: "none" }),
  });
  const deaf: FaultyStore = {
    ...truth,
    onBusted(listener) {
      listener.listening();
      return truth.onBusted?.({ listening() {}, busted() {}, interrupted() {} }) ?? (() => "");
    },
  };
  const { client, close } = ioredis(redis.url);
  const store = layeredStore(deaf, client, { frontTimeoutMs: 2_000 });
  cleanUp.push(close, () => store.close());
  await inUse({ store, truth } as Layered);
  const forgotten = fresh({ scope: "at-once" });
  await store.settle(await leaseOf(store, forgotten), complete);
  expect(await store.reserve(again(forgotten))).toMatchObject({ kind: "replay" });
  await store.forgetTenant({ tenantScope: "at-once", limit: 10 });
  expect(await store.reserve(again(forgotten))).toMatchObject({ kind: "execute", after: "absent" });
});

it("an answer that is larger than entryBytesMax is left to the truth", async () => {
  const one = await started({ entryBytesMax: 100 });
  for (const [bytes, truth] of [
    [100, 0],
    [101, 1],
  ] as const) {
    const first = fresh();
    const large = { ...complete, response: { ...response, body: new Uint8Array(bytes) } };
    await one.store.settle(await leaseOf(one.store, first), large as typeof complete);
    expect(await asked(one, () => one.store.reserve(again(first)))).toBe(truth);
  }
});

it("an outcome that is told twice is replayed as the truth has kept it", async () => {
  const one = await started();
  const first = fresh();
  const lease = await leaseOf(one.store, first);
  const second = { ...complete, response: { ...response, status: 500 } };
  await Promise.all([one.store.settle(lease, complete), one.store.settle(lease, second)]);
  for (let times = 0; times < 3; times += 1) {
    const { record } = await one.truth.read(first);
    const replay = await one.store.reserve(again(first));
    expect(record?.state === "completed" && replay.kind === "replay" && replay.response.status).toBe(
      record?.state === "completed" && record.response.status,
    );
  }
});

describe("a front that does not answer", () => {
  let proxy: TcpProxy;
  const through = () => `redis://127.0.0.1:${proxy.port}`;
  beforeAll(async () => {
    proxy = await startTcpProxy({ host: "127.0.0.1", port: redis.port });
  });
  afterEach(() => {
    proxy.flow();
    proxy.accept();
  });
  afterAll(() => proxy.close());

  /** How long each of some replays takes. */
  async function durations(layered: Layered, count: number): Promise<number[]> {
    const first = fresh();
    await layered.store.settle(await leaseOf(layered.store, first), complete);
    const took: number[] = [];
    for (let times = 0; times < count; times += 1) {
      const before = performance.now();
      expect(await layered.store.reserve(again(first))).toMatchObject({ kind: "replay" });
      took.push(performance.now() - before);
    }
    return took;
  }

  it("costs some requests frontTimeoutMs and the others nothing, and is asked again when it is back", async () => {
    const one = await started({ url: through(), frontTimeoutMs: 150 });
    proxy.stall();
    const took = await durations(one, 12);
    expect(took.slice(0, 4).every((ms) => ms >= 145)).toBe(true);
    expect(took.filter((ms) => ms >= 145).length).toBeLessThanOrEqual(6);
    proxy.flow();
    await eventually(() => isInUse(one));
  });

  it("changes no answer when its connection is cut and cannot be made again", async () => {
    const one = await started({ url: through(), frontTimeoutMs: 100 });
    proxy.refuse();
    proxy.cut();
    await durations(one, 8);
    proxy.accept();
    await eventually(() => isInUse(one), 10_000);
  });
});

it("entries are found only under the same prefix, and the client's own keyPrefix comes before it", async () => {
  const client = new Redis(redis.url, { lazyConnect: true, keyPrefix: "mine:" });
  const [one, other] = [
    layeredOver(database.pool(), { client, close: async () => client.disconnect() }, { prefix: "shop" }),
    await started({ prefix: "bank" }),
  ];
  cleanUp.push(one.close);
  await inUse(one);
  const first = fresh();
  await one.store.settle(await leaseOf(one.store, first), complete);
  expect(await asked(one, () => one.store.reserve(again(first)))).toBe(0);
  expect(await asked(other, () => other.store.reserve(again(first)))).toBe(1);
  expect((await observer.keys("mine:shop:front:*")).length).toBeGreaterThan(0);
});

it("nothing in Redis tells a key, a scope or a fingerprint, and everything there is forgotten some day", async () => {
  const one = await started({ prefix: "discreet" });
  const first = fresh({ scope: "acme-corp", key: "order-4711", fingerprint: "v1:secret" });
  await one.store.settle(await leaseOf(one.store, first), { ...complete, retentionMs: 1e12 });
  const names = await observer.keys("discreet:*");
  for (const name of names) {
    const text = name + (await observer.get(name));
    expect(text).not.toMatch(/acme|4711|secret/);
    const ttlMs = await observer.pttl(name);
    expect(ttlMs).toBeGreaterThan(0);
    expect(ttlMs).toBeLessThanOrEqual(24 * 60 * 60 * 1000);
  }
});

it("what cannot be a truth, and options that mean nothing, are refused with what to do", () => {
  const { client } = ioredis(redis.url);
  const listening = () => postgresStore(database.pool(), { listen: true });
  const { bustGeneration: _, ...withoutGeneration } = memoryStore() as Store & { bustGeneration?: unknown };
  expect(() => layeredStore(postgresStore(database.pool()), client)).toThrow(
    /the postgres store.*listen: true/,
  );
  expect(() => layeredStore(withoutGeneration as Store, client)).toThrow(/listen: true/);
  expect(() => layeredStore(listening(), client, { frontTimeoutMs: 0 })).toThrow(/frontTimeoutMs is 0/);
  expect(() => layeredStore(listening(), client, { entryBytesMax: 1.5 })).toThrow(/entryBytesMax is 1.5/);
  const advisory = postgresStore(database.pool(), { lock: "advisory" });
  expect(() => layeredStore(advisory, client, { inFlight: true })).toThrow(/leave out inFlight/);
  expect(() => layeredStore(listening(), {} as typeof client)).toThrow(/createClient/);
});
