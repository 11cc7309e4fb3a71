import pg from "pg";
import postgres from "postgres";
import { beforeAll, describe, expect, it } from "vitest";
import { decide } from "../../src/core/decide.ts";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import { encodeProgress, type Progress } from "../../src/core/phase.ts";
import type { OnCrash, RecordState } from "../../src/core/record.ts";
import type { ReserveMode, Store } from "../../src/core/store.ts";
import { accepted, crashed, reserved } from "../../src/core/transition.ts";
import { auditTrail } from "../../src/stores/postgres/statements/audit.ts";
import { bust } from "../../src/stores/postgres/statements/busting.ts";
import { advance, phase } from "../../src/stores/postgres/statements/phases.ts";
import { reapDeleting, reapMarking } from "../../src/stores/postgres/statements/reaping.ts";
import * as statements from "../../src/stores/postgres/statements/records.ts";
import { unusualOf } from "../../src/stores/postgres/statements/sql.ts";
import * as upkeep from "../../src/stores/postgres/statements/upkeep.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { freshDatabase } from "../support/database.ts";
import { again, complete, leaseOf, request, spied, unclaimed, useDatabase } from "./postgres-support.ts";

const database = useDatabase();
let pool: pg.Pool;
let store: Store;

beforeAll(() => {
  pool = database.pool();
  store = postgresStore(pool);
});

describe("what a request costs", () => {
  async function statementsFor(work: (store: Store) => Promise<unknown>): Promise<number> {
    let sent = 0;
    const counting = spied(pool, () => {
      sent += 1;
    });
    await work(postgresStore(counting));
    return sent;
  }

  it("a fresh request takes two statements, a replay one", async () => {
    const first = request();
    expect(await statementsFor(async (s) => s.settle(await leaseOf(s, first), complete))).toBe(2);
    expect(await statementsFor((s) => s.reserve(again(first)))).toBe(1);
    expect(await statementsFor((s) => s.reserve(again(first, { fingerprint: "v1:other" })))).toBe(1);
  });

  it("a heartbeat takes one statement, for any number of leases", async () => {
    const leases = await Promise.all(Array.from({ length: 20 }, () => leaseOf(store, request())));
    expect(await statementsFor((s) => s.renew(leases, 60_000))).toBe(1);
    expect(await statementsFor((s) => s.renew([], 60_000))).toBe(0);
  });

  /** Where the row is and which transactions have touched it, lock it or rewrote it. */
  async function rowVersion(id: { scope: string; key: string }): Promise<unknown> {
    const [row] = await database.query(
      "SELECT ctid::text, xmin::text, xmax::text FROM latchkey_records WHERE scope = $1 AND key = $2",
      [id.scope, id.key],
    );
    expect(row).toBeDefined();
    return row;
  }

  it("a replay, a mismatch, an in-flight and an unknown answer only read", async () => {
    const running = request();
    await leaseOf(store, running);
    const completed = request();
    await store.settle(await leaseOf(store, completed), complete);
    const unknown = request();
    const suspended = { kind: "suspend", reason: "no answer", reconcileAfterMs: 1 } as const;
    await store.settle(await leaseOf(store, unknown), suspended);
    const cases = [
      { kind: "inFlight", asked: running },
      { kind: "replay", asked: completed },
      { kind: "unknown", asked: unknown },
      ...[running, completed, unknown].map((first) => ({
        kind: "mismatch",
        asked: { ...first, fingerprint: "v1:other" },
      })),
    ];
    for (const { kind, asked } of cases) {
      const before = await rowVersion(asked);
      expect(await store.reserve(again(asked))).toMatchObject({ kind });
      expect(await rowVersion(asked), kind).toEqual(before);
    }
  });

  it("with 20,000 records, what every request needs is found by an index", async () => {
    await database.query(`
      INSERT INTO latchkey_records (
        scope, key, state, fingerprint, fence, on_crash, owner, lease_until, created_at, expires_at)
      SELECT 'crowd', n::text, 'in_progress', 'v1:first', 1, 'retry', 'somebody', now() + interval '1 hour', now(),
        now() + interval '1 day'
      FROM generate_series(1, 20000) AS n`);
    await database.query("ANALYZE latchkey_records");
    const id = ["crowd", "77"];
    const held = [...id, 1, "somebody"];
    const reserving = [...id, "v1:first", "retry", "me", null, 1, 1, "in_progress", "route", null, null, 1];
    const response = [200, "{}", Buffer.of(1)];
    const plans = {
      reserve: [statements.reserve, reserving],
      takeOver: [statements.takeOver, [...reserving, 1, "in_progress", false, 2, "me", "why"]],
      suspendCrashed: [statements.suspendCrashed, [...held, "reason", "name", "me"]],
      complete: [statements.complete, [...held, ...response, 1, "name"]],
      giveUpLease: [statements.giveUpLease, [...held, "unknown", "reason", null, null, 1, "name"]],
      advance: [advance, [...held, "{}", "resume"]],
      phase: [
        phase({ completes: true, enqueues: true }),
        [...held, "mark", "{}", "resume", ...response, 1, "name", "[]"],
      ],
      resolve: [
        upkeep.resolve,
        [...id, 1, "me", "why", "completed", 1, null, false, null, ...response, "name"],
      ],
      bust: [bust, [...id, 1, "me", "why", "payload"]],
      claimResumable: [upkeep.claimResumable, [10, 1, 1, 20, 3, "me", "why"]],
      claimUnknown: [upkeep.claimUnknown, [10, 1, 1, 20]],
      audit: [auditTrail({ before: false, scope: true, key: true }), [10, ...id]],
      renew: [statements.renew, ["{crowd}", "{77}", "{1}", "{somebody}", 1]],
      read: [statements.read, id],
      sweep: [upkeep.sweep, [10, "reason", "me", "why", "why not", ...response]],
      reapDeleting: [reapDeleting(), [10, null]],
      reapMarking: [reapMarking, [10, 1]],
    } as const;
    for (const [name, [text, values]] of Object.entries(plans)) {
      const rows = await database.query<{ "QUERY PLAN": string }>(`EXPLAIN ${text}`, [...values]);
      const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
      expect(plan, name).toMatch(/Index (Only )?Scan|Bitmap Index Scan/);
      expect(plan, name).not.toMatch(/Seq Scan on latchkey_records/);
    }
  });
});

describe("every record that there can be", () => {
  interface Found {
    state: RecordState;
    owner: "alive" | "dead";
    retention: "running" | "over";
    onCrash: OnCrash;
    fingerprint: "same" | "other";
    waitsForWorker: boolean;
    mode: ReserveMode;
  }

  const founds: Found[] = [];
  for (const state of [
    "pending",
    "in_progress",
    "completed",
    "failed_retryable",
    "unknown",
    "expired",
  ] as const)
    for (const owner of state === "in_progress" ? (["alive", "dead"] as const) : (["dead"] as const))
      for (const retention of ["running", "over"] as const)
        for (const onCrash of ["reconcile", "resume", "retry"] as const)
          for (const fingerprint of ["same", "other"] as const)
            for (const mode of ["execute", "accept", "claim"] as const)
              for (const waitsForWorker of mayWaitForWorker(state))
                founds.push({ state, owner, retention, onCrash, fingerprint, waitsForWorker, mode });

  function mayWaitForWorker(state: RecordState): readonly boolean[] {
    if (state === "pending") return [true];
    return state === "failed_retryable" ? [true, false] : [false];
  }

  const written: Progress = [{ kind: "atomic", name: "first", result: '{"id":1}' }];

  /** Writes the record past the store. */
  async function insert(id: { scope: string; key: string }, found: Found): Promise<void> {
    const future = "date_trunc('milliseconds', now()) + interval '1 hour'";
    const past = "date_trunc('milliseconds', now()) - interval '1 hour'";
    const only = (state: RecordState, value: string) => (found.state === state ? value : "NULL");
    await database.query(
      `INSERT INTO latchkey_records (
         scope, key, state, fingerprint, fence, on_crash, owner, lease_until, reconcile_after, reason,
         response_status, response_head, completed_at, created_at, expires_at, route, progress, resume_after, unusual)
       VALUES (
         $1, $2, $3, 'v1:same', 7, $4, 'somebody',
         ${only("in_progress", found.owner === "alive" ? future : past)},
         ${only("unknown", future)},
         ${["unknown", "failed_retryable"].includes(found.state) ? "'a reason'" : "NULL"},
         ${only("completed", "200")}, ${only("completed", `'{"v":1,"headers":[]}'`)}, ${only("completed", past)},
         ${past}, ${found.retention === "running" ? future : past}, 'a route',
         '${encodeProgress(written)}', ${found.waitsForWorker ? past : "NULL"}, ${unusualOf("$3")})`,
      [id.scope, id.key, found.state, found.onCrash],
    );
  }

  it.each(founds)(
    "$state, $owner owner, retention $retention, $onCrash, $fingerprint fingerprint, waits $waitsForWorker, $mode",
    async (found) => {
      // The policy of the request that comes now differs from the one that the record was made under.
      const { mode } = found;
      const arriving = request({
        fingerprint: `v1:${found.fingerprint}`,
        onCrash: "resume",
        route: "new",
        mode,
      });
      await insert(arriving, found);
      const { record, now } = await store.read(arriving);
      const decision = decide(record, arriving, now);
      const answer = await store.reserve(arriving);
      const after = await store.read(arriving);

      switch (decision.kind) {
        case "execute": {
          const { scope, key, owner } = arriving;
          const { fence, progress, createdAt } = decision;
          expectSoonAfter(answer, {
            kind: "execute",
            after: decision.after,
            lease: { scope, key, owner, fence },
            progress,
            createdAt,
          });
          const isNewUse = decision.after === "expired";
          const expected = reserved(record, arriving, { fence, isNewUse }, now);
          expectSoonAfter(after.record, expected);
          return;
        }
        case "accept":
          expect(answer).toEqual({ kind: "pending" });
          expectSoonAfter(after.record, accepted(record, arriving, decision, now));
          return;
        case "suspend":
          // What the record was made under, not what the request that came now says.
          expect(answer).toEqual({ kind: "unknown", retryAfterMs: 30_000, discovered: true });
          expectSoonAfter(after.record, crashed(decision.record, now, { isRequestKept: false }));
          return;
        case "replay":
        case "inFlight":
        case "unknown":
          expectSoonAfter(
            answer,
            decision.kind === "unknown" ? { ...decision, discovered: false } : decision,
          );
          break;
        default:
          expect(answer).toEqual(decision);
      }
      expect(after.record).toEqual(record);
    },
  );

  const counts = new Set(["fence", "reconcileAttempts", "claims", "reconcileAfterMs"]);

  /** Equal but for times, which are in hours here and may be off by the second that the statements took. */
  function expectSoonAfter(actual: unknown, expected: object): void {
    const numbers = Object.entries(expected).filter(([, value]) => typeof value === "number");
    expect(actual).toEqual({
      ...expected,
      ...Object.fromEntries(
        numbers.map(([name, value]) => [name, counts.has(name) ? value : expect.closeTo(value, -3.3)]),
      ),
    });
  }
});

describe("who comes in between", () => {
  /** A store before whose first such statement something happens. */
  function interrupted(statement: string, meanwhile: () => Promise<unknown>): Store {
    let happened = false;
    return postgresStore(
      spied(pool, async (text) => {
        if (text !== statement || happened) return;
        happened = true;
        await meanwhile();
      }),
      { groupCommit: false },
    );
  }

  it.each(["retry", "reconcile"] as const)(
    "an owner that renews at the last moment keeps its key (%s)",
    async (onCrash) => {
      const first = request({ leaseMs: 0, onCrash });
      const lease = await leaseOf(store, first);
      const statement = onCrash === "retry" ? statements.takeOver : statements.suspendCrashed;
      const late = interrupted(statement, () => store.renew([lease], 60_000));
      expect(await late.reserve(again(first))).toMatchObject({ kind: "inFlight" });
      expect(await store.settle(lease, complete)).toMatchObject({ kind: "settled" });
    },
  );

  it.each(["retry", "reconcile"] as const)(
    "an owner that completes at the last moment is replayed (%s)",
    async (onCrash) => {
      const first = request({ leaseMs: 0, onCrash });
      const lease = await leaseOf(store, first);
      const statement = onCrash === "retry" ? statements.takeOver : statements.suspendCrashed;
      const late = interrupted(statement, () => store.settle(lease, complete));
      expect(await late.reserve(again(first))).toMatchObject({ kind: "replay" });
    },
  );

  it("a faster request takes the key, and the slower one is told that it is in flight", async () => {
    const first = request({ leaseMs: 0, onCrash: "retry" });
    await leaseOf(store, first);
    const late = interrupted(statements.takeOver, () => leaseOf(store, again(first, { leaseMs: 60_000 })));
    expect(await late.reserve(again(first))).toMatchObject({ kind: "inFlight" });
  });

  it("the same settlement told twice at the same time is settled for both", async () => {
    const lease = await leaseOf(store, request());
    const blocker = await pool.connect();
    await blocker.query("BEGIN");
    await blocker.query("SELECT FROM latchkey_records WHERE scope = $1 AND key = $2 FOR UPDATE", [
      lease.scope,
      lease.key,
    ]);
    const both = Promise.all([store.settle(lease, complete), store.settle(lease, complete)]);
    await new Promise((resolve) => setTimeout(resolve, 100));
    await blocker.query("COMMIT");
    blocker.release();
    const [one, other] = await both;
    expect(one).toMatchObject({ kind: "settled" });
    expect(other).toEqual(one);
  });

  it("a record that changes all the time is given up on", async () => {
    let sent = 0;
    const restless = postgresStore(
      {
        async query() {
          sent += 1;
          return { rows: [{ now: 0, inserted: false, state: null }] };
        },
        connect: () => pool.connect(),
        on: () => {},
      },
      { groupCommit: false },
    );
    await expect(restless.reserve(request())).rejects.toThrow(/changed during each of 10 attempts/);
    expect(sent).toBe(10);
  });
});

it("keys of any text are renewed, in order", async () => {
  const keys = ["NULL", "", "{a,b}", 'quo"te', "back\\slash", " space ", "comma,", "🙂"];
  const leases = await Promise.all(keys.map((key) => leaseOf(store, request({ scope: `{"${key}"}`, key }))));
  const stranger = { ...request(), fence: 1 };
  expect(await store.renew([...leases, stranger], 60_000)).toEqual([...keys.map(() => "held"), "lost"]);
});

it("all times are whole milliseconds, so that SQL and decide never disagree on one", async () => {
  const first = request({ leaseMs: 1000.7, retentionMs: 1000.3 });
  const lease = await leaseOf(store, first);
  const running = await store.read(first);
  await store.settle(lease, { ...complete, retentionMs: 999.9 });
  const completed = await store.read(first);
  for (const reading of [running, completed]) {
    const times = Object.entries({ ...reading.record, now: reading.now }).filter(
      ([, v]) => typeof v === "number",
    );
    expect(times.length).toBeGreaterThan(4);
    for (const [name, time] of times) expect(time, name).toSatisfy(Number.isInteger);
  }
});

it("the sweeper and the reaper pass by what others hold", async () => {
  const dead = request({ scope: "held", leaseMs: 0 });
  const over = request({ scope: "held" });
  const kept = request({ scope: "held" });
  await leaseOf(store, dead);
  await store.settle(await leaseOf(store, kept), { ...complete, retentionMs: 0 });
  await store.reap({ limit: 1000, expiry: "soft" });
  await store.settle(await leaseOf(store, over), { ...complete, retentionMs: 0 });

  const holder = await pool.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT FROM latchkey_records WHERE scope = 'held' FOR UPDATE");
  await store.sweep({ limit: 1000, unclaimed });
  await store.reap({ limit: 1000, expiry: "soft" });
  await store.reap({ limit: 1000, expiry: "delete" });
  await holder.query("ROLLBACK");
  holder.release();

  const states = async () =>
    Promise.all([dead, over, kept].map(async (id) => (await store.read(id)).record?.state ?? "absent"));
  expect(await states()).toEqual(["in_progress", "completed", "expired"]);
  await store.sweep({ limit: 1000, unclaimed });
  await store.reap({ limit: 1000, expiry: "delete" });
  expect(await states()).toEqual(["unknown", "absent", "absent"]);
});

it("the reaper turns back to what others held when it came by", async () => {
  const reaper = postgresStore(pool);
  const reapOne = async () => (await reaper.reap({ limit: 1, expiry: "delete" })).deleted;
  while ((await reapOne()) > 0);
  const held = request({ scope: "turning back" });
  for (const each of [held, request(), request()]) {
    await store.settle(await leaseOf(store, each), { ...complete, retentionMs: 0 });
    await database.query(
      "UPDATE latchkey_records SET expires_at = now() - $3::int * interval '1 hour' WHERE scope = $1 AND key = $2",
      [each.scope, each.key, each === held ? 2 : 1],
    );
  }
  const holder = await pool.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT FROM latchkey_records WHERE scope = $1 FOR UPDATE", [held.scope]);
  expect([await reapOne(), await reapOne()]).toEqual([1, 1]);
  await holder.query("ROLLBACK");
  holder.release();
  expect(await reapOne()).toBe(1);
  expect((await store.read(held)).record).toBeUndefined();
});

it("a retention without an end lasts for a thousand years", async () => {
  const forever = { retentionMs: Number.POSITIVE_INFINITY };
  const first = request(forever);
  const answer = await store.settle(await leaseOf(store, first), { ...complete, ...forever });
  const { record, now } = await store.read(first);
  expect(record?.state).toBe("completed");
  expect(answer).toEqual({ kind: "settled", expiresAt: record?.expiresAt });
  const years = ((record?.expiresAt ?? 0) - now) / (365 * 24 * 60 * 60 * 1000);
  expect(years).toBeCloseTo(1000);
  expect(await store.reap({ limit: 10, expiry: "delete" })).toMatchObject({ deleted: 0 });
});

it("a body of several megabytes comes back as it was", async () => {
  const body = new Uint8Array(5 * 1024 * 1024).map((_, index) => index * 31);
  const first = request();
  await store.settle(await leaseOf(store, first), {
    kind: "complete",
    response: { kind: "full", status: 200, headers: [], body },
    retentionMs: 60_000,
  });
  const replay = await store.reserve(again(first));
  if (replay.kind !== "replay" || replay.response.kind !== "full") throw new Error(replay.kind);
  expect(Buffer.compare(replay.response.body, body)).toBe(0);
});

describe("a store that cannot work says so", () => {
  it("without its tables, and names the cure", async () => {
    const empty = await freshDatabase();
    const emptyPool = new pg.Pool({ connectionString: empty.url });
    for (const options of [{}, { lock: "advisory" }] as const) {
      const tableless = postgresStore(emptyPool, options);
      await expect(tableless.reserve(request())).rejects.toThrow(StoreError);
      await expect(tableless.reserve(request())).rejects.toThrow(/run migrate\(pool\)/);
      await tableless.close();
    }
    await emptyPool.end();
    await empty.drop();
  });

  it("with something else than a client", () => {
    for (const client of [undefined, null, {}, "postgres://localhost", () => {}, new pg.Client()]) {
      expect(() => postgresStore(client as never)).toThrow(ConfigError);
    }
    expect(() => postgresStore(new pg.Client() as never)).toThrow(/not a single Client/);
  });

  it("with an option that is none", () => {
    expect(() => postgresStore(pool, { lock: "lock" as never })).toThrow(/"lease" or "advisory"/);
    expect(() => postgresStore(pool, { listen: "yes" as never })).toThrow(/true or false/);
  });

  it("with a driver that does not tell when a connection ends", () => {
    expect(() => postgresStore(postgres(), { lock: "advisory" })).toThrow(/pass a Pool of the package pg/);
  });

  it("with a pool too small to spare a connection", () => {
    const small = new pg.Pool({ max: 1 });
    expect(() => postgresStore(small, { lock: "advisory" })).toThrow(/raise its max/);
    expect(() => postgresStore(small, { listen: true })).toThrow(/raise its max/);
    expect(postgresStore(small).capabilities.push).toBe(false);
  });
});
