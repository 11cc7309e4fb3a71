import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import type { Lease, ListQuery } from "../../src/core/store.ts";
import { migrate, type PostgresClient, postgresStore } from "../../src/stores/postgres/store.ts";
import { runStoreContract } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database.ts";
import { complaintAbout, isListed, unseen } from "../support/plain-statements.ts";
import type { TestDatabase } from "../support/postgres-server.ts";
import { listAll, namesOf } from "./listing-support.ts";
import { again, businessTable, request } from "./postgres-support.ts";

const plain = { engine: "distributed" } as const;

/** None of these engines can be had for a test. Postgres refuses like them when it is strict about isolation. */
const clients: Readonly<
  Record<string, (url: string) => { client: PostgresClient; end(): Promise<unknown> }>
> = {
  "a pg pool"(connectionString) {
    const client = new pg.Pool({ connectionString });
    return { client: watched(client), end: () => client.end() };
  },
  "a pg pool, serializable"(connectionString) {
    const client = new pg.Pool({
      connectionString,
      options: "-c default_transaction_isolation=serializable",
    });
    return { client: watched(client), end: () => client.end() };
  },
  "postgres.js that renames columns, serializable"(url) {
    const client = postgres(url, {
      transform: postgres.camel,
      connection: { default_transaction_isolation: "serializable" },
    });
    return { client, end: () => client.end() };
  },
};

const notRunAgain =
  "phases that read and write the same pages conflict, and business code is not run again: it may do more than write";

const seen = new Set<string>();
const complaints: string[] = [];

function look(text: string): void {
  seen.add(text);
  const complaint = complaintAbout(text);
  if (complaint !== undefined) complaints.push(`${complaint}: ${text}`);
  if (text.includes("latchkey") && !isListed(text)) complaints.push(`not listed in the docs: ${text}`);
}

/** The same pool, with every statement looked at before it is sent. */
function watched(pool: pg.Pool): PostgresClient {
  const textOf = (statement: unknown) =>
    typeof statement === "string" ? statement : (statement as pg.QueryConfig).text;
  const isWatched = Symbol("watched");
  const watch = (client: Pick<pg.Pool, "query">) => {
    if (isWatched in client) return;
    Object.assign(client, { [isWatched]: true });
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    client.query = ((...args: unknown[]) => {
      look(textOf(args[0]));
      return query(...args);
    }) as typeof client.query;
  };
  pool.on("connect", watch);
  return pool;
}

for (const [name, open] of Object.entries(clients)) {
  describe.concurrent(`plain statements: ${name}`, () => {
    let database: TestDatabase;
    let opened: ReturnType<typeof open>;
    let business: Awaited<ReturnType<typeof businessTable>>;

    beforeAll(async () => {
      database = await freshDatabase();
      opened = open(database.url);
      await migrate(opened.client, plain);
      business = await businessTable(opened.client);
    });

    afterAll(async () => {
      await opened.end();
      await database.drop();
    });

    const conflicts = name.includes("serializable")
      ? { "phases of many operations at once do not disturb each other": notRunAgain }
      : {};
    const polled = "nothing but plain statements: whoever waits asks";
    runStoreContract({
      it: it.sequential,
      except: conflicts,
      lacks: { push: polled, "bust news": polled, "bust generation": polled, "outbox push": polled },
      async open() {
        const store = postgresStore(opened.client, plain);
        const passTime = async (ms: number) => void (await sleep(ms));
        return { store, passTime, business, close: () => store.close() };
      },
    });

    it.sequential("a list without a tenant is found by state, by key, and in the order of time, page by page", async () => {
      const store = postgresStore(opened.client, plain);
      const own = Array.from({ length: 5 }, () => request({ route: "lists" }));
      for (const each of own) await store.reserve(each);
      const pages = async (query: Omit<ListQuery, "limit">) =>
        namesOf(await listAll(store, { ...query, limit: 2 }));
      const expected = namesOf(own);
      expect(await pages({ route: "lists" })).toEqual(expected);
      expect(await pages({ route: "lists", state: "in_progress" })).toEqual(expected);
      expect(await pages({ route: "lists", state: "completed" })).toEqual([]);
      expect(await pages({ key: own[2]?.key, route: "lists" })).toHaveLength(1);
      const all = await pages({});
      expect(new Set(all).size).toBe(all.length);
      expect(all).toEqual(expect.arrayContaining(expected));
    });

    it.sequential("a hundred requests for each of ten keys at once: one executes, and all are answered", async () => {
      const stores = [1, 2, 3].map(() => postgresStore(opened.client, plain));
      const keys = Array.from({ length: 10 }, () => request());
      const answers = await Promise.all(
        Array.from({ length: 100 }, (_, index) =>
          keys.map((key) => stores[index % stores.length]?.reserve(again(key))),
        ).flat(),
      );
      const kinds = answers.map((answer) => answer?.kind).sort();
      expect(kinds.filter((kind) => kind === "execute")).toHaveLength(keys.length);
      expect(new Set(kinds)).toEqual(new Set(["execute", "inFlight"]));
    });
  });
}

it("every statement was plain and is listed in the docs, and every one that is listed was sent", () => {
  expect(complaints).toEqual([]);
  // The trail can be asked for in more ways than the cases do.
  const trail = /^SELECT id, at, scope, key, fence/;
  expect(unseen(seen).filter((text) => !trail.test(text))).toEqual([]);
});

it.each([
  "SELECT pg_try_advisory_xact_lock(1)",
  "LISTEN latchkey",
  "SELECT scope FROM latchkey_dist_records FOR UPDATE SKIP LOCKED",
  "SELECT * FROM latchkey_reserve_one($1)",
  "CREATE INDEX i ON latchkey_dist_records (scope) WHERE state = 'unknown'",
  "WITH gone AS (DELETE FROM latchkey_dist_records RETURNING key) SELECT key FROM gone",
  "UPDATE latchkey_dist_records SET state = 'expired' WHERE expires_at < $1",
  "UPDATE latchkey_dist_records SET created_at = clock_timestamp() WHERE scope = $1 AND key = $2",
  "DELETE FROM latchkey_dist_lanes RETURNING now()",
])("the check finds what is not plain: %s", (statement) => {
  expect(complaintAbout(statement)).toEqual(expect.any(String));
});

it("what only Postgres itself has is refused with a sentence", async () => {
  const pool = new pg.Pool();
  for (const [options, named] of [
    [{ lock: "advisory" }, 'lock: "advisory"'],
    [{ listen: true }, "listen"],
    [{ partitioned: true }, "partitioned"],
    [{ groupCommit: true }, "groupCommit"],
  ] as const) {
    expect(() => postgresStore(pool, { ...plain, ...options })).toThrow(
      new RegExp(`engine is "distributed", which sends nothing but plain statements: leave out ${named}`),
    );
  }
  await expect(migrate(pool, { ...plain, partitioned: "day" })).rejects.toThrow(ConfigError);
  expect(() => postgresStore(pool, { engine: "cockroach" as "distributed" })).toThrow(
    /engine is "cockroach" and must be "postgres" or "distributed"/,
  );
  await pool.end();
});

describe("tables in plain statements", () => {
  let database: TestDatabase;
  let pool: pg.Pool;

  beforeAll(async () => {
    database = await freshDatabase();
    pool = new pg.Pool({ connectionString: database.url });
  });
  afterAll(async () => {
    await pool.end();
    await database.drop();
  });

  it("a store without its tables says which migrate to run", async () => {
    const reserving = postgresStore(pool, plain).reserve(request());
    await expect(reserving).rejects.toThrow(StoreError);
    await expect(reserving).rejects.toThrow(/migrate\(pool, \{ engine: "distributed" \}\)/);
  });

  it("processes that migrate at once do not disturb each other, and one that comes later changes nothing", async () => {
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => migrate(pool, plain)));
    expect(outcomes.some(({ applied }) => applied.includes("0001_tables"))).toBe(true);
    expect(await migrate(pool, plain)).toEqual({ applied: [] });
    const { rows } = await pool.query("SELECT count(*)::int AS lanes FROM latchkey_dist_lanes");
    expect(rows).toEqual([{ lanes: 64 }]);
  });

  it("where indexes can only be made beside the traffic, they are", async () => {
    const sent: string[] = [];
    const picky = {
      async query(statement: { readonly text: string } | string) {
        const text = typeof statement === "string" ? statement : statement.text;
        if (text.startsWith("CREATE INDEX IF")) {
          throw Object.assign(new Error("use CREATE INDEX ASYNC"), { code: "0A000" });
        }
        sent.push(text);
        return { rows: [] };
      },
      connect: () => Promise.reject(new Error("one statement at a time")),
      on: () => {},
    };
    await migrate(picky, plain);
    expect(
      sent.filter((text) => text.startsWith("CREATE INDEX ASYNC IF NOT EXISTS latchkey_dist_")),
    ).toHaveLength(10);
  });
});

it("a conflict is tried again, until it is too many", async () => {
  let failures = 3;
  let asked = 0;
  const pool = {
    async query() {
      asked += 1;
      if (failures-- > 0) throw Object.assign(new Error("restart transaction"), { code: "40001" });
      return { rows: [{ created: 1 }] };
    },
    connect: () => Promise.reject(new Error("not needed")),
    on: () => {},
  };
  const store = postgresStore(pool, plain);
  expect(await store.reserve(request())).toMatchObject({ kind: "execute" });
  expect(asked).toBe(4);
  failures = Number.POSITIVE_INFINITY;
  await expect(store.reserve(request())).rejects.toThrow(/restart transaction/);
  expect(asked).toBe(4 + 13);
});

describe("a record that cannot be changed", () => {
  let database: TestDatabase;
  let pool: pg.Pool;

  beforeAll(async () => {
    database = await freshDatabase();
    pool = new pg.Pool({ connectionString: database.url });
    await migrate(pool, plain);
  });
  afterAll(async () => {
    await pool.end();
    await database.drop();
  });

  /** Of twenty, so that those after the first few are sent later. */
  const keys = Array.from({ length: 20 }, (_, nth) => `partial-${nth}`);
  const failing = "partial-3";

  it("keeps nobody else from being renewed or claimed", async () => {
    const store = postgresStore(pool, plain);
    const leases: Lease[] = [];
    for (const key of keys) {
      const reservation = await store.reserve(request({ key }));
      if (reservation.kind === "execute") leases.push(reservation.lease);
    }
    await refuseChangesOf(failing);
    expect(await store.renew(leases, 60_000)).toEqual(
      keys.map((key) => (key === failing ? "unknown" : "held")),
    );
    const only = leases.filter(({ key }) => key === failing);
    await expect(store.renew(only, 60_000)).rejects.toThrow(StoreError);

    await pool.query("DROP TRIGGER refuse ON latchkey_dist_records");
    for (const lease of leases) {
      await store.settle(lease, { kind: "suspend", reason: "no answer came", reconcileAfterMs: 0 });
    }
    await refuseChangesOf(failing);
    const claimed = await store.claimUnknown({ limit: 100, backoff: { baseMs: 60_000, capMs: 60_000 } });
    expect(claimed.map(({ key }) => key).sort()).toEqual(keys.filter((key) => key !== failing).sort());
  });

  async function refuseChangesOf(key: string): Promise<void> {
    await pool.query(`
      CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'this one cannot be changed'; END $$;
      CREATE TRIGGER refuse BEFORE UPDATE ON latchkey_dist_records
        FOR EACH ROW WHEN (OLD.key = '${key}') EXECUTE FUNCTION refuse();
    `);
  }
});
