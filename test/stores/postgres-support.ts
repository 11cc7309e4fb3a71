import pg from "pg";
import { afterAll, beforeAll } from "vitest";
import type { RecordId } from "../../src/core/record.ts";
import type { StoredResponse } from "../../src/core/response.ts";
import type { Lease, ReserveRequest, Settlement, Store } from "../../src/core/store.ts";
import type { Seams } from "../../src/stores/postgres/calls.ts";
import { databaseOf } from "../../src/stores/postgres/database.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres-store.ts";
import {
  migrate,
  type PostgresClient,
  postgresStore,
  type TransactionOf,
} from "../../src/stores/postgres/store.ts";
import type { Business } from "../../src/testing/contract/harness.ts";
import { freshDatabase } from "../support/database.ts";
import type { TestDatabase } from "../support/postgres-server.ts";
import { request } from "../support/reserve-request.ts";

/** A migrated database for one test file, and pools on it that are closed with the file. */
export function useDatabase() {
  let database: TestDatabase;
  const pools: pg.Pool[] = [];

  const files = {
    get url() {
      return database.url;
    },
    /** A pool of its own stands for a process of its own. */
    pool(options: pg.PoolConfig = {}): pg.Pool {
      const pool = new pg.Pool({ connectionString: database.url, ...options });
      pools.push(pool);
      return pool;
    },
    /** Looks at the tables past every store. */
    async query<R extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<R[]> {
      return (await observer.query<R>(text, values)).rows;
    },
  };
  let observer: pg.Pool;

  beforeAll(async () => {
    database = await freshDatabase();
    observer = files.pool({ max: 2 });
    await migrate(observer);
  });
  afterAll(async () => {
    await Promise.all(pools.map((pool) => pool.end()));
    await database.drop();
  });
  return files;
}

/** Whether somebody is to be told of a record's end. */
export async function isWatched(
  database: ReturnType<typeof useDatabase>,
  { scope, key }: RecordId,
): Promise<boolean | undefined> {
  const [row] = await database.query<{ watched: boolean }>(
    "SELECT watched FROM latchkey_records WHERE scope = $1 AND key = $2",
    [scope, key],
  );
  return row?.watched;
}

/** Whether a statement only tries out whether a pool takes calls the short way. */
export function isTrial(text: string): boolean {
  return text.includes("latchkey_try");
}

/** A pool that tells of each statement before it is sent. */
export function spied(
  pool: pg.Pool,
  before: (text: string, name: string | undefined) => Promise<void> | void,
) {
  return {
    async query(statement: string | pg.QueryConfig, values?: unknown[]) {
      const { text, name } = typeof statement === "string" ? { text: statement } : statement;
      if (!isTrial(text)) await before(text, name);
      return pool.query(statement, values);
    },
    connect: () => pool.connect(),
    on: () => {},
  };
}

/** The statement that writes a record past every store, of columns as SQL. */
export function insertion(columns: Readonly<Record<string, string>>): string {
  const record = {
    scope: "'acme'",
    fingerprint: "'v1:f'",
    fence: "1",
    on_crash: "'retry'",
    created_at: "now()",
    expires_at: "now()",
    ...columns,
  };
  return `INSERT INTO latchkey_records (${Object.keys(record)}) VALUES (${Object.values(record).join(", ")})`;
}

export { again, request } from "../support/reserve-request.ts";

export async function leaseOf(store: Store, wanted: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(wanted);
  if (reservation.kind !== "execute") throw new Error(`expected to execute, got ${reservation.kind}`);
  return reservation.lease;
}

/** A store that has seen nothing but new keys for a while, and what it sends from then on. */
export async function expectingNew(pool: pg.Pool): Promise<{ store: Store; texts: string[] }> {
  const texts: string[] = [];
  const store = postgresStore(spied(pool, (text) => void texts.push(text)));
  for (let round = 0; round < 8; round += 1) {
    await Promise.all(Array.from({ length: 10 }, () => leaseOf(store, request())));
  }
  texts.length = 0;
  return { store, texts };
}

/** A store on one connection, so that its plans stay, and the plans of everything that a piece of work executes on it. */
export async function explained(url: string, seams: Seams = {}) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`
    LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
    SET auto_explain.log_analyze = on; SET client_min_messages = log`);
  const single = {
    query: (text: string, values: unknown[]) => client.query(text, values),
    connect: () => Promise.reject(new Error("nobody needs a transaction here")),
    on: () => {},
  };
  return {
    store: new PostgresStore(databaseOf(single as never), {}, seams),
    async plansOf(work: () => Promise<unknown>): Promise<string> {
      const plans: string[] = [];
      const hear = ({ message }: { message?: string | undefined }) => plans.push(message ?? "");
      client.on("notice", hear);
      await work();
      client.removeListener("notice", hear);
      return plans.join("\n");
    },
    query: (text: string, values: unknown[]) => client.query(text, values),
    end: () => client.end(),
  };
}

/** Makes a small table a large one, without any plan being made anew. */
export const manyRecords = `
  INSERT INTO latchkey_records (scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, owner,
    completed_at, response_status, response_head)
  SELECT 's', 'k' || i, 'completed', 'f', 1, 'retry', now(), now() + interval '1 day', 'o' || i, now(), 201, '{}'
  FROM generate_series(1, 100000) AS i`;

/** The functions that statements call. */
export function functionsIn(texts: readonly string[]): (string | undefined)[] {
  return texts.map((text) => /latchkey_\w+/.exec(text)?.[0]);
}

export const response: StoredResponse = {
  kind: "full",
  status: 201,
  headers: [["content-type", "text/plain"]],
  body: new TextEncoder().encode("done"),
};

/** What an accepted request gets that nobody executed. */
export const unclaimed: StoredResponse = { ...response, status: 408 };

export const complete = { kind: "complete", response, retentionMs: 60_000 } satisfies Settlement;

type Transaction = TransactionOf<PostgresClient>;

/** Sends a statement through whatever a phase was handed. */
export async function send(tx: Transaction, text: string, values: string[] = []): Promise<readonly object[]> {
  return "unsafe" in tx ? tx.unsafe(text, values) : (await tx.query(text, values)).rows;
}

/** An application's own table, beside Latchkey's. */
export async function businessTable(client: PostgresClient): Promise<Business<Transaction>> {
  const query = (text: string) =>
    "unsafe" in client ? client.unsafe(text) : client.query(text, []).then(({ rows }) => rows);
  await query("CREATE TABLE IF NOT EXISTS business (id text PRIMARY KEY)");
  return {
    insert: (tx, id) => send(tx, "INSERT INTO business (id) VALUES ($1)", [id]),
    ids: async () => [...(await query("SELECT id FROM business"))].map((row) => (row as { id: string }).id),
  };
}

/** What a store lacks that was not told to listen. */
export const unheard = {
  push: "it was not told to listen",
  "bust news": "it was not told to listen",
  "bust generation": "it was not told to listen",
  "outbox push": "it was not told to listen",
};

/** Asks until the answer is yes. */
export async function eventually(asked: () => Promise<boolean> | boolean, timeoutMs = 5_000): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await asked())) {
    if (performance.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${asked}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
