import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type AdminServer, type Reporting, reportActivity, serveAdmin } from "../../src/admin/admin.ts";
import type { ListQuery, RecordPage, Store } from "../../src/core/store.ts";
import { createLatchkey, type Latchkey } from "../../src/index.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { freshDatabase } from "../support/database.ts";
import type { TestDatabase } from "../support/postgres-server.ts";
import { fillPostgres, fillSqlite } from "./million-records.ts";

/** What an operator waits for without noticing. */
const answerMs = 200;

const now = Date.now();
const hourMs = 60 * 60 * 1000;
const folder = mkdtempSync(join(tmpdir(), "latchkey-million-"));
const stores: Record<string, Store> = {};
let database: TestDatabase;
let pool: pg.Pool;

beforeAll(async () => {
  database = await freshDatabase();
  pool = new pg.Pool({ connectionString: database.url });
  await migrate(pool);
  const filling = fillPostgres(pool, now);
  // The server is a process of its own, and at work while this one is.
  stores.SQLite = filledSqlite(join(folder, "records.db"));
  await filling;
  stores.Postgres = postgresStore(pool);
}, 300_000);

afterAll(async () => {
  await stores.SQLite?.close();
  rmSync(folder, { recursive: true, force: true });
  await pool.end();
  await database.drop();
});

function filledSqlite(path: string): Store {
  const connection = new Database(path);
  const store = sqliteStore(connection);
  fillSqlite(connection, now);
  return store;
}

/** The key of the record with this number. */
const keyOf = (number: number) => `key-${(number * 7919) % 1_000_000}-4f1c-9b7e-2a66d5c0`;

/** What is asked, and how many of the first fifty there are; `more`: a list that is gone on with from its pages' ends. */
const questions: Readonly<
  Record<string, { readonly query: Omit<ListQuery, "limit">; readonly found: number }>
> = {
  everything: { query: {}, found: 50 },
  completed: { query: { state: "completed" }, found: 50 },
  "in progress": { query: { state: "in_progress" }, found: 50 },
  "failed, and may be tried again": { query: { state: "failed_retryable" }, found: 50 },
  unknown: { query: { state: "unknown" }, found: 50 },
  "pending: four of them": { query: { state: "pending" }, found: 4 },
  "expired: none": { query: { state: "expired" }, found: 0 },
  "a tenant with one record": { query: { tenantScope: "one" }, found: 1 },
  "a tenant with a thousand": { query: { tenantScope: "thousand" }, found: 50 },
  "a tenant with more than half of them": { query: { tenantScope: "whale" }, found: 50 },
  "a tenant with none": { query: { tenantScope: "nobody" }, found: 0 },
  "a key of a tenant, in its one scope": {
    query: { key: keyOf(700_007), tenantScope: "thousand" },
    found: 1,
  },
  "a key of a tenant, in one of a thousand scopes": {
    query: { key: keyOf(700_008), tenantScope: "shop" },
    found: 1,
  },
  "a key of another tenant, in one of a thousand scopes": {
    query: { key: keyOf(700_007), tenantScope: "shop" },
    found: 0,
  },
  "a route": { query: { route: "payments" }, found: 50 },
  "one hour": { query: { createdFrom: now - 8 * hourMs, createdBefore: now - 7 * hourMs }, found: 50 },
  "an hour in which there was nothing": { query: { createdFrom: now + hourMs }, found: 0 },
  "all before the last record": { query: { createdBefore: now - 23.99 * hourMs }, found: 50 },
  "unknown, of a large tenant": { query: { state: "unknown", tenantScope: "whale" }, found: 50 },
  "in progress, of a large tenant": { query: { state: "in_progress", tenantScope: "whale" }, found: 50 },
  "completed, of a large tenant, on a route": {
    query: { state: "completed", tenantScope: "whale", route: "refunds" },
    found: 50,
  },
  "failed, of a small tenant, within an hour": {
    query: { state: "failed_retryable", tenantScope: "thousand", createdFrom: now - hourMs },
    found: 0,
  },
  "failed, on a route, half a day ago": {
    query: { state: "failed_retryable", route: "payments", createdBefore: now - 12 * hourMs },
    found: 50,
  },
};

/** What no index finds: a call looks through a part, and the next goes on where it ended. */
const searches: Readonly<
  Record<string, { readonly query: Omit<ListQuery, "limit">; readonly found: number }>
> = {
  "a key, in one of 300,000 scopes": { query: { key: keyOf(400_001) }, found: 1 },
  "a key that nobody has sent": { query: { key: "nobody's" }, found: 0 },
  "a key of a tenant with 300,000 scopes": { query: { key: keyOf(100_002), tenantScope: "whale" }, found: 1 },
  "a tenant whose records are all old": { query: { tenantScope: "early" }, found: 9_960 },
  "a route with a hundred records": { query: { route: "rare" }, found: 100 },
};

describe.each(["Postgres", "SQLite"])("a million records on %s", (name) => {
  const store = () => stores[name] ?? expect.fail("the store was not opened");

  it.each(Object.entries(questions))("%s: answered at once", async (_, { query, found }) => {
    const { value, medianMs } = await timed(() => store().list({ ...query, limit: 50 }));
    report(name, _, medianMs);
    expect(value.records).toHaveLength(found);
    if (found < 50) expect(value.next).toBeUndefined();
    expectLatestFirst(value);
    expect(medianMs).toBeLessThan(answerMs);
  });

  it.each(Object.entries(searches))(
    "%s: each call answers at once, and all of them find it",
    async (_, asked) => {
      let search = await searchedFor(asked.query);
      // Something else on this machine may have been in the way of a call.
      for (let attempt = 1; attempt < 3 && Math.max(...search.times) >= answerMs; attempt += 1) {
        search = await searchedFor(asked.query);
      }
      const { found, times } = search;
      report(name, `${_} (${times.length} calls, ${sum(times).toFixed(0)} ms in all)`, Math.max(...times));
      expect(found).toBe(asked.found);
      expect(Math.max(...times)).toBeLessThan(answerMs);
    },
  );

  /** All pages of a search, and how long each took. */
  async function searchedFor(query: Omit<ListQuery, "limit">) {
    const times: number[] = [];
    let found = 0;
    let after: string | undefined;
    do {
      const began = performance.now();
      const page: RecordPage = await store().list({ ...query, limit: 1_000, after });
      times.push(performance.now() - began);
      found += page.records.length;
      after = page.next;
    } while (after !== undefined);
    return { found, times };
  }

  it("a page far down is as quick as the first", async () => {
    // Twelve hours down: the place is made by asking for what comes before it.
    const before = await store().list({ limit: 1, createdBefore: now - 12 * hourMs });
    for (const query of [
      {},
      { state: "failed_retryable" },
      { tenantScope: "whale" },
      { route: "payments" },
    ] as const) {
      const after = before.next;
      const { value, medianMs } = await timed(() => store().list({ ...query, limit: 50, after }));
      report(name, `half way down, ${JSON.stringify(query)}`, medianMs);
      expect(value.records).toHaveLength(50);
      expect(value.records[0]?.createdAt).toBeLessThan(now - 12 * hourMs);
      expectLatestFirst(value);
      expect(medianMs).toBeLessThan(answerMs);
    }
  });

  it("what is asked for all the time is answered at once", async () => {
    const asked: Readonly<Record<string, () => Promise<unknown>>> = {
      "unknown counts": () => store().unknownCounts(),
      "outbox counts": () => store().outbox?.counts() ?? expect.fail("no outbox"),
      "a thousand in progress": () => store().list({ state: "in_progress", limit: 1_000 }),
    };
    for (const [what, ask] of Object.entries(asked)) {
      const { medianMs } = await timed(ask);
      report(name, what, medianMs);
      expect(medianMs).toBeLessThan(answerMs);
    }
    expect(await store().unknownCounts()).toMatchObject({ waiting: 4_990, escalated: 0 });
  });
});

describe.each(["Postgres", "SQLite"])("the console of a million records on %s", (name) => {
  const token = "a-token-for-this-test";
  const processes: Latchkey[] = [];
  let admin: AdminServer;

  beforeAll(async () => {
    const store = stores[name] ?? expect.fail("the store was not opened");
    const reporting: Reporting[] = [];
    for (let process = 0; process < processesMax; process += 1) {
      const latchkey = createLatchkey({ store, tenant: "single" });
      processes.push(latchkey);
      reporting.push(reportActivity(latchkey, { role: "api" }));
      await latchkey.run({ tenant: "plotted", key: `process-${process}`, input: 1 }, () => "done");
    }
    for (const { stop } of reporting) await stop();
    const [latchkey = expect.fail("no process")] = processes;
    admin = await serveAdmin(latchkey, { port: 0, operators: [{ name: "ada", token }] });
  });
  afterAll(() => admin.close());

  it.each([
    "stats",
    "activity?window=15m",
    "activity?window=24h",
    "activity?window=7d",
    "records",
    "records?state=completed&route=payments",
    "records?state=unknown&tenant=whale",
    `records?key=${keyOf(700_007)}&tenant=thousand`,
    `records?key=${keyOf(400_001)}`,
    "record?scope=plotted&key=process-0",
    "dead-letters",
    "audit",
  ])("GET api/%s is answered at once", async (path) => {
    const { value, medianMs } = await timed(async () => {
      const response = await fetch(new URL(`api/${path}`, admin.url), {
        headers: { authorization: `Bearer ${token}` },
      });
      return {
        status: response.status,
        body: (await response.json()) as { series?: { executed: number[] } },
      };
    });
    report(name, `over HTTP: ${path}`, medianMs);
    expect(value.status).toBe(200);
    if (path.startsWith("activity")) {
      const { executed = [] } = value.body.series ?? {};
      expect(executed.reduce((total, count) => total + count, 0)).toBe(processesMax);
    }
    expect(medianMs).toBeLessThan(answerMs);
  });
});

/** As many as a service may have that runs on several machines. */
const processesMax = 20;

/** The median of five; asked for again, up to twice, where something else on this machine may have been in the way. */
async function timed<T>(ask: () => Promise<T>): Promise<{ readonly value: T; readonly medianMs: number }> {
  let value = await ask();
  let medianMs = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < 3 && medianMs >= answerMs; attempt += 1) {
    const times: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      const began = performance.now();
      value = await ask();
      times.push(performance.now() - began);
    }
    medianMs = Math.min(medianMs, median(times));
  }
  return { value, medianMs };
}

function median(times: readonly number[]): number {
  return [...times].sort((one, other) => one - other)[Math.floor(times.length / 2)] ?? 0;
}

function sum(times: readonly number[]): number {
  return times.reduce((total, ms) => total + ms, 0);
}

function expectLatestFirst({ records }: RecordPage): void {
  const times = records.map(({ createdAt }) => createdAt);
  expect(times).toEqual([...times].sort((one, other) => other - one));
}

function report(name: string, what: string, ms: number): void {
  console.log(`${name.padEnd(8)} ${ms.toFixed(1).padStart(7)} ms  ${what}`);
}
