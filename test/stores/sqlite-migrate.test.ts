import fc from "fast-check";
import Database from "libsql";
import { afterEach, describe, expect, it } from "vitest";
import { encodeProgress } from "../../src/core/phase.ts";
import { loadMigrations } from "../../src/stores/migrations.ts";
import type { SqliteValue } from "../../src/stores/sqlite/driver.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import {
  claimAll,
  complete,
  everyByte,
  kept,
  pragma,
  request,
  unclaimed,
  useFolder,
} from "./sqlite-support.ts";

const place = useFolder();
const migrations = loadMigrations(new URL("../../src/stores/sqlite/migrations/", import.meta.url));
const opened: Database.Database[] = [];

afterEach(() => {
  for (const database of opened.splice(0)) database.close();
});

const columns = [
  "scope",
  "key",
  "state",
  "fingerprint",
  "fence",
  "on_crash",
  "created_at",
  "expires_at",
  "owner",
  "lease_until",
  "reconcile_after",
  "reason",
  "completed_at",
  "response_status",
  "response_head",
  "response_body",
  "route",
  "progress",
  "request_head",
  "resume_after",
  "claims",
  "reconcile_ms",
  "escalated_at",
] as const;

type Columns = Partial<Record<(typeof columns)[number], SqliteValue>>;

const requestHead = JSON.stringify({
  v: 1,
  method: kept.method,
  target: kept.target,
  tenant: kept.tenant,
  headers: kept.headers,
});
const late = 9_999_999_999_999;

/** One record in each state, and with each column that a state may have. */
const everyState: readonly (Columns & { key: string; state: string })[] = [
  { key: "pending", state: "pending", resume_after: 5, claims: 2, request_head: requestHead },
  { key: "running", state: "in_progress", owner: "owner", lease_until: late, route: "rides" },
  {
    key: "resumable",
    state: "in_progress",
    owner: "owner",
    lease_until: late,
    on_crash: "resume",
    request_head: requestHead,
    progress: '{"v":1,"phases":[]}',
  },
  {
    key: "completed",
    state: "completed",
    owner: "owner",
    completed_at: 2,
    response_status: 201,
    response_head: '{"v":1,"headers":[["content-type","a/b"]]}',
    response_body: everyByte,
  },
  { key: "failed", state: "failed_retryable", owner: "owner", reason: "nothing was sent" },
  {
    key: "half-done",
    state: "failed_retryable",
    reason: "its owner is gone",
    resume_after: late,
    claims: 1,
    request_head: requestHead,
  },
  { key: "unknown", state: "unknown", reason: "no answer came", reconcile_after: 5, claims: 3 },
  { key: "escalated", state: "unknown", reason: "no answer came", reconcile_after: 5, escalated_at: 6 },
  { key: "expired", state: "expired", reconcile_ms: 7 },
];

/** Nobody goes on with it, since it does not say when. */
const halfDone: Columns = {
  state: "failed_retryable",
  reason: "its owner is gone",
  progress: encodeProgress([{ kind: "atomic", name: "a", result: "1" }]),
  expires_at: 1,
};

describe("a database that Latchkey made before the records had one rule", () => {
  it("keeps its records in every state, to the last column", () => {
    const database = openBefore(3);
    for (const row of everyState) write(database, row);
    const before = rowsOf(database);
    sqliteStore(database);
    expect(rowsOf(database)).toEqual(before);
    expect(before).toHaveLength(everyState.length);
    expect(pragma(database, "integrity_check")).toBe("ok");
  });

  it("goes on with them", async () => {
    const database = openBefore(3);
    for (const row of everyState) write(database, row);
    const bodies = "SELECT key FROM latchkey_request_bodies ORDER BY key";
    for (const key of ["pending", "resumable", "half-done"]) {
      database.prepare("INSERT INTO latchkey_request_bodies VALUES ('tenant', ?, ?)").run(key, everyByte);
    }
    const store = sqliteStore(database);
    const id = (key: string) => ({ scope: "tenant", key, fence: 3, owner: "owner" });
    expect(await store.renew([id("running")], 60_000)).toEqual(["held"]);
    expect((await store.settle(id("running"), complete())).kind).toBe("settled");
    expect((await store.settle(id("resumable"), complete())).kind).toBe("settled");
    // What is kept of a request goes with its outcome, as it did before.
    expect(database.prepare(bodies).all()).toEqual([{ key: "half-done" }, { key: "pending" }]);
    expect(await store.claimUnknown(claimAll)).toMatchObject([{ key: "unknown", reconcileAttempts: 4 }]);
    const asked = request({ scope: "tenant", key: "completed", fingerprint: "v1:first" });
    expect(await store.reserve(asked)).toMatchObject({ kind: "replay", response: { body: everyByte } });
    database.prepare("DELETE FROM latchkey_records WHERE key = 'half-done'").run();
    expect(database.prepare(bodies).all()).toEqual([{ key: "pending" }]);
  });

  it("keeps what refers to them, and the settings of its connection", () => {
    const database = openBefore(3);
    database.exec("PRAGMA foreign_keys = ON");
    database.exec(`
      CREATE TABLE rides (
        id INTEGER PRIMARY KEY, scope TEXT, key TEXT,
        FOREIGN KEY (scope, key) REFERENCES latchkey_records (scope, key) ON DELETE CASCADE);
      CREATE VIEW open_keys AS SELECT key FROM latchkey_records WHERE state <> 'completed'`);
    for (const row of everyState) write(database, row);
    database.exec("INSERT INTO rides VALUES (1, 'tenant', 'completed'), (2, 'tenant', 'failed')");
    sqliteStore(database);
    expect(pragma(database, "foreign_keys")).toBe(1);
    expect(pragma(database, "legacy_alter_table")).toBe(0);
    expect(database.prepare("PRAGMA foreign_key_check").all()).toEqual([]);
    expect(database.prepare("SELECT count(*) AS count FROM open_keys").get()).toMatchObject({ count: 8 });
    // The reference is alive: it follows the new table.
    database.exec("DELETE FROM latchkey_records WHERE key = 'failed'");
    expect(database.prepare("SELECT id FROM rides").all()).toEqual([{ id: 1 }]);
    expect(() => database.exec("INSERT INTO rides VALUES (3, 'tenant', 'nowhere')")).toThrow(/FOREIGN KEY/);
  });

  it("is left as it was when a migration fails", () => {
    const database = openBefore(3);
    database.exec("PRAGMA foreign_keys = ON; CREATE TABLE latchkey_records_new (in_the_way)");
    for (const row of everyState) write(database, row);
    const before = rowsOf(database);
    expect(() => sqliteStore(database)).toThrow(/latchkey_records_new/);
    expect(rowsOf(database)).toEqual(before);
    expect(pragma(database, "foreign_keys")).toBe(1);
    expect(database.prepare("SELECT max(id) AS id FROM latchkey_migrations").get()).toMatchObject({ id: 2 });
  });
});

describe("a database that Latchkey made before messages named their scope", () => {
  it("keeps its messages: they are of no tenant, and are forgotten with none", async () => {
    const database = openBefore(4);
    database.exec(`
      INSERT INTO latchkey_outbox (
               lane, topic, is_head, message_key, correlation_id, due_at, created_at, died_at, error, payload)
      VALUES (0, 'rides', 1, 'waits', 'request', 1, 1, NULL, NULL, '{}'),
             (0, 'rides', 0, 'dead', 'request', 1, 1, 2, 'refused', '{}')`);
    const store = sqliteStore(database);
    const old = { topic: "rides", scope: "", traceparent: null };
    expect(await store.forgetTenant({ tenantScope: "tenant", limit: 10 })).toEqual({
      removed: 0,
      unsettled: 0,
    });
    expect(await store.outbox?.claim({ owner: "relay", limit: 10, leaseMs: 60_000 })).toMatchObject([
      { ...old, key: "waits" },
    ]);
    expect(await store.outbox?.deadLetters({ limit: 10 })).toMatchObject([{ ...old, key: "dead" }]);
  });

  it("counts the outcomes that were unknown, and those that waited for an operator", async () => {
    const database = openBefore(4);
    for (const row of everyState) write(database, row);
    const counts = await sqliteStore(database, { clock: () => 1_001 }).unknownCounts();
    expect(counts).toEqual({ waiting: 1, escalated: 1, oldestMs: 1_000 });
  });
});

describe("a database that Latchkey made before the conditions of its indexes were cheaper", () => {
  it("has the same records in its indexes", async () => {
    const database = openBefore(6);
    for (const row of everyState) write(database, row);
    write(database, { ...halfDone, key: "half-done-and-left" });
    const store = sqliteStore(database, { clock: () => late + 1 });
    const keysBy = (index: string, where: string) =>
      database
        .prepare(`SELECT key FROM latchkey_records INDEXED BY ${index} WHERE ${where} ORDER BY key`)
        .all()
        .map((row) => (row as { key: string }).key);
    expect(keysBy("latchkey_records_lease", "lease_until > 0")).toEqual(["resumable", "running"]);
    expect(keysBy("latchkey_records_reconcile", "reconcile_after > 0")).toEqual(["escalated", "unknown"]);
    expect(keysBy("latchkey_records_unusual", "state <> 'in_progress' AND state <> 'completed'")).toEqual(
      everyState
        .filter(({ state }) => state !== "in_progress" && state !== "completed")
        .map(({ key }) => key)
        .concat("half-done-and-left")
        .sort(),
    );
    expect(await store.unknownCounts()).toMatchObject({ waiting: 1, escalated: 1 });
    // Two executions are dead, one request was never executed, and one was left half done.
    expect(await store.sweep({ limit: 10, unclaimed })).toEqual({ unknown: 2, retryable: 1, unclaimed: 1 });
    expect(pragma(database, "integrity_check")).toBe("ok");
  });
});

describe("a database that Latchkey made before the rule for its records was cheaper", () => {
  it("keeps its records in every state, to the last column, and goes on with them", async () => {
    const database = openBefore(7);
    for (const row of everyState) write(database, row);
    database.prepare("INSERT INTO latchkey_request_bodies VALUES ('tenant', ?, ?)").run("pending", everyByte);
    const before = [rowsOf(database), schemaOf(database)];
    const store = sqliteStore(database, { clock: () => late + 1 });
    expect([rowsOf(database), schemaOf(database)]).toEqual(before);
    expect(pragma(database, "integrity_check")).toBe("ok");
    expect(await store.sweep({ limit: 10, unclaimed })).toEqual({ unknown: 1, retryable: 1, unclaimed: 1 });
    // What is kept of a request goes with its outcome, as it did before.
    expect(database.prepare("SELECT key FROM latchkey_request_bodies").all()).toEqual([]);
  });
});

it.each([3, 7])(
  "indexes and triggers of one's own are there after migration %i, which copies the table",
  (number) => {
    const database = openBefore(number);
    database.exec(`
    CREATE TABLE seen (key TEXT);
    CREATE INDEX by_print ON latchkey_records (fingerprint);
    CREATE TRIGGER noted AFTER UPDATE ON latchkey_records BEGIN INSERT INTO seen VALUES (NEW.key); END;`);
    write(database, { key: "running", state: "in_progress", owner: "owner", lease_until: late });
    const own = () => schemaOf(database).filter((each) => !/latchkey_/.test((each as { name: string }).name));
    const before = own();
    sqliteStore(database);
    expect(own()).toEqual(before);
    expect(before.map((each) => (each as { name: string }).name)).toContain("by_print");
    database.exec("UPDATE latchkey_records SET fence = 4");
    expect(database.prepare("SELECT key FROM seen").all()).toEqual([{ key: "running" }]);
  },
);

it("no rule for records makes SQLite build a table in memory for each of them", () => {
  const database = openBefore(migrations.length + 1);
  const steps = database
    .prepare("EXPLAIN INSERT INTO latchkey_records (scope, key) VALUES ('tenant', 'key')")
    .all();
  const names = steps.map((step) => (step as { opcode: string }).opcode);
  expect(names).toContain("IdxInsert");
  expect(names).not.toContain("OpenEphemeral");
});

it("the one rule for records accepts and refuses what the many rules did", () => {
  const [many, one] = [openBefore(3), openBefore(migrations.length + 1)];
  const states = [...new Set(everyState.map(({ state }) => state)), "nonsense"];
  const optional = (value: SqliteValue) => fc.constantFrom<SqliteValue>(null, null, value);
  const row = fc.record({
    state: fc.constantFrom(...states),
    on_crash: fc.constantFrom("reconcile", "resume", "retry", "other"),
    owner: optional("owner"),
    lease_until: optional(1),
    reconcile_after: optional(1),
    reason: optional("reason"),
    completed_at: optional(1),
    response_status: optional(200),
    response_head: optional("{}"),
    response_body: optional(everyByte),
    progress: optional("[]"),
    request_head: optional("{}"),
    resume_after: optional(1),
    claims: fc.constantFrom(0, 0, 1),
    escalated_at: optional(1),
  });
  // Rows at random are nearly always refused, so half of them begin as one that is right and change in few places.
  const nearlyRight = fc
    .tuple(fc.constantFrom(...everyState), row, fc.subarray([...columns], { maxLength: 2 }))
    .map(([right, other, changed]): Columns => {
      const pick = Object.entries(other).filter(([name]) => changed.some((column) => column === name));
      return { ...right, ...Object.fromEntries(pick) };
    });
  const verdicts = { accepted: 0, refused: 0 };
  fc.assert(
    fc.property(fc.oneof(row, nearlyRight), (sample: Columns) => {
      const verdict = isAccepted(many, sample);
      expect(isAccepted(one, sample)).toBe(verdict);
      verdicts[verdict ? "accepted" : "refused"] += 1;
    }),
    { numRuns: 2_000, seed: 3 },
  );
  expect(verdicts.accepted).toBeGreaterThan(200);
  expect(verdicts.refused).toBeGreaterThan(200);
});

function isAccepted(database: Database.Database, row: Columns): boolean {
  database.exec("BEGIN");
  try {
    write(database, row);
    return true;
  } catch (error) {
    expect(String(error)).toContain("CHECK constraint failed");
    return false;
  } finally {
    database.exec("ROLLBACK");
  }
}

/** A database as it was before the migration with this number. */
function openBefore(number: number): Database.Database {
  const database = new Database(`${place.path}-${opened.length}`);
  opened.push(database);
  database.exec(
    "CREATE TABLE latchkey_migrations (id INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)",
  );
  for (const { id, name, sql } of migrations.slice(0, number - 1)) {
    database.exec(sql);
    database.prepare("INSERT INTO latchkey_migrations VALUES (?, ?, 0)").run(id, name);
  }
  return database;
}

function write(database: Database.Database, row: Columns): void {
  const full: Columns = {
    scope: "tenant",
    key: "key",
    fingerprint: "v1:first",
    fence: 3,
    on_crash: "reconcile",
    created_at: 1,
    expires_at: late,
    claims: 0,
    reconcile_ms: 30_000,
    ...row,
  };
  database
    .prepare(
      `INSERT INTO latchkey_records (${columns.join(", ")}) VALUES (${columns.map(() => "?").join(", ")})`,
    )
    .run(...columns.map((name) => full[name] ?? null));
}

/** The indexes and triggers of the records. */
function schemaOf(database: Database.Database): unknown[] {
  return database
    .prepare(
      "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = 'latchkey_records' AND type <> 'table' ORDER BY name",
    )
    .all();
}

function rowsOf(database: Database.Database): unknown[] {
  return database.prepare(`SELECT ${columns.join(", ")} FROM latchkey_records ORDER BY key`).all();
}
