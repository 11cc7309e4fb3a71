import type pg from "pg";
import { afterEach, expect, it } from "vitest";
import type { ReserveRequest, Store } from "../../src/core/store.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { again, complete, eventually, leaseOf, request, unclaimed, useDatabase } from "./postgres-support.ts";

const database = useDatabase();
const cleanUp: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const step of cleanUp.splice(0)) await step();
  await eventually(async () => (await advisoryLocks()).length === 0);
});

/** A process that owns what it executes. `kill` ends its session as a dying machine would: without a word. */
function owning(options: pg.PoolConfig = {}, wrap: (pool: pg.Pool) => object = (pool) => pool) {
  const pool = database.pool(options);
  const store = postgresStore(wrap(pool) as pg.Pool, { lock: "advisory" });
  cleanUp.push(() => store.close());
  const process = { store, pool, timesLost: 0, kill };
  store.onOwnershipLost?.(() => {
    process.timesLost += 1;
  });
  return process;

  async function kill(): Promise<void> {
    const sessions = await sessionsOf(store);
    expect(sessions).toHaveLength(1);
    await database.query(`SELECT pg_terminate_backend(pid, 5000) ${fromOurLocks} AND objid = $1`, sessions);
  }
}

/** The numbers of the sessions under which this store reserves; found by reserving. */
async function sessionsOf(store: Store): Promise<number[]> {
  const lease = await leaseOf(store, request());
  const rows = await database.query<{ owner_session: number }>(
    "SELECT owner_session FROM latchkey_records WHERE scope = $1 AND key = $2",
    [lease.scope, lease.key],
  );
  await store.settle(lease, complete);
  return rows.map((row) => row.owner_session);
}

async function advisoryLocks(): Promise<{ mode: string }[]> {
  return database.query(`SELECT mode ${fromOurLocks}`);
}

/** The server is shared with other tests, whose sessions have the same numbers in other databases. */
const fromOurLocks = `
  FROM pg_locks
  WHERE locktype = 'advisory' AND classid = 'latchkey_records'::regclass
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

it("the end of a session frees its keys at once, though their leases are far from over", async () => {
  const dying = owning();
  const other = owning();
  const retried = request({ onCrash: "retry" });
  const reconciled = request({ onCrash: "reconcile" });
  const taken = await leaseOf(dying.store, retried);
  const suspended = await leaseOf(dying.store, reconciled);
  expect(await other.store.reserve(again(retried))).toMatchObject({ kind: "inFlight" });

  await dying.kill();
  expect(await other.store.reserve(again(retried))).toMatchObject({ kind: "execute", after: "crash" });
  expect(await other.store.reserve(again(reconciled))).toMatchObject({ kind: "unknown", discovered: true });
  await eventually(() => dying.timesLost === 1);
  expect(await dying.store.settle(taken, complete)).toEqual({ kind: "lost" });
  expect(await dying.store.settle(suspended, complete)).toEqual({ kind: "lost" });
  expect(await dying.store.renew([taken, suspended], 60_000)).toEqual(["lost", "lost"]);
  expect(other.timesLost).toBe(0);
});

it("fifty duplicates find a dead session at once, and do not hide it from each other", async () => {
  const dying = owning();
  const other = owning();
  const first = request({ onCrash: "reconcile" });
  await leaseOf(dying.store, first);
  await dying.kill();
  const answers = await Promise.all(Array.from({ length: 50 }, () => other.store.reserve(again(first))));
  expect(answers.map(({ kind }) => kind)).toEqual(answers.map(() => "unknown"));
});

it("a reader and the sweeper see the end of a session, and leave live ones alone", async () => {
  const dying = owning();
  const living = owning();
  const dead = request({ onCrash: "retry" });
  const alive = request({ onCrash: "retry" });
  await leaseOf(dying.store, dead);
  await leaseOf(living.store, alive);
  // What other tests have left behind.
  await living.store.sweep({ limit: 100, unclaimed });
  await dying.kill();
  const { record, now } = await living.store.read(dead);
  expect(record?.state === "in_progress" && record.leaseUntil <= now).toBe(true);
  expect(await living.store.sweep({ limit: 100, unclaimed })).toEqual({
    unknown: 0,
    retryable: 1,
    unclaimed: 0,
  });
  expect((await living.store.read(dead)).record?.state).toBe("failed_retryable");
  const other = await living.store.read(alive);
  expect(other.record?.state === "in_progress" && other.record.leaseUntil > other.now).toBe(true);
});

it("a process that goes by leases sees the end of a session too", async () => {
  const dying = owning();
  const first = request({ onCrash: "retry" });
  await leaseOf(dying.store, first);
  const plain = postgresStore(database.pool());
  expect(await plain.reserve(again(first))).toMatchObject({ kind: "inFlight" });
  await dying.kill();
  expect(await plain.reserve(again(first))).toMatchObject({ kind: "execute", after: "crash" });
});

it("a lease that nobody renews runs out, though its session lives", async () => {
  const { store } = owning();
  const first = request({ leaseMs: 0, onCrash: "retry" });
  await leaseOf(store, first);
  expect(await store.reserve(again(first))).toMatchObject({ kind: "execute", after: "crash" });
});

it("no connection is held for a request: twenty at once on a pool of two", async () => {
  const { store, pool } = owning({ max: 2 });
  const leases = await Promise.all(Array.from({ length: 20 }, () => leaseOf(store, request())));
  expect(pool.totalCount).toBe(2);
  expect(pool.idleCount).toBe(1);
  const answers = await Promise.all(leases.map((lease) => store.settle(lease, complete)));
  expect(answers.every(({ kind }) => kind === "settled")).toBe(true);
});

it("a session has one lock, and probes leave none behind", async () => {
  const one = owning();
  const other = owning();
  const first = request();
  await leaseOf(one.store, first);
  await Promise.all(Array.from({ length: 20 }, () => other.store.reserve(again(first))));
  const locks = await advisoryLocks();
  expect(locks).toHaveLength(2);
  expect(locks.every(({ mode }) => mode === "ExclusiveLock")).toBe(true);
});

it("after a loss the next reservation is owned by a new session, which lives", async () => {
  const process = owning();
  const other = owning();
  const [before] = await sessionsOf(process.store);
  await process.kill();
  await eventually(() => process.timesLost === 1);
  const first = request({ onCrash: "retry" });
  const lease = await leaseOf(process.store, first);
  const [after] = await sessionsOf(process.store);
  expect(after).toBeGreaterThan(before as number);
  expect(await other.store.reserve(again(first))).toMatchObject({ kind: "inFlight" });
  expect(await process.store.settle(lease, complete)).toMatchObject({ kind: "settled" });
  expect(process.timesLost).toBe(1);
});

it("a lease that comes when its session is gone is refused, and given back", async () => {
  let afterReserve: (() => Promise<void>) | undefined;
  const process = owning({}, (pool) => ({
    async query(statement: string | pg.QueryConfig, values?: unknown[]) {
      const answer = await pool.query(statement, values);
      const text = typeof statement === "string" ? statement : statement.text;
      if (text.includes("latchkey_reserve_one")) await afterReserve?.();
      return answer;
    },
    connect: () => pool.connect(),
    on: pool.on.bind(pool),
  }));
  const replayed = request();
  await process.store.settle(await leaseOf(process.store, replayed), complete);

  const killOnce = async () => {
    afterReserve = undefined;
    await process.kill();
    await eventually(() => process.timesLost > 0);
  };
  const first: ReserveRequest = request();
  afterReserve = killOnce;
  await expect(process.store.reserve(first)).rejects.toThrow(
    /session that was to own this execution has ended/,
  );
  // Nothing was executed, so nobody has to reconcile anything.
  expect(await process.store.reserve(again(first))).toMatchObject({
    kind: "execute",
    after: "failed_retryable",
  });

  // What gives no right to execute is true whoever asked.
  process.timesLost = 0;
  afterReserve = killOnce;
  expect(await process.store.reserve(again(replayed))).toMatchObject({ kind: "replay" });
});

it("closing ends the session and leaves the pool open", async () => {
  const process = owning();
  const other = owning();
  const first = request({ onCrash: "retry" });
  await leaseOf(process.store, first);
  await process.store.close();
  // Whatever still executes owns nothing any more, and has to know.
  expect(process.timesLost).toBe(1);
  await expect
    .poll(() => other.store.reserve(again(first)))
    .toMatchObject({ kind: "execute", after: "crash" });
  await expect(process.store.reserve(request())).rejects.toThrow(/closed/);
  expect((await process.pool.query("SELECT 1 AS one")).rows).toEqual([{ one: 1 }]);
  expect(process.pool.totalCount).toBe(1);
  await process.store.close();
});

it("many first requests at once open one session", async () => {
  const { store, pool } = owning();
  await Promise.all(Array.from({ length: 20 }, () => leaseOf(store, request())));
  expect(await advisoryLocks()).toHaveLength(1);
  expect(pool.totalCount).toBeLessThanOrEqual(10);
});

it("the session also hears notifications", async () => {
  const one = owning();
  const other = owning();
  const lease = await leaseOf(one.store, request());
  let woken = false;
  await other.store.watch?.(lease, () => {
    woken = true;
  });
  await one.store.settle(lease, complete);
  await eventually(() => woken);
  expect(one.store.capabilities).toMatchObject({ push: true, transactions: true, storeClock: true });
});
