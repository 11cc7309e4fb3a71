import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import type { RecordId } from "../../src/core/record.ts";
import type { Store } from "../../src/core/store.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { runStoreContract } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database.ts";
import type { TestDatabase } from "../support/postgres-server.ts";
import {
  again,
  businessTable,
  complete,
  eventually,
  leaseOf,
  request,
  spied,
  unheard,
} from "./postgres-support.ts";

const hourMs = 60 * 60 * 1000;
const dayMs = 24 * hourMs;

let database: TestDatabase;
let pool: pg.Pool;

beforeEach(async () => {
  database = await freshDatabase();
  pool = new pg.Pool({ connectionString: database.url });
  return async () => {
    await pool.end();
    await database.drop();
  };
});

/** By how many widths each partition begins before or after the present one; DEFAULT is left out. */
async function partitions(): Promise<number[]> {
  const { rows } = await pool.query<{ offset: number }>(`
    SELECT round(extract(epoch FROM
      (regexp_match(pg_get_expr(relpartbound, c.oid), 'FROM \\(''(.+)''\\) TO'))[1]::timestamptz
        - latchkey_bucket(now())) / extract(epoch FROM latchkey_partition_width()))::int AS offset
    FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid
    WHERE inhparent = 'latchkey_records'::regclass AND pg_get_expr(relpartbound, c.oid) <> 'DEFAULT'
    ORDER BY 1`);
  return rows.map(({ offset }) => offset);
}

/** In which partition a record is, and how many rows there are under its id. */
async function whereIs({ scope, key }: RecordId): Promise<string[]> {
  const { rows } = await pool.query<{ partition: string }>(
    "SELECT tableoid::regclass::text AS partition FROM latchkey_records WHERE scope = $1 AND key = $2",
    [scope, key],
  );
  return rows.map(({ partition }) => partition);
}

const aDayAhead = { retentionMs: dayMs };

describe("migrating", () => {
  it("an empty database gets partitions for a day ahead, once", async () => {
    expect((await migrate(pool, { partitioned: "hour" })).applied).toContain("0001_records");
    expect(await migrate(pool, { partitioned: "hour" })).toEqual({ applied: [] });
    expect(await migrate(pool)).toEqual({ applied: [] });
    expect(await partitions()).toEqual(Array.from({ length: 26 }, (_, index) => index));
  });

  it("tables that are not partitioned stay so", async () => {
    await migrate(pool);
    await expect(migrate(pool, { partitioned: "day" })).rejects.toThrow(ConfigError);
    await expect(migrate(pool, { partitioned: "day" })).rejects.toThrow(
      /only be chosen for an empty database/,
    );
  });

  it("another length of partitions than before is refused", async () => {
    await migrate(pool, { partitioned: "day" });
    await expect(migrate(pool, { partitioned: "hour" })).rejects.toThrow(/partitions of another length/);
    await expect(migrate(pool, { partitioned: "week" as never })).rejects.toThrow(/"day" or "hour"/);
  });

  it("the partitioned table has every column, check and index of the other", async () => {
    const other = await freshDatabase();
    const plain = new pg.Pool({ connectionString: other.url });
    await migrate(plain);
    await migrate(pool, { partitioned: "day" });
    const shape = async (from: pg.Pool) => {
      const columns = await from.query(
        `SELECT attname, atttypid::regtype::text, attnotnull, attcompression FROM pg_attribute
         WHERE attrelid = 'latchkey_records'::regclass AND attnum > 0 AND attname <> 'bucket' ORDER BY attname`,
      );
      const checks = await from.query(
        `SELECT pg_get_constraintdef(oid) AS definition FROM pg_constraint
         WHERE conrelid = 'latchkey_records'::regclass AND contype = 'c' ORDER BY 1`,
      );
      const indexes = await from.query<{ definition: string }>(
        `SELECT pg_get_indexdef(indexrelid) AS definition FROM pg_index
         WHERE indrelid = 'latchkey_records'::regclass AND NOT indisprimary ORDER BY 1`,
      );
      const definitions = indexes.rows.map(({ definition }) => definition.replace(" ON ONLY ", " ON "));
      return { columns: columns.rows, checks: checks.rows, definitions };
    };
    const expected = await shape(plain);
    expect(expected.definitions.length).toBeGreaterThan(4);
    expect(await shape(pool)).toEqual(expected);
    await plain.end();
    await other.drop();
  });
});

describe("a store that was told otherwise", () => {
  it("refuses partitioned tables that it was not told of", async () => {
    await migrate(pool, { partitioned: "day" });
    const refused = postgresStore(pool).reserve(request());
    await expect(refused).rejects.toThrow(StoreError);
    await expect(refused).rejects.toThrow(/pass \{ partitioned: true \}/);
  });

  it("refuses tables that are not partitioned", async () => {
    await migrate(pool);
    const refused = postgresStore(pool, { partitioned: true }).reserve(request());
    await expect(refused).rejects.toThrow(StoreError);
    await expect(refused).rejects.toThrow(/are not partitioned/);
  });

  it("refuses to keep what has expired", async () => {
    await migrate(pool, { partitioned: "day" });
    const store = postgresStore(pool, { partitioned: true });
    await expect(store.reap({ limit: 1, expiry: "soft" })).rejects.toThrow(ConfigError);
    await expect(store.reap({ limit: 1, expiry: "soft" })).rejects.toThrow(/set expiry to "delete"/);
  });

  it("refuses transactions in which its lock would mean nothing", async () => {
    await migrate(pool, { partitioned: "day" });
    const strict = new pg.Pool({
      connectionString: database.url,
      options: "-c default_transaction_isolation=serializable",
    });
    await expect(postgresStore(strict, { partitioned: true }).reserve(request())).rejects.toThrow(
      /read committed/,
    );
    await strict.end();
  });
});

it("of hundreds of requests for one key, into different partitions, one executes", async () => {
  await migrate(pool, { partitioned: "hour" });
  const pools = Array.from({ length: 4 }, () => new pg.Pool({ connectionString: database.url, max: 5 }));
  const stores = pools.map((each) => postgresStore(each, { partitioned: true }));
  // Into the next partitions, into DEFAULT because it lasts too short, and because no partition reaches so far.
  const retentions = [hourMs, 2 * hourMs, 3 * hourMs, 1000, 100 * dayMs];
  for (let round = 0; round < 10; round++) {
    const first = request();
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, index) => {
        const retentionMs = retentions[index % retentions.length] as number;
        return (stores[index % stores.length] as Store).reserve(again(first, { retentionMs }));
      }),
    );
    const kinds = answers.map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === "execute")).toHaveLength(1);
    expect(kinds.filter((kind) => kind === "inFlight")).toHaveLength(199);
    expect(await whereIs(first)).toHaveLength(1);
  }
  await Promise.all(pools.map((each) => each.end()));
});

it("a fresh request still takes two statements, and a replay one", async () => {
  await migrate(pool, { partitioned: "day" });
  let sent = 0;
  const counting = spied(pool, () => {
    sent += 1;
  });
  const store = postgresStore(counting, { partitioned: true });
  const first = request(aDayAhead);
  await store.settle(await leaseOf(store, first), complete);
  expect(sent).toBe(2);
  expect(await store.reserve(again(first))).toMatchObject({ kind: "replay" });
  expect(sent).toBe(3);
});

it("a wave of retries is answered as each of them alone would be, and what is new among them is new", async () => {
  await migrate(pool, { partitioned: "day" });
  const store = postgresStore(pool, { partitioned: true });
  const known = Array.from({ length: 40 }, () => request(aDayAhead));
  const leases = await Promise.all(known.map((each) => leaseOf(store, each)));
  await Promise.all(leases.slice(0, 30).map((lease) => store.settle(lease, complete)));
  // After the first wave the store expects to find what it is asked for, and looks before it inserts.
  for (let wave = 0; wave < 3; wave += 1) {
    const fresh = request(aDayAhead);
    const asked = [...known.map((each) => again(each)), fresh];
    const kinds = (await Promise.all(asked.map((each) => store.reserve(each)))).map(({ kind }) => kind);
    expect(kinds).toEqual([
      ...Array.from({ length: 30 }, () => "replay"),
      ...Array.from({ length: 10 }, () => "inFlight"),
      "execute",
    ]);
    expect(await whereIs(fresh)).toHaveLength(1);
  }
});

describe("reaping", () => {
  let store: Store;

  beforeEach(async () => {
    await migrate(pool, { partitioned: "day" });
    store = postgresStore(pool, { partitioned: true });
  });

  const reap = (limit = 1000) => store.reap({ limit, expiry: "delete" });

  /** Puts records where they would be if they had been reserved days ago. */
  async function age(...ids: readonly RecordId[]): Promise<void> {
    await pool.query(`
      DO $$ BEGIN
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF latchkey_records FOR VALUES FROM (%L) TO (%L)',
          latchkey_partition_name(latchkey_bucket(now() - interval '3 days')),
          latchkey_bucket(now() - interval '3 days'), latchkey_bucket(now() - interval '2 days'));
      END $$`);
    for (const { scope, key } of ids) {
      const { rowCount } = await pool.query(
        `UPDATE latchkey_records SET bucket = latchkey_bucket(now() - interval '3 days')
         WHERE scope = $1 AND key = $2`,
        [scope, key],
      );
      expect(rowCount).toBe(1);
    }
  }

  it("drops a partition whose time is over, and what is not over lives on in DEFAULT", async () => {
    const stored = { method: "POST", target: "/", tenant: "t", headers: [], body: new Uint8Array() };
    const over = request(aDayAhead);
    await store.settle(await leaseOf(store, over), { ...complete, retentionMs: 0 });
    const extended = request(aDayAhead);
    await store.settle(await leaseOf(store, extended), complete);
    const running = request(aDayAhead);
    await leaseOf(store, running);
    const unknown = request(aDayAhead);
    const escalated = request(aDayAhead);
    for (const each of [unknown, escalated]) {
      const lease = await leaseOf(store, each);
      await store.settle(lease, { kind: "suspend", reason: "no answer", reconcileAfterMs: 0 });
    }
    await store.resolve(escalated, 1, { kind: "escalate", reason: "nobody knows" }, "reconciler");
    const waiting = request({ ...aDayAhead, request: stored });
    const release = { kind: "release", reason: "half done", retentionMs: 0, resumeAfterMs: 0 } as const;
    await store.settle(await leaseOf(store, waiting), release);
    const halfDone = request(aDayAhead);
    const began = await leaseOf(store, halfDone);
    const progress = [{ kind: "atomic", name: "ride", result: "1" }] as const;
    await store.advance(began, { progress, onCrash: "resume" });
    await store.settle(began, { kind: "release", reason: "half done", retentionMs: 0 });
    const pending = request({ ...aDayAhead, mode: "accept", request: stored });
    await store.reserve(pending);
    const kept = [extended, running, unknown, escalated, waiting, halfDone, pending];
    const before = await Promise.all(kept.map(async (id) => (await store.read(id)).record));
    await age(over, ...kept);
    await pool.query("ANALYZE latchkey_records");
    expect(await partitions()).toContain(-3);

    expect(await reap()).toEqual({ deleted: 1, expired: 0 });
    expect(await partitions()).not.toContain(-3);
    expect((await store.read(over)).record).toBeUndefined();
    expect(await Promise.all(kept.map(async (id) => (await store.read(id)).record))).toEqual(before);
    for (const id of kept) expect(await whereIs(id)).toEqual(["latchkey_records_default"]);
    expect(await reap()).toEqual({ deleted: 0, expired: 0 });
  });

  it("drops what another process had detached before it died", async () => {
    const first = request(aDayAhead);
    await store.settle(await leaseOf(store, first), { ...complete, retentionMs: 0 });
    await age(first);
    const name = "SELECT latchkey_partition_name(latchkey_bucket(now() - interval '3 days')) AS name";
    const { rows } = await pool.query<{ name: string }>(name);
    await pool.query(`ALTER TABLE latchkey_records DETACH PARTITION ${rows[0]?.name}`);
    const isThere = async () =>
      (await pool.query("SELECT to_regclass($1) IS NOT NULL AS there", [rows[0]?.name])).rows[0].there;
    expect(await isThere()).toBe(true);
    await reap();
    expect(await isThere()).toBe(false);
  });

  it("waits no longer than moments for its turn, and drops next time", async () => {
    const first = request(aDayAhead);
    await store.settle(await leaseOf(store, first), { ...complete, retentionMs: 0 });
    await age(first);
    const holder = await pool.connect();
    await holder.query("BEGIN");
    await holder.query("SELECT FROM latchkey_records LIMIT 1");
    const begun = performance.now();
    await reap();
    expect(performance.now() - begun).toBeLessThan(2_000);
    expect(await partitions()).toContain(-3);
    await holder.query("ROLLBACK");
    holder.release();
    await reap();
    expect(await partitions()).not.toContain(-3);
  });

  it("goes record by record through a partition with too much that is not over", async () => {
    const over = request(aDayAhead);
    await store.settle(await leaseOf(store, over), { ...complete, retentionMs: 0 });
    await age(over);
    const unsettled = `
      INSERT INTO latchkey_records (
        scope, key, state, fingerprint, fence, on_crash, owner, lease_until, lapses_at, created_at, expires_at, bucket)
      SELECT 'crowd', n::text, 'in_progress', 'v1:first', 1, 'retry', 'somebody', now() + interval '1 hour',
        now() + interval '1 hour', now(), now(), latchkey_bucket(now() - interval '3 days')
      FROM generate_series(1, 2001) AS n`;
    await pool.query(unsettled);
    expect(await reap()).toEqual({ deleted: 1, expired: 0 });
    expect((await store.read(over)).record).toBeUndefined();
    expect(await partitions()).toContain(-3);
    await pool.query("DELETE FROM latchkey_records WHERE scope = 'crowd' AND key = '1'");
    await reap();
    expect(await partitions()).not.toContain(-3);
    const { rows } = await pool.query(
      "SELECT count(*)::int AS n FROM latchkey_records WHERE scope = 'crowd'",
    );
    expect(rows).toEqual([{ n: 2000 }]);
  });

  it("keeps the next partitions ready, as far as retention reaches", async () => {
    expect(await partitions()).toEqual([0, 1, 2]);
    const far = { retentionMs: 7 * dayMs };
    const first = request(far);
    await store.settle(await leaseOf(store, first), { ...complete, ...far });
    expect(await whereIs(first)).toEqual(["latchkey_records_default"]);
    await reap();
    expect(await partitions()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    const next = request(far);
    await leaseOf(store, next);
    expect(await whereIs(next)).not.toEqual(["latchkey_records_default"]);
  });

  it("does not look through DEFAULT when it makes a partition", async () => {
    const notices: string[] = [];
    const client = await pool.connect();
    client.on("notice", ({ message }) => notices.push(message ?? ""));
    await client.query("SET client_min_messages = debug1");
    await client.query(`
      CREATE TABLE far PARTITION OF latchkey_records
      FOR VALUES FROM (latchkey_bucket('2999-01-01')) TO (latchkey_bucket('2999-01-02'))`);
    client.release(true);
    expect(notices.join("\n")).toMatch(/latchkey_records_default" is implied by existing constraints/);
  });

  it("leaves what expires during the present partition to its end, and takes what was cut short", async () => {
    const cutShort = request(aDayAhead);
    await store.settle(await leaseOf(store, cutShort), { ...complete, retentionMs: 0 });
    expect(await whereIs(cutShort)).not.toEqual(["latchkey_records_default"]);
    const brief = request({ retentionMs: 1000 });
    await store.settle(await leaseOf(store, brief), { ...complete, retentionMs: 0 });
    expect(await whereIs(brief)).toEqual(["latchkey_records_default"]);
    const present = request(aDayAhead);
    await store.settle(await leaseOf(store, present), { ...complete, retentionMs: 0 });
    await pool.query("UPDATE latchkey_records SET bucket = latchkey_bucket(now()) WHERE key = $1", [
      present.key,
    ]);
    await eventually(async () => (await reap(1)).deleted === 0);
    const left = await Promise.all([cutShort, brief, present].map(whereIs));
    expect(left.map(({ length }) => length)).toEqual([0, 0, 1]);
    // Nobody sees it, though: its key can be used again.
    expect(await store.reserve(again(present))).toMatchObject({ kind: "execute", after: "expired" });
  });
});

// The contract's records last for a minute at most, so they are all in DEFAULT. What is different for a record in a
// partition of its own is above.
describe("the contract", () => {
  let own: TestDatabase;
  let client: pg.Pool;
  let business: Awaited<ReturnType<typeof businessTable>>;

  beforeAll(async () => {
    own = await freshDatabase();
    client = new pg.Pool({ connectionString: own.url });
    await migrate(client, { partitioned: "day" });
    business = await businessTable(client);
  });
  afterAll(async () => {
    await client.end();
    await own.drop();
  });

  const soft = "partitions are dropped with everything in them, so nothing can be kept";
  runStoreContract({
    it: it.sequential,
    lacks: unheard,
    except: {
      "soft expiry keeps the record without its response, and the key can be used again": soft,
      "a soft-expired record is deleted when the policy changes to delete": soft,
      "soft expiry keeps what workers were handed and gave up as well": soft,
      "what a worker has to finish does not expire, and is not reaped (soft)": soft,
    },
    async open() {
      const store = postgresStore(client, { partitioned: true });
      return {
        store,
        passTime: async (ms) => void (await sleep(ms)),
        business,
        close: () => store.close(),
      };
    },
  });
});
