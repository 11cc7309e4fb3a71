import pg from "pg";
import postgres from "postgres";
import { afterEach, expect, it } from "vitest";
import type { RecordId } from "../../src/core/record.ts";
import type { Store } from "../../src/core/store.ts";
import * as statements from "../../src/stores/postgres/statements/sessions.ts";
import { recordName } from "../../src/stores/postgres/statements/sql.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { again, complete, eventually, leaseOf, request, unclaimed, useDatabase } from "./postgres-support.ts";

const database = useDatabase();
const cleanUp: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const step of cleanUp.splice(0)) await step();
  await eventually(async () => (await listenerPids()).length === 0);
});

/** A process that listens. */
function listening(options: { max?: number } = {}): Store {
  const store = postgresStore(database.pool(options), { listen: true });
  cleanUp.push(() => store.close());
  return store;
}

/** Counts the wake-ups for one record. */
async function watched(store: Store, id: RecordId) {
  const woken = { times: 0, unwatch: () => {} };
  woken.unwatch = (await store.watch?.(id, () => {
    woken.times += 1;
  })) as () => void;
  return woken;
}

async function listenerPids(): Promise<number[]> {
  const rows = await database.query<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND (query LIKE 'LISTEN%' OR query = $1)",
    [statements.pingSession],
  );
  return rows.map(({ pid }) => pid);
}

it("a settlement in one process wakes the waiter in another, within moments", async () => {
  const one = postgresStore(database.pool());
  const other = listening();
  const lease = await leaseOf(one, request());
  const woken = await watched(other, lease);
  const settledAt = performance.now();
  await one.settle(lease, complete);
  await eventually(() => woken.times === 1);
  expect(performance.now() - settledAt).toBeLessThan(1000);
});

it("a watch tells whether the request was running", async () => {
  const one = postgresStore(database.pool());
  const other = listening();
  const lease = await leaseOf(one, request());
  const isRunning = async (id: RecordId) => (await other.watch?.(id, () => {}))?.isRunning;
  expect(await isRunning(lease)).toBe(true);
  // Somebody waits already, and what has ended is not running.
  expect(await isRunning(lease)).toBe(false);
  await one.settle(lease, complete);
  expect(await isRunning(lease)).toBe(false);
  expect(await isRunning({ scope: lease.scope, key: "nobody's" })).toBe(false);
  const failed = await leaseOf(one, request());
  await one.settle(failed, { kind: "suspend", reason: "who knows", reconcileAfterMs: 60_000 });
  expect(await isRunning(failed)).toBe(false);
});

it("a watch does not wait for the disk, and whatever comes after it does", async () => {
  const pool = database.pool({ max: 1 });
  const lease = await leaseOf(postgresStore(pool), request());
  const waitsForDisk = async () => (await pool.query("SHOW synchronous_commit")).rows[0].synchronous_commit;
  await pool.query("BEGIN");
  await pool.query("SELECT latchkey_watch($1, $2)", [lease.scope, lease.key]);
  expect(await waitsForDisk()).toBe("off");
  await pool.query("COMMIT");
  expect(await waitsForDisk()).toBe("on");
});

it("postgres.js hears what a pg pool settles", async () => {
  const sql = postgres(database.url);
  const other = postgresStore(sql, { listen: true });
  const one = postgresStore(database.pool());
  const lease = await leaseOf(one, request());
  const woken = await watched(other, lease);
  await one.settle(lease, complete);
  await eventually(() => woken.times === 1);
  await other.close();
  await sql.end();
});

it("whoever stopped watching is not woken, and others are", async () => {
  const store = listening();
  const lease = await leaseOf(store, request());
  const gone = await watched(store, lease);
  const here = await watched(store, lease);
  const elsewhere = await watched(store, await leaseOf(store, request()));
  gone.unwatch();
  await store.settle(lease, complete);
  await eventually(() => here.times === 1);
  expect(gone.times).toBe(0);
  expect(elsewhere.times).toBe(0);
});

it("nothing is told about records for which nobody waits", async () => {
  const heard: (string | undefined)[] = [];
  const ear = new pg.Client({ connectionString: database.url });
  await ear.connect();
  ear.on("notification", ({ payload }) => heard.push(payload));
  await ear.query(statements.listen);

  const store = listening();
  const ignored = await leaseOf(store, request());
  const awaited = await leaseOf(store, request());
  await watched(store, awaited);
  await store.settle(ignored, complete);
  await store.settle(awaited, complete);
  await eventually(() => heard.length > 0);
  expect(heard).toEqual([recordName(awaited)]);
  await ear.end();
});

it("waiters are still told after somebody else has tried again", async () => {
  const store = listening();
  const first = request();
  const lease = await leaseOf(store, first);
  const woken = await watched(store, lease);
  await store.settle(lease, { kind: "release", reason: "not sent", retentionMs: 60_000 });
  await eventually(() => woken.times === 1);
  await store.settle(await leaseOf(store, again(first)), complete);
  await eventually(() => woken.times === 2);
});

it("the death of an owner wakes waiters, whether a request or the sweeper finds it", async () => {
  const store = listening();
  for (const discover of [
    (id: ReturnType<typeof request>) => store.reserve(again(id)),
    () => store.sweep({ limit: 1000, unclaimed }),
  ]) {
    // The name of a record is made in SQL too, and must be the same for any text.
    const first = request({ leaseMs: 0, scope: "ten\\ant ☃ 🙂", key: `'key" ☃ 🙂 ${discover}` });
    await leaseOf(store, first);
    const woken = await watched(store, first);
    await discover(first);
    await eventually(() => woken.times === 1);
  }
});

it("without waiters no connection is kept, and with any number only one", async () => {
  const store = listening({ max: 3 });
  const leases = await Promise.all(Array.from({ length: 10 }, () => leaseOf(store, request())));
  expect(await listenerPids()).toHaveLength(0);
  const woken = await Promise.all(leases.map((lease) => watched(store, lease)));
  expect(await listenerPids()).toHaveLength(1);
  await Promise.all(leases.map((lease) => store.settle(lease, complete)));
  await eventually(() => woken.every(({ times }) => times === 1));
});

it("after the listening connection was killed, push works again", async () => {
  const store = listening();
  const lease = await leaseOf(store, request());
  const woken = await watched(store, lease);
  const [killed] = await listenerPids();
  await database.query("SELECT pg_terminate_backend($1)", [killed]);
  // It comes back by itself: the waiter from before is woken without having to watch again.
  await eventually(async () => (await listenerPids()).some((pid) => pid !== killed));
  await store.settle(lease, complete);
  await eventually(() => woken.times === 1);
});

it("a waiter is told at once when nothing can be heard, so that it asks more often", async () => {
  const unreachable = new pg.Pool({ connectionString: "postgres://nobody@127.0.0.1:1/nothing" });
  const store = postgresStore(unreachable, { listen: true });
  await expect(store.watch?.(request(), () => {})).rejects.toThrow(/ECONNREFUSED/);
  await store.close();
  await unreachable.end();

  const sql = postgres("postgres://nobody@127.0.0.1:1/nothing", { backoff: () => 60 });
  const other = postgresStore(sql, { listen: true });
  await expect(other.watch?.(request(), () => {})).rejects.toThrow(/cannot be heard/);
  await expect(other.watch?.(request(), () => {})).rejects.toThrow(/cannot be heard/);
  await other.close();
  await sql.end({ timeout: 0 });
});

it("an idle connection that the server closes does not end the process", async () => {
  const pool = database.pool({ max: 1 });
  postgresStore(pool);
  const { rows } = await pool.query("SELECT pg_backend_pid() AS pid");
  const removed = new Promise((resolve) => pool.once("remove", resolve));
  await database.query("SELECT pg_terminate_backend($1)", [rows[0].pid]);
  await removed;
  expect(pool.listenerCount("error")).toBe(1);
  postgresStore(pool);
  expect(pool.listenerCount("error")).toBe(1);
});
