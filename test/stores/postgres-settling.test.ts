import { randomUUID } from "node:crypto";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { loadMigrations } from "../../src/stores/migrations.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { freshDatabase } from "../support/database.ts";
import type { TestDatabase } from "../support/postgres-server.ts";
import { again, complete, insertion, leaseOf, request } from "./postgres-support.ts";

/*
 * What the migration 0008_settling_in_place is for: a settlement touches no index, leases are listed when somebody comes
 * by, and an answer expires exactly when it should although the index only knows about when.
 */

const sweep = { limit: 100, unclaimed: complete.response };
const minute = 60_000;

let database: TestDatabase;
let pool: pg.Pool;

beforeEach(async () => {
  database = await freshDatabase();
  pool = new pg.Pool({ connectionString: database.url });
});

afterEach(async () => {
  await pool.end();
  await database.drop();
});

describe("a settlement", () => {
  beforeEach(() => migrate(pool));

  it.each([
    ["of one call", 1],
    ["of a batch", 20],
  ])("%s changes no column that any index is about", async (_, count) => {
    const store = postgresStore(pool);
    const requests = Array.from({ length: count }, () => request({ retentionMs: complete.retentionMs }));
    const leases = await Promise.all(requests.map((each) => leaseOf(store, each)));
    const indexed = await indexedColumns();
    expect(indexed).toEqual(
      expect.arrayContaining(["scope", "key", "created_at", "expires_at", "lapses_at"]),
    );
    const before = await rowsWith(indexed);
    await Promise.all(leases.map((lease) => store.settle(lease, complete)));
    expect(await rowsWith(["state"])).toEqual(requests.map(() => ({ state: "completed" })));
    expect(await rowsWith(indexed)).toEqual(before);
  });

  it("under load stays on the page of its reservation, with an answer of 300 bytes", async () => {
    const store = postgresStore(pool);
    const response = {
      kind: "full",
      status: 201,
      headers: [["content-type", "application/json"]],
      body: Buffer.alloc(300, "a"),
    } as const;
    for (let round = 0; round < 20; round += 1) {
      // Names as long as those that are used: of processes, and of clients.
      const requests = Array.from({ length: 50 }, () =>
        request({
          key: randomUUID(),
          owner: `g9gck6cq3r7urmi0-${round}`,
          fingerprint: `v1:${"f".repeat(43)}`,
        }),
      );
      const leases = await Promise.all(requests.map((each) => leaseOf(store, each)));
      await Promise.all(leases.map((lease) => store.settle(lease, { ...complete, response })));
    }
    await expect
      .poll(
        async () => {
          const [row] = await query<{ share: number }>(
            `SELECT n_tup_hot_upd / greatest(n_tup_upd, 1)::float8 AS share FROM pg_stat_user_tables
           WHERE relname = 'latchkey_records' AND n_tup_upd >= 1000`,
          );
          return row?.share ?? 0;
        },
        { timeout: 15_000 },
      )
      .toBeGreaterThan(0.99);
  });

  it("of a lease that was renewed takes it off the list", async () => {
    const store = postgresStore(pool);
    const lease = await leaseOf(store, request());
    expect(await listed()).toBe(0);
    await store.renew([lease], minute);
    expect(await listed()).toBe(1);
    await store.settle(lease, complete);
    expect(await listed()).toBe(0);
  });

  it.each(["later", "earlier"])("that is kept for far %s moves the indexed moment as well", async (when) => {
    const store = postgresStore(pool);
    const first = request({ retentionMs: 60 * minute });
    const retentionMs = when === "later" ? 600 * minute : 6 * minute;
    const answer = await store.settle(await leaseOf(store, first), { ...complete, retentionMs });
    const { record } = await store.read(first);
    expect(answer).toEqual({ kind: "settled", expiresAt: record?.expiresAt });
    const [row] = await query<{ ms: number; kept_until: unknown }>(
      "SELECT extract(epoch FROM expires_at)::float8 * 1000 AS ms, kept_until FROM latchkey_records",
    );
    expect(row?.ms).toBeCloseTo(record?.expiresAt ?? 0, 0);
    expect(row?.kept_until).toBeNull();
  });
});

describe("an answer that is kept for a little longer than its request was to be", () => {
  beforeEach(() => migrate(pool));

  it.each([false, true])(
    "is replayed and not reaped until that is over (groupCommit: %s)",
    async (groupCommit) => {
      const store = postgresStore(pool, { groupCommit });
      const first = request({ retentionMs: 5 * minute });
      await store.settle(await leaseOf(store, first), { ...complete, retentionMs: 5 * minute });
      const shift = (until: string) =>
        query(
          `UPDATE latchkey_records SET expires_at = now() - interval '1 minute', kept_until = now() ${until} interval '1 minute'`,
        );
      await shift("+");
      const duplicates = [again(first), again(first), again(first)];
      for (const answer of await Promise.all(duplicates.map((each) => store.reserve(each)))) {
        expect(answer).toMatchObject({ kind: "replay", remainingMs: expect.closeTo(minute, -4) });
      }
      expect(await store.reap({ limit: 10, expiry: "delete" })).toEqual({ deleted: 0, expired: 0 });
      const [{ expiresAt } = { expiresAt: 0 }] = (await store.list({ limit: 1 })).records;
      expect(expiresAt).toBe((await store.read(first)).record?.expiresAt);
      await shift("-");
      expect(await store.reap({ limit: 10, expiry: "delete" })).toEqual({ deleted: 1, expired: 0 });
    },
  );

  it("that is kept for audit after it has expired shows when it did", async () => {
    const store = postgresStore(pool);
    const first = request({ retentionMs: 5 * minute });
    await store.settle(await leaseOf(store, first), { ...complete, retentionMs: 5 * minute });
    await query(
      "UPDATE latchkey_records SET expires_at = now() - interval '2 minutes', kept_until = now() - interval '1 minute'",
    );
    const before = (await store.read(first)).record;
    expect(await store.reap({ limit: 10, expiry: "soft" })).toEqual({ deleted: 0, expired: 1 });
    expect((await store.read(first)).record).toMatchObject({
      state: "expired",
      expiresAt: before?.expiresAt,
    });
  });
});

describe("a lease", () => {
  beforeEach(() => migrate(pool));

  it("that nobody has renewed is listed when the sweeper comes, and ends when it has run out", async () => {
    const store = postgresStore(pool);
    await leaseOf(store, request({ leaseMs: 50 }));
    await expect.poll(() => store.sweep(sweep)).toMatchObject({ unknown: 1 });
    expect(await listed()).toBe(0);
  });

  it("whose reservation was committed after the sweeper had looked is found by the next", async () => {
    const store = postgresStore(pool);
    const late = await pool.connect();
    await late.query("BEGIN");
    await late.query(
      `SELECT latchkey_reserve_one('acme', 'late', 'v1:f', 'somebody', 'retry', NULL, 1, 60000, 'in_progress', NULL, 1)`,
    );
    await leaseOf(store, request());
    for (let look = 0; look < 3; look += 1) {
      expect(await store.sweep(sweep)).toMatchObject({ retryable: 0 });
    }
    await late.query("COMMIT");
    late.release();
    expect(await store.sweep(sweep)).toMatchObject({ retryable: 1 });
  });

  it("that somebody has locked is passed by, and listed by the next", async () => {
    const store = postgresStore(pool);
    await leaseOf(store, request({ leaseMs: 1 }));
    const holder = await pool.connect();
    await holder.query("BEGIN; SELECT FROM latchkey_records FOR UPDATE");
    expect(await store.sweep(sweep)).toMatchObject({ unknown: 0 });
    await holder.query("COMMIT");
    holder.release();
    expect(await store.sweep(sweep)).toMatchObject({ unknown: 1 });
  });

  it("that was missed by every sweeper is listed by the reaper in the end", async () => {
    const store = postgresStore(pool);
    await leaseOf(store, request({ leaseMs: 1, retentionMs: 1 }));
    await query(
      `UPDATE latchkey_records SET created_at = created_at - interval '3 days', expires_at = expires_at - interval '2 days',
         lease_until = lease_until - interval '3 days'`,
    );
    expect(await store.sweep(sweep)).toMatchObject({ unknown: 0 });
    expect(await store.reap({ limit: 10, expiry: "delete" })).toEqual({ deleted: 0, expired: 0 });
    expect(await store.sweep(sweep)).toMatchObject({ unknown: 1 });
  });

  it("is found after the clock was set back", async () => {
    const store = postgresStore(pool);
    await query(
      "UPDATE latchkey_sweeps SET seen = now() + interval '1 hour', looked = now() + interval '1 hour'",
    );
    expect(await store.sweep(sweep)).toMatchObject({ unknown: 0 });
    await leaseOf(store, request({ leaseMs: 1 }));
    expect(await store.sweep(sweep)).toMatchObject({ unknown: 1 });
  });

  it("shows in a list of what is under way, also for those who may only read", async () => {
    const store = postgresStore(pool);
    const running = request();
    await leaseOf(store, running);
    const under = { state: "in_progress", limit: 10 } as const;
    const role = `reader_${Date.now()}`;
    await query(`CREATE ROLE ${role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO ${role}`);
    const url = new URL(database.url);
    url.username = role;
    const readers = new pg.Pool({ connectionString: url.href });
    const reading = postgresStore(readers);
    try {
      expect((await reading.list(under)).records).toMatchObject([{ key: running.key }]);
      expect(await listed()).toBe(0);
      expect((await store.list(under)).records).toMatchObject([{ key: running.key }]);
      expect(await listed()).toBe(1);
    } finally {
      await readers.end();
      await query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });
});

it("records of before are listed, reaped and swept as they were", async () => {
  const files = loadMigrations(new URL("../../src/stores/postgres/migrations/", import.meta.url));
  await pool.query("CREATE TABLE latchkey_migrations (id integer PRIMARY KEY, name text NOT NULL)");
  for (const { id, name, sql } of files.slice(0, 7)) {
    await pool.query(sql);
    await pool.query("INSERT INTO latchkey_migrations (id, name) VALUES ($1, $2)", [id, name]);
  }
  const old = { created_at: "now() - interval '2 days'", expires_at: "now() - interval '1 day'" };
  const insert = (key: string, columns: Record<string, string>) =>
    pool.query(insertion({ key: `'${key}'`, ...old, ...columns }));
  await insert("dead", { state: "'in_progress'", owner: "'o'", lease_until: "now() - interval '1 day'" });
  await insert("failed", { state: "'failed_retryable'", reason: "'no'" });
  await insert("unknown", { state: "'unknown'", reason: "'no'", reconcile_after: "now()" });
  await insert("done", {
    state: "'completed'",
    completed_at: "now()",
    response_status: "201",
    response_head: `'{"v":1}'`,
  });
  expect((await migrate(pool)).applied).toEqual([
    "0008_settling_in_place",
    "0009_cheaper_rules",
    "0010_settling_by_place",
    "0011_strays",
    "0012_telling",
    "0013_found_by_key",
    "0014_replays_in_one_text",
    "0015_room_for_answers",
  ]);
  const store = postgresStore(pool);
  expect((await store.list({ state: "unknown", limit: 10 })).records).toMatchObject([{ key: "unknown" }]);
  expect(await store.reap({ limit: 10, expiry: "delete" })).toEqual({ deleted: 2, expired: 0 });
  expect(await store.sweep(sweep)).toMatchObject({ retryable: 1 });
  expect((await store.list({ limit: 10 })).records.map(({ key }) => key).sort()).toEqual(["dead", "unknown"]);
});

async function query<R extends pg.QueryResultRow>(text: string): Promise<R[]> {
  return (await pool.query<R>(text)).rows;
}

/** The columns of every index, and of the conditions that they have. */
async function indexedColumns(): Promise<string[]> {
  const rows = await query<{ name: string }>(
    `SELECT DISTINCT a.attname AS name FROM pg_index AS i
     JOIN pg_depend AS d ON d.objid = i.indexrelid AND d.refobjid = i.indrelid
     JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = d.refobjsubid
     WHERE i.indrelid = 'latchkey_records'::regclass AND d.refobjsubid > 0
     UNION SELECT a.attname FROM pg_index AS i
     JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
     WHERE i.indrelid = 'latchkey_records'::regclass AND i.indisprimary`,
  );
  return rows.map(({ name }) => name);
}

function rowsWith(columns: readonly string[]): Promise<unknown[]> {
  return query(`SELECT ${columns.join(", ")} FROM latchkey_records ORDER BY scope, key`);
}

async function listed(): Promise<number> {
  const [row] = await query<{ n: number }>("SELECT count(lapses_at)::int AS n FROM latchkey_records");
  return row?.n ?? -1;
}
