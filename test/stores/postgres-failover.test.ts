import pg from "pg";
import postgres from "postgres";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { PhaseCommit, Store } from "../../src/core/store.ts";
import { pgDatabase } from "../../src/stores/postgres/pg.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres-store.ts";
import { migrate, type PostgresClient, postgresStore } from "../../src/stores/postgres/store.ts";
import { startPgBouncer } from "../support/pgbouncer.ts";
import { type PostgresPair, startPostgresPair } from "../support/postgres-standby.ts";
import type { ServerProcess } from "../support/server-process.ts";
import { startTcpProxy, type Target, type TcpProxy } from "../support/tcp-proxy.ts";
import { again, complete, eventually, leaseOf, request, send } from "./postgres-support.ts";

let pair: PostgresPair;
let proxy: TcpProxy;
/** Keeps connections of its own to whatever the proxy led to. */
let bouncer: ServerProcess;
/** Of what the application takes for the primary. */
let url: string;
const cleanUp: (() => unknown)[] = [];

beforeAll(async () => {
  pair = await startPostgresPair({ synchronous: true });
  proxy = await startTcpProxy(primary());
  url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres`;
  const pool = new pg.Pool({ connectionString: pair.primary.url });
  await migrate(pool);
  await pool.query("CREATE TABLE business (id text PRIMARY KEY)");
  await pool.end();
  await eventually(isMigrated);
  bouncer = await startPgBouncer(url);
}, 60_000);

/** The standby has everything when it is committed, and shows it a moment later. */
async function isMigrated(): Promise<boolean> {
  const client = new pg.Client({ connectionString: pair.standby.url });
  await client.connect();
  try {
    const { rows } = await client.query("SELECT to_regclass('business') IS NOT NULL AS there");
    return rows[0]?.there;
  } finally {
    await client.end();
  }
}

afterAll(async () => {
  await bouncer?.stop();
  await proxy?.close();
  await pair?.remove();
});

beforeEach(() => proxy.pointTo(primary()));

afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});

function primary(): Target {
  return { host: "127.0.0.1", port: pair.primary.port };
}

function standby(): Target {
  return { host: "127.0.0.1", port: pair.standby.port };
}

function pgPool(options: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 4, ...options });
  cleanUp.push(() => pool.end());
  return pool;
}

function postgresSql(): postgres.Sql {
  const sql = postgres(url, { max: 4, backoff: () => 0.05 });
  // Without a limit this driver (3.4.9) waits for ever for a connection that was lost in the middle of a statement.
  cleanUp.push(() => sql.end({ timeout: 1 }));
  return sql;
}

function opened<S extends { close(): Promise<void> }>(store: S): S {
  cleanUp.push(() => store.close());
  return store;
}

/** How many strangers are connected to the standby. */
async function connectedToStandby(): Promise<number> {
  const client = new pg.Client({ connectionString: pair.standby.url, application_name: "observer" });
  await client.connect();
  try {
    const { rowCount } = await client.query(
      "SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'observer'",
    );
    return rowCount ?? 0;
  } finally {
    await client.end();
  }
}

const commit = (): PhaseCommit => ({ progress: [], onCrash: "resume", messages: [] });

async function succeeds(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => true,
    () => false,
  );
}

const drivers: readonly [string, () => PostgresClient][] = [
  ["pg", pgPool],
  ["postgres", postgresSql],
  ["pg behind PgBouncer", () => pgPool({ connectionString: bouncer.url })],
];

describe.each(drivers)("connected to a standby: %s", (_name, client) => {
  it("nothing is executed, and after the way leads to the primary no connection stays behind", async () => {
    const store = postgresStore(client());
    proxy.pointTo(standby());
    proxy.cut();
    await eventually(async () => /read-only/.test(String(await store.reserve(request()).catch(String))));
    const refused = await Promise.allSettled(Array.from({ length: 8 }, () => store.reserve(request())));
    for (const outcome of refused) {
      expect(outcome).toMatchObject({ status: "rejected", reason: expect.any(StoreError) });
    }
    proxy.pointTo(primary());
    // Each connection that leads to the standby may fail once more.
    await eventually(async () => {
      await store.reserve(request()).catch(() => {});
      return (await connectedToStandby()) === 0;
    });
    await eventually(() => succeeds(leaseOf(store, request())));
    for (let times = 0; times < 8; times += 1) await leaseOf(store, request());
  });

  it("a phase that met the standby does not leave its connection in the pool", async () => {
    const store = postgresStore(client());
    const wanted = request();
    // What the test before has left in a pool between may have to be given up first.
    await eventually(() => succeeds(store.reserve(request())));
    const lease = await leaseOf(store, wanted);
    proxy.pointTo(standby());
    proxy.cut();
    // What the application makes of the error hides it.
    const booked = async (tx: Parameters<typeof send>[0]) => {
      await send(tx, "INSERT INTO business (id) VALUES ('on the standby')").catch((cause) => {
        throw new Error("could not book", { cause });
      });
    };
    await eventually(async () => {
      const failure = await store.transact?.(lease, booked, commit).catch((error: unknown) => error);
      return (failure as Error).message === "could not book";
    });
    proxy.pointTo(primary());
    await eventually(async () => (await connectedToStandby()) === 0);
    expect(await store.renew([lease], 60_000)).toEqual(["held"]);
  });
});

it("a connection to a host that has vanished is given up, and the pool gets others", async () => {
  const pool = pgPool({ max: 2 });
  const store = new PostgresStore(pgDatabase(pool, { silentMs: 300 }), {});
  const lease = await leaseOf(store, request());
  await Promise.all([leaseOf(store, request()), leaseOf(store, request())]);
  proxy.strand();
  // A crowd, so that both connections are tried.
  const asked = await Promise.allSettled(Array.from({ length: 20 }, () => store.reserve(request())));
  expect(asked.filter(({ status }) => status === "rejected").length).toBeGreaterThan(0);
  expect(await store.settle(lease, complete)).toMatchObject({ kind: "settled" });
});

it("a phase whose host has vanished is given up, and its connection with it", async () => {
  const pool = pgPool({ max: 1 });
  const store = new PostgresStore(pgDatabase(pool, { silentMs: 300 }), {});
  const lease = await leaseOf(store, request());
  const phase = store.transact(
    lease,
    () => proxy.strand(),
    () => ({ progress: [], onCrash: "retry", messages: [] }),
  );
  await expect(phase).rejects.toThrow(StoreError);
  expect(await store.settle(lease, complete)).toMatchObject({ kind: "settled" });
});

it("a pool's own limit for statements counts instead", async () => {
  const pool = pgPool({ max: 1, query_timeout: 200 });
  const store = postgresStore(pool);
  // After the first of them the store tries out a shorter way to call, over the same connection.
  for (let calls = 0; calls < 4; calls += 1) await leaseOf(store, request());
  proxy.strand();
  await expect(store.reserve(request())).rejects.toThrow(/timeout/);
  await leaseOf(store, request());
});

describe("a session that owns, when the standby takes over", () => {
  it("has a number that no record of the old primary carries, and its leases are lost", async () => {
    const store = opened(postgresStore(pgPool(), { lock: "advisory" }));
    const before = request();
    await leaseOf(store, before);
    let lost = 0;
    store.onOwnershipLost?.(() => {
      lost += 1;
    });
    await failOver();
    await eventually(() => lost === 1);
    const after = request();
    await eventually(() => succeeds(leaseOf(store, after)));
    const [then, now] = await Promise.all([sessionOf(before.key), sessionOf(after.key)]);
    expect(now).toBeGreaterThan(then as number);
    // Nobody waits for the lease of an owner that is gone.
    expect(await store.reserve(again(before))).toMatchObject({ kind: "unknown" });
  }, 30_000);

  it("lends its name to no record on another server than its own: there its lock would seem free", async () => {
    // Idle connections are closed at once, so that only the session's own stays with the old primary.
    const stores = [true, false].map((groupCommit) =>
      opened(postgresStore(pgPool({ idleTimeoutMillis: 1 }), { lock: "advisory", groupCommit })),
    );
    for (const store of stores) {
      const before = request();
      await leaseOf(store, before);
      expect(await sessionOf(before.key)).toEqual(expect.any(Number));
    }
    await pair.promote();
    await pair.reseed({ keepFormer: true });
    proxy.pointTo(primary());
    const stranger = opened(postgresStore(pgPool(), { lock: "advisory" }));
    for (const store of stores) {
      const alone = request({ onCrash: "retry" });
      const lease = await leaseOf(store, alone);
      expect(await sessionOf(alone.key)).toBeNull();
      expect(await stranger.reserve(again(alone))).toMatchObject({ kind: "inFlight" });
      const release = { kind: "release", reason: "test", retentionMs: 60_000 } as const;
      expect(await store.settle(lease, release)).toMatchObject({ kind: "settled" });
      // Taken again, by compare-and-set.
      await leaseOf(store, again(alone));
      expect(await sessionOf(alone.key)).toBeNull();
      const crowd = Array.from({ length: 8 }, () => request());
      await Promise.all(crowd.map((each) => leaseOf(store, each)));
      for (const { key } of crowd) expect(await sessionOf(key)).toBeNull();
    }
  }, 30_000);
});

async function failOver(): Promise<void> {
  await pair.primary.kill();
  await pair.promote();
  await pair.reseed();
  proxy.pointTo(primary());
}

async function sessionOf(key: string): Promise<number | null> {
  const client = new pg.Client({ connectionString: pair.primary.url });
  await client.connect();
  try {
    const { rows } = await client.query<{ owner_session: number | null }>(
      "SELECT owner_session FROM latchkey_records WHERE key = $1",
      [key],
    );
    return rows[0]?.owner_session ?? null;
  } finally {
    await client.end();
  }
}

it.each<[string, () => Store]>([
  ["pg", () => postgresStore(pgPool(), { listen: true })],
  ["postgres", () => postgresStore(postgresSql(), { listen: true })],
])(
  "those who wait are woken again after the standby has taken over: %s",
  async (_name, open) => {
    const store = opened(open());
    await store.watch?.(await leaseOf(store, request()), () => {});
    await failOver();
    await eventually(() => isWoken(store), 15_000);
  },
  30_000,
);

async function isWoken(store: Store): Promise<boolean> {
  const lease = await leaseOf(store, request()).catch(() => undefined);
  if (lease === undefined) return false;
  let woken = false;
  const wake = () => {
    woken = true;
  };
  if (!(await succeeds(store.watch?.(lease, wake) ?? Promise.reject()))) return false;
  await store.settle(lease, complete);
  return succeeds(eventually(() => woken, 300));
}
