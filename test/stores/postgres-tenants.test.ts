import { describe, expect, it } from "vitest";
import type { ReserveRequest, Store } from "../../src/core/store.ts";
import { forgetTenant, unknownCounts, unsettledOf } from "../../src/stores/postgres/statements/tenants.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { complete, eventually, leaseOf, request, useDatabase } from "./postgres-support.ts";

const database = useDatabase();

let sequence = 0;
function fresh(scope: string): ReserveRequest {
  sequence += 1;
  return request({ scope, key: `tenant-${sequence}` });
}

async function completed(store: Store, scope: string): Promise<ReserveRequest> {
  const wanted = fresh(scope);
  await store.settle(await leaseOf(store, wanted), complete);
  return wanted;
}

/** What means something in a pattern, a range or an escape, as a tenant's scope, and what it must not take for its own. */
const lookalikes: readonly (readonly [string, readonly string[]])[] = [
  ["a%", ["ab", "a%%", "abc POST /"]],
  ["a_b", ["axb", "axb POST /", "a_bc"]],
  ["back\\slash", ["backslash", "back\\slash!", "back\\slash\t"]],
  ["o'clock", ["o", "o'clock!x"]],
  ["upper", ["UPPER", "Upper POST /", "upper!"]],
];

describe.each(["postgres", "distributed"] as const)("engine: %s", (engine) => {
  it.each(lookalikes)("forgetting %j leaves %j alone", async (tenantScope, others) => {
    const pool = database.pool();
    await migrate(pool, { engine });
    const store = postgresStore(pool, { engine });
    const own = [await completed(store, tenantScope), await completed(store, `${tenantScope} POST /%_`)];
    const kept: ReserveRequest[] = [];
    for (const scope of others) kept.push(await completed(store, scope));
    expect(await store.forgetTenant({ tenantScope, limit: 100 })).toEqual({ removed: 2, unsettled: 0 });
    const states = async (of: readonly ReserveRequest[]) =>
      Promise.all(of.map(async (id) => (await store.read(id)).record?.state));
    expect(await states(own)).toEqual([undefined, undefined]);
    expect(await states(kept)).toEqual(others.map(() => "completed"));
  });
});

it("each batch that removes answers is told once, as everything, and one that removes none is not told", async () => {
  const heard: string[] = [];
  const listener = await database.pool().connect();
  listener.on("notification", ({ payload }) => heard.push(payload ?? ""));
  await listener.query("LISTEN latchkey");
  const store = postgresStore(database.pool());
  for (let nth = 0; nth < 5; nth += 1) await completed(store, "told");
  const failed = fresh("told POST /rides");
  const release = { kind: "release", reason: "no", retentionMs: 60_000 } as const;
  await store.settle(await leaseOf(store, failed), release);
  const removed: number[] = [];
  for (;;) {
    const counts = await store.forgetTenant({ tenantScope: "told", limit: 3 });
    removed.push(counts.removed);
    if (counts.removed === 0) break;
  }
  expect(removed).toEqual([3, 3, 1, 0]);
  await listener.query("SELECT 1");
  expect(heard).toEqual(["busted *", "busted *"]);
  listener.release(true);
});

it("those who listen in other processes begin anew, and go on listening", async () => {
  const other = postgresStore(database.pool(), { listen: true });
  const said: string[] = [];
  const name = other.onBusted?.({
    listening: () => void said.push("listening"),
    busted: (busted) => void said.push(busted),
    interrupted: () => void said.push("interrupted"),
  });
  await eventually(() => said.length > 0);
  const store = postgresStore(database.pool());
  await completed(store, "elsewhere");
  const bystander = await completed(store, "bystander");
  await store.forgetTenant({ tenantScope: "elsewhere", limit: 10 });
  await store.bust(bystander, { by: "ada", reason: "wrong" });
  await eventually(() => said.length === 4);
  expect(said).toEqual(["listening", "interrupted", "listening", name?.(bystander)]);
  await other.close();
});

it("the generation changes with the records, or not at all", async () => {
  const store = postgresStore(database.pool(), { listen: true });
  const generation = async () => (await store.bustGeneration?.())?.generation;
  const wanted = await completed(store, "all-or-nothing");
  const before = await generation();
  await database.query("ALTER TABLE latchkey_busts ADD CONSTRAINT locked CHECK (false) NOT VALID");
  await expect(store.forgetTenant({ tenantScope: wanted.scope, limit: 10 })).rejects.toThrow();
  await database.query("ALTER TABLE latchkey_busts DROP CONSTRAINT locked");
  expect((await store.read(wanted)).record?.state).toBe("completed");
  expect(await generation()).toBe(before);
  await store.forgetTenant({ tenantScope: wanted.scope, limit: 10 });
  expect(await generation()).not.toBe(before);
  await store.close();
});

it("what somebody has locked is waited for: nothing removed means that nothing is left", async () => {
  const store = postgresStore(database.pool());
  const wanted = await completed(store, "locked");
  const other = await database.pool().connect();
  await other.query("BEGIN");
  await other.query("SELECT 1 FROM latchkey_records WHERE scope = $1 AND key = $2 FOR UPDATE", [
    wanted.scope,
    wanted.key,
  ]);
  const forgetting = store.forgetTenant({ tenantScope: wanted.scope, limit: 10 });
  await eventually(async () => {
    const rows = await database.query(
      "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return rows.length > 0;
  });
  await other.query("COMMIT");
  other.release();
  expect(await forgetting).toEqual({ removed: 1, unsettled: 0 });
});

it("processes that forget one tenant at once, while it is at work, remove each thing once", async () => {
  const processes = Array.from({ length: 4 }, () => postgresStore(database.pool()));
  const [one] = processes as [Store];
  const own: ReserveRequest[] = [];
  for (let nth = 0; nth < 60; nth += 1) own.push(await completed(one, `crowd POST /${nth % 7}`));
  const working = await Promise.all(
    Array.from({ length: 10 }, async (_, nth) => leaseOf(one, fresh(`crowd POST /${nth}`))),
  );
  const counts = await Promise.all([
    ...processes.map(async (store) => {
      let total = 0;
      for (;;) {
        const { removed } = await store.forgetTenant({ tenantScope: "crowd", limit: 7 });
        if (removed === 0) return total;
        total += removed;
      }
    }),
    one.renew(working, 60_000).then((answers) => answers.filter((answer) => answer !== "held").length),
  ]);
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(own.length);
  expect(await one.forgetTenant({ tenantScope: "crowd", limit: 7 })).toEqual({
    removed: 0,
    unsettled: working.length,
  });
});

it("old messages, which do not say whose they are, are handed out all the same", async () => {
  const store = postgresStore(database.pool());
  await database.query(`
    INSERT INTO latchkey_outbox (lane, topic, payload, message_key, correlation_id, due_at, created_at)
    VALUES (0, 'receipt.send', '{}', 'lk_1', 'request-1', now(), now())`);
  const [message] = (await store.outbox?.claim({ owner: "relay", limit: 10, leaseMs: 60_000 })) ?? [];
  expect(message).toMatchObject({ scope: "", traceparent: null });
});

it("among many records of others, only indexes are read", async () => {
  await database.query(`
    INSERT INTO latchkey_records (scope, key, state, fingerprint, fence, on_crash, created_at, expires_at,
      completed_at, response_status, response_head)
    SELECT 'tenant-' || n % 1000 || ' POST /rides', n::text, 'completed', 'f', 1, 'retry', now(),
      now() + interval '1 day', now(), 200, '{"v":1}'
    FROM generate_series(1, 20000) AS n`);
  await database.query(`
    INSERT INTO latchkey_audit (at, scope, key, fence, from_state, to_state, actor, reason)
    SELECT now(), scope, key, fence, 'in_progress', state, 'test', 'because' FROM latchkey_records`);
  await database.query(`
    INSERT INTO latchkey_outbox (lane, topic, payload, message_key, correlation_id, due_at, created_at, died_at, error,
      scope)
    SELECT 0, 't', '{}', key, key, now(), now(), now(), 'no', scope FROM latchkey_records`);
  await database.query("ANALYZE latchkey_records, latchkey_audit, latchkey_outbox");
  for (const [statement, values] of [
    [forgetTenant, ["tenant-7", 100, ""]],
    [unsettledOf, ["tenant-7"]],
    [unknownCounts, []],
  ] as const) {
    const rows = await database.query<{ "QUERY PLAN": string }>(`EXPLAIN ${statement}`, [...values]);
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    expect(plan).not.toMatch(/Seq Scan on latchkey_(records|audit)/);
    if (statement === forgetTenant) {
      expect(plan).toMatch(/latchkey_records_pkey/);
      expect(plan).toMatch(/latchkey_outbox_scope/);
      expect(plan).toMatch(/latchkey_audit_record/);
      expect(plan).not.toMatch(/Seq Scan on latchkey_outbox/);
    }
  }
});
