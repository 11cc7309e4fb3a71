import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { StoreRefusedError } from "../../src/core/errors.ts";
import type { ListQuery, Store } from "../../src/core/store.ts";
import { type MysqlConnection, mysqlStore } from "../../src/stores/mysql/store.ts";
import { created } from "../../src/testing/contract/requests.ts";
import { listAll, namesOf, pagesOf } from "./listing-support.ts";
import { leaseOf, request, stagedPool, useMysql } from "./mysql-support.ts";

const files = useMysql();
let store: Store<MysqlConnection>;
/** Counts what the server reads for it. */
let counted: { readonly store: Store<MysqlConnection>; reads(): Promise<number> };

/** Of 20,000 records: one tenant has few of them, one half, and of each state but `completed` there are few. */
const total = 20_000;

beforeAll(async () => {
  store = mysqlStore(files.pool());
  const pool = files.pool({ connectionLimit: 1 });
  counted = {
    store: mysqlStore(pool),
    async reads() {
      const [rows] = await pool.query("SHOW SESSION STATUS LIKE 'Handler_read%'");
      await pool.query("FLUSH STATUS");
      return (rows as { Value: string }[]).reduce((sum, { Value }) => sum + Number(Value), 0);
    },
  };
  const digit = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4)";
  const decimal = `(SELECT a.d + 5 * b.d AS d FROM ${digit} AS a, (SELECT 0 AS d UNION ALL SELECT 1) AS b)`;
  const number = "n1.d + 10 * n2.d + 100 * n3.d + 1000 * n4.d + 10000 * n5.d";
  await files.query(`
    INSERT INTO latchkey_records (
           id, scope, record_key, state, fingerprint, fence, on_crash, created_at, expires_at, reconcile_ms, completed_at,
           response_status, response_head, reason, reconcile_after, job, due_at, route)
    SELECT UNHEX(SHA2(CONCAT(LENGTH(record_key), ':', record_key, scope), 256)), scope, record_key, state, 'f', 1, 'retry', 1000000 + n DIV 10, 9000000000000000, 0,
           IF(state = 'completed', 2, NULL), IF(state = 'completed', 200, NULL), IF(state = 'completed', '{}', NULL),
           IF(state = 'completed', NULL, 'why'), IF(state = 'unknown', 3, NULL), 'settled', 4,
           IF(n % 1000 = 0, 'refunds', 'rides')
      FROM (SELECT n, CONCAT('key-', n) AS record_key, IF(n % 500 = 0, 'small POST /rides', IF(n % 2 = 0, 'large', 'other')) AS scope,
                   IF(n % 400 = 0, 'unknown', IF(n % 400 = 1, 'failed_retryable', 'completed')) AS state
              FROM (SELECT ${number} AS n
                      FROM ${decimal} AS n1, ${decimal} AS n2, ${decimal} AS n3, ${decimal} AS n4,
                           (SELECT 0 AS d UNION ALL SELECT 1) AS n5) AS numbers) AS many`);
}, 60_000);

interface Expected {
  readonly count: number;
  readonly pagesMax: number;
  readonly readsMax: number;
  readonly limit?: number;
}

/** Whatever is asked for comes in order, whole, and with few reads for each page. */
async function expectListed(
  query: Omit<ListQuery, "limit">,
  { count, pagesMax, readsMax, limit = 100 }: Expected,
): Promise<void> {
  const times: number[] = [];
  const names = new Set<string>();
  let pages = 0;
  await counted.reads();
  for await (const page of pagesOf(counted.store, { ...query, limit })) {
    pages += 1;
    times.push(...page.map(({ createdAt }) => createdAt));
    for (const name of namesOf(page)) names.add(name);
    expect(await counted.reads()).toBeLessThan(readsMax);
    if (pages === pagesMax) break;
  }
  expect(times).toHaveLength(count);
  expect(names.size).toBe(count);
  expect(times).toEqual(times.toSorted((one, other) => other - one));
}

describe("a list of many records in MySQL", () => {
  it("of all of them is read page by page, and no page reads more than a few", () =>
    expectListed({}, { count: 1_000, pagesMax: 10, readsMax: 1_500 }));

  it("goes on from deep within as from the beginning", () =>
    expectListed({ createdBefore: 1_000_500 }, { count: 1_000, pagesMax: 10, readsMax: 1_500 }));

  it("of one state, which few have, reads those few", () =>
    expectListed({ state: "unknown" }, { count: 50, pagesMax: 2, readsMax: 500 }));

  it("of a state that nobody has is empty at once", () =>
    expectListed({ state: "pending" }, { count: 0, pagesMax: 2, readsMax: 50 }));

  it("of a tenant that has few reads those few", () =>
    expectListed({ tenantScope: "small" }, { count: 40, pagesMax: 2, readsMax: 500 }));

  it("of a tenant that has too many to be sorted comes in order, and to its end", () => {
    const count = total / 2 - total / 500;
    return expectListed(
      { tenantScope: "large" },
      { count, pagesMax: count, readsMax: 200_000, limit: 1_000 },
    );
  });

  it("of one route, which no index has, comes in order, and to its end", () =>
    expectListed({ route: "refunds" }, { count: 20, pagesMax: total, readsMax: 200_000 }));

  it("of the route of one state looks at those of that state only", () =>
    expectListed({ route: "refunds", state: "unknown" }, { count: 10, pagesMax: 2, readsMax: 500 }));

  it("of one key is found at once", () =>
    expectListed({ key: "key-12345" }, { count: 1, pagesMax: 2, readsMax: 100 }));

  it("shows those of one moment once each, also if a page ends between them", async () => {
    const moment = { createdFrom: 1_000_700, createdBefore: 1_000_701 };
    for (const limit of [1, 3, 10]) {
      const found = await listAll(store, { ...moment, limit });
      const keys = Array.from({ length: 10 }, (_, nth) => `key-${7_000 + nth}`);
      expect(found.map(({ key }) => key).sort()).toEqual(keys);
    }
  });

  it("cannot be gone on with from a place that no page has named", async () => {
    for (const place of [{}, [], ["1", "scope", "key"], [1, "scope"], [1, 2, 3], [0.5, "scope", "key"]]) {
      const after = Buffer.from(JSON.stringify(place)).toString("base64url");
      await expect(store.list({ limit: 1, after })).rejects.toThrow(StoreRefusedError);
    }
    await expect(store.list({ limit: 1, after: "'; DROP TABLE" })).rejects.toThrow(StoreRefusedError);
  });
});

describe("requeuing dead messages in MySQL", () => {
  async function bury(count: number): Promise<string[]> {
    const lease = await leaseOf(store, request({ scope: randomUUID() }));
    const message = {
      topic: "rides",
      payload: "{}",
      partition: null,
      correlationId: "c",
      scope: lease.scope,
      traceparent: null,
      delayMs: 0,
    };
    const messages = Array.from({ length: count }, (_, nth) => ({ ...message, key: `${lease.key}-${nth}` }));
    const response = { kind: "complete", response: created, retentionMs: 60_000 } as const;
    await store.transact?.(
      lease,
      () => {},
      () => ({ progress: [], onCrash: "retry", messages, response }),
    );
    await files.query(
      "UPDATE latchkey_outbox SET died_at = 1, error = 'no', attempts = 5, waiting_lane = NULL",
    );
    const rows = await files.query<{ id: number }>("SELECT id FROM latchkey_outbox WHERE scope = ?", [
      lease.scope,
    ]);
    return rows.map(({ id }) => String(id));
  }

  it("leaves an entry for each, however many they are", async () => {
    const ids = await bury(300);
    expect(await store.outbox?.requeue([...ids, ...ids, "0", "x"], "ada")).toBe(300);
    const trail = await files.query("SELECT DISTINCT record_key FROM latchkey_audit WHERE actor = 'ada'");
    expect(trail).toHaveLength(300);
  });

  it("is undone as a whole if its entry cannot be written", async () => {
    const ids = await bury(3);
    const failing = mysqlStore(
      stagedPool(files.pool(), (sql, send) =>
        sql.includes("INSERT INTO latchkey_audit") ? Promise.reject(new Error("disk full")) : send(),
      ),
    );
    await expect(failing.outbox?.requeue(ids, "bob")).rejects.toThrow("disk full");
    expect(await store.outbox?.requeue(ids, "bob")).toBe(3);
  });
});
