import pg from "pg";
import postgres from "postgres";
import { afterEach, describe, expect, it } from "vitest";
import type { ReplayCacheOptions } from "../../src/engine/replay-cache.ts";
import { systemRuntime } from "../../src/engine/runtime.ts";
import { createLatchkey, type Latchkey } from "../../src/index.ts";
import { type PostgresStoreOptions, postgresStore } from "../../src/stores/postgres/store.ts";
import { type FaultyStore, faultyStore } from "../../src/testing/index.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { eventually, useDatabase } from "./postgres-support.ts";

const database = useDatabase();
const cleanUp: (() => Promise<unknown>)[] = [];
let sequence = 0;

afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});

interface Process {
  readonly latchkey: Latchkey;
  readonly store: FaultyStore;
  /** Executes the operation, or replays it: the number of the execution, in whichever process it was. */
  run(key: string, tenant?: string): Promise<number>;
  /** Whether the answer came without the store. */
  isCached(key: string): Promise<boolean>;
}

let executions = 0;

/** A process: a pool of its own, with a cache. */
function startProcess(
  options: PostgresStoreOptions & { readonly pool?: pg.Pool; readonly cache?: ReplayCacheOptions } = {},
): Process {
  const { pool = database.pool(), cache = {}, ...storeOptions } = options;
  const store = faultyStore({
    store: postgresStore(pool, { listen: true, ...storeOptions }),
    runtime: systemRuntime,
    choose: () => ({ kind: "none" }),
  });
  const latchkey = createLatchkey({ store, tenant: "single", cache, onInFlight: "wait" });
  cleanUp.push(() => latchkey.close());
  const run = (key: string, tenant = "acme") => latchkey.run({ tenant, key }, () => ++executions);
  return {
    latchkey,
    store,
    run,
    async isCached(key) {
      const before = store.calls.reserve;
      await run(key);
      return store.calls.reserve === before;
    },
  };
}

function newKey(): string {
  sequence += 1;
  return `key-${sequence}`;
}

const bustOf = (key: string) => ({ of: { tenant: "acme", key }, by: "ada" });

/** Waits until a process hears busts, and so keeps answers. */
async function hearing(...processes: readonly Process[]): Promise<void> {
  const key = newKey();
  for (const { isCached } of processes) await eventually(() => isCached(key));
}

/** Statements go past the proxy; only the connection that listens goes through it. */
async function poolThroughProxy(): Promise<{ readonly pool: pg.Pool; readonly proxy: TcpProxy }> {
  const url = new URL(database.url);
  const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
  url.port = String(proxy.port);
  const listening = new pg.Pool({ connectionString: url.href });
  listening.on("error", () => {}); // The store listens to the pool that it was given.
  cleanUp.push(
    () => proxy.close(),
    () => listening.end(),
  );
  const direct = database.pool();
  const pool = Object.assign(database.pool(), { connect: listening.connect.bind(listening) });
  pool.query = direct.query.bind(direct);
  return { pool, proxy };
}

describe.each<[string, PostgresStoreOptions]>([
  ["listen", { listen: true }],
  ["advisory locks", { lock: "advisory" }],
])("with %s", (_, options) => {
  it("a replay asks nobody, and a bust in one process is soon seen in all others", async () => {
    const [one, other, third] = [startProcess(options), startProcess(options), startProcess(options)];
    await hearing(one, other, third);
    const key = newKey();
    const first = await one.run(key);
    for (const { run, isCached } of [one, other, third]) {
      expect(await run(key)).toBe(first);
      expect(await isCached(key)).toBe(true);
    }
    const bustedAt = performance.now();
    expect(await one.latchkey.bust(bustOf(key))).toEqual({ kind: "busted" });
    await eventually(async () => (await other.run(key)) > first);
    expect(performance.now() - bustedAt).toBeLessThan(2_000);
    const second = await other.run(key);
    await eventually(async () => (await third.run(key)) === second);
    expect(await one.run(key)).toBe(second);
  });

  it("after the listening backend was killed nothing is replayed from memory until busts are heard again", async () => {
    const one = startProcess();
    const other = startProcess(options);
    await hearing(one, other);
    const keys = [newKey(), newKey()] as const;
    const first = [await other.run(keys[0]), await other.run(keys[1])];
    expect(await other.isCached(keys[0])).toBe(true);

    await database.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND query IN ('LISTEN latchkey', 'SELECT pg_backend_pid() AS pid')`,
    );
    // Nobody is told of this one: what shows it is that the answers were forgotten.
    await one.latchkey.bust(bustOf(keys[0]));
    await eventually(async () => (await other.run(keys[0])) > (first[0] ?? 0));
    expect(await other.run(keys[1])).toBe(first[1]);

    await eventually(() => other.isCached(keys[0]));
    await one.latchkey.bust(bustOf(keys[1]));
    await eventually(async () => (await other.run(keys[1])) > (first[1] ?? 0));
  });
});

it("while the listening connection is down every replay is the store's, and busts count at once", async () => {
  const { pool, proxy } = await poolThroughProxy();
  const [one, other] = [startProcess(), startProcess({ pool })];
  await hearing(one, other);
  const key = newKey();
  const first = await other.run(key);
  expect(await other.isCached(key)).toBe(true);

  proxy.refuse();
  proxy.cut();
  await eventually(async () => !(await other.isCached(key)));
  for (let times = 0; times < 5; times += 1) expect(await other.isCached(key)).toBe(false);
  await one.latchkey.bust(bustOf(key));
  const second = await other.run(key);
  expect(second).toBeGreaterThan(first);
  expect(await other.isCached(key)).toBe(false);

  proxy.accept();
  await eventually(() => other.isCached(key));
  expect(await other.run(key)).toBe(second);
});

it("a bust that races with replays in another process leaves nothing behind", async () => {
  const [one, other] = [startProcess(), startProcess()];
  await hearing(one, other);
  for (let round = 0; round < 40; round += 1) {
    const key = newKey();
    const first = await one.run(key);
    const replays = Array.from({ length: 3 }, async (_, index) => {
      await new Promise((resolve) => setTimeout(resolve, (index * round) % 5));
      return other.run(key);
    });
    await one.latchkey.bust(bustOf(key));
    await Promise.all(replays);
    await eventually(async () => (await other.run(key)) > first);
  }
});

it("one tenant's answers are neither given to another nor taken away with its key", async () => {
  const [one, other] = [startProcess(), startProcess()];
  await hearing(one, other);
  const key = newKey();
  const [acme, rival] = [await other.run(key, "acme"), await other.run(key, "rival")];
  expect(rival).not.toBe(acme);
  await one.latchkey.bust(bustOf(key));
  await eventually(async () => (await other.run(key, "acme")) > rival);
  const before = other.store.calls.reserve;
  expect(await other.run(key, "rival")).toBe(rival);
  expect(other.store.calls.reserve).toBe(before);
});

it("an answer is not replayed past its retention", async () => {
  const one = startProcess();
  await hearing(one);
  const key = newKey();
  const policy = { retentionMs: 400 };
  const run = () => one.latchkey.run({ tenant: "acme", key, policy }, () => ++executions);
  const first = await run();
  const before = one.store.calls.reserve;
  expect(await run()).toBe(first);
  expect(one.store.calls.reserve).toBe(before);
  await eventually(async () => {
    const [{ over } = { over: false }] = await database.query<{ over: boolean }>(
      "SELECT coalesce(kept_until, expires_at) <= now() AS over FROM latchkey_records WHERE key = $1",
      [key],
    );
    return over;
  });
  expect(await run()).toBeGreaterThan(first);
});

it("a cache is refused where busts cannot be heard, or not be missed knowingly", async () => {
  const create = (store: ReturnType<typeof postgresStore>) =>
    createLatchkey({ store, tenant: "single", cache: {} });
  expect(() => create(postgresStore(database.pool()))).toThrow(/the postgres store.*listen: true/);
  const sql = postgres(database.url);
  expect(() => create(postgresStore(sql, { listen: true }))).toThrow(/a Pool of the package pg/);
  await sql.end();
});

it("a process that cannot listen yet is served by the store, and listens when it can", async () => {
  const { pool, proxy } = await poolThroughProxy();
  proxy.refuse();
  const process = startProcess({ pool });
  const key = newKey();
  for (let times = 0; times < 3; times += 1) expect(await process.isCached(key)).toBe(false);
  proxy.accept();
  await eventually(() => process.isCached(key));
});
