import { beforeAll, expect, it } from "vitest";
import type { Store } from "../../src/core/store.ts";
import { type MysqlConnection, mysqlStore } from "../../src/stores/mysql/store.ts";
import { again, leaseOf, request, stagedPool, useMysql } from "./mysql-support.ts";

const files = useMysql();
const complete = {
  kind: "complete",
  response: { kind: "full", status: 201, headers: [], body: new Uint8Array(300) },
  retentionMs: 60_000,
} as const;

let store: Store<MysqlConnection>;
let sent: string[] = [];

beforeAll(() => {
  store = mysqlStore(
    stagedPool(files.pool(), (sql, send) => {
      sent.push(sql);
      return send();
    }),
  );
});

/** How many statements the store sends for it; each is a round trip. */
async function roundTrips(run: () => Promise<unknown>): Promise<number> {
  sent = [];
  await run();
  return sent.length;
}

it("a fresh request costs two round trips, a replay one", async () => {
  const wanted = request();
  const fresh = async () => store.settle(await leaseOf(store, wanted), complete);
  expect(await roundTrips(fresh)).toBe(2);
  expect(await roundTrips(() => store.reserve(again(wanted)))).toBe(1);
});

it("so do all who are only told something", async () => {
  const wanted = request();
  const lease = await leaseOf(store, wanted);
  expect(await roundTrips(() => store.reserve(again(wanted)))).toBe(1);
  expect(await roundTrips(() => store.reserve(again(wanted, { fingerprint: "v1:other" })))).toBe(1);
  expect(await roundTrips(() => store.read(wanted))).toBe(1);
  expect(await roundTrips(() => store.settle({ ...lease, owner: "somebody else" }, complete))).toBe(1);
  expect(await roundTrips(() => store.settle(lease, complete))).toBe(1);
  expect(await roundTrips(() => store.settle(lease, complete))).toBe(1);
});

it("a request that is kept for a worker costs one, and so do the heartbeats of fifty executions", async () => {
  expect(await roundTrips(() => store.reserve(request({ mode: "accept" })))).toBe(1);
  const leases = await Promise.all(Array.from({ length: 50 }, () => leaseOf(store, request())));
  expect(await roundTrips(() => store.renew(leases, 60_000))).toBe(1);
  const [first] = leases;
  if (first === undefined) expect.fail("there is a first");
  const progress = [{ kind: "atomic", name: "a", result: "1" }] as const;
  expect(await roundTrips(() => store.advance(first, { progress, onCrash: "resume" }))).toBe(1);
});

it("neither depends on how many records there are", async () => {
  await files.query(`
    INSERT INTO latchkey_records (
           id, scope, record_key, state, fingerprint, fence, on_crash, created_at, expires_at, owner, reconcile_ms,
           completed_at, response_status, response_head, job, due_at)
    SELECT UNHEX(SHA2(CONCAT(a.lane, ' ', b.lane), 256)), 'many', CONCAT(a.lane, ' ', b.lane), 'completed', 'f', 1, 'retry',
           1, 8640000000000000, 'o', 1, 1, 200, '{}', 'settled', 8640000000000000
      FROM latchkey_lanes AS a CROSS JOIN latchkey_lanes AS b`);
  await files.query(`
    INSERT INTO latchkey_notes (name, version, value)
    SELECT CONCAT(a.lane, ' ', b.lane), '', '' FROM latchkey_lanes AS a CROSS JOIN latchkey_lanes AS b`);
  const wanted = request();
  const lease = await leaseOf(store, wanted);
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    "a new request": () => store.reserve(request()),
    "a duplicate": () => store.reserve(again(wanted)),
    "a heartbeat": () => store.renew([lease], 60_000),
    "a phase": () =>
      store.transact?.(
        lease,
        () => 1,
        () => ({ progress: [], onCrash: "retry", messages: [] }),
      ) ?? expect.fail("there are transactions"),
    "a look": () => store.read(wanted),
    "a completion": () => store.settle(lease, complete),
    "a bust": () => store.bust(wanted, { by: "Ada", reason: "to see" }),
    "the sweeper": () => store.sweep({ limit: 10, unclaimed: complete.response }),
    "the reaper": () => store.reap({ limit: 10, expiry: "delete" }),
    "the reconciler": () => store.claimUnknown({ limit: 10, backoff: { baseMs: 1, capMs: 1 } }),
    "the completer": () =>
      store.claimResumable({ limit: 10, attemptsMax: 3, backoff: { baseMs: 1, capMs: 1 } }),
    "forgetting a tenant": () => store.forgetTenant({ tenantScope: "man", limit: 10 }),
    "counting unknown outcomes": () => store.unknownCounts(),
    "a look at a note": () => store.notes.read(["a", "b", "c"]),
    "a note": () =>
      store.notes.write([{ name: "a", expected: undefined, note: { value: "", version: "1" } }]),
  };
  for (const [name, call] of Object.entries(calls)) {
    const before = await rowsRead();
    await call();
    expect((await rowsRead()) - before, name).toBeLessThan(500);
  }
});

/** How many rows of all tables the server has looked at. */
async function rowsRead(): Promise<number> {
  const rows = await files.query<{ Value: string }>("SHOW GLOBAL STATUS LIKE 'Handler_read%'");
  return rows.reduce((sum, { Value }) => sum + Number(Value), 0);
}
