import mysql, {
  type ExecuteValues,
  type Pool,
  type PoolConnection,
  type PoolOptions,
  type QueryOptions,
  type RowDataPacket,
} from "mysql2/promise";
import { afterAll, beforeAll, expect, vi } from "vitest";
import type { Lease, ReserveRequest, Store } from "../../src/core/store.ts";
import { type MysqlConnection, migrate } from "../../src/stores/mysql/store.ts";
import type { Business } from "../../src/testing/contract/harness.ts";
import { type MariadbServer, startMariadb, type TestDatabase } from "../support/mariadb-server.ts";

/** A server for one test file, with a migrated database, and pools on it that are closed with the file. */
export function useMysql() {
  let server: MariadbServer;
  let database: TestDatabase;
  let observer: Pool;
  const pools: Pool[] = [];

  const files = {
    get url() {
      return database.url;
    },
    /** Another database on the same server, with nothing in it. */
    async emptyDatabase(): Promise<string> {
      return (await server.createDatabase()).url;
    },
    /** A pool of its own stands for a process of its own. */
    pool(options: PoolOptions = {}): Pool {
      const pool = mysql.createPool({ uri: options.uri ?? database.url, ...options });
      pools.push(pool);
      return pool;
    },
    /** Looks at the tables past every store. */
    async query<R>(sql: string, values: unknown[] = []): Promise<R[]> {
      const [rows] = await observer.query<RowDataPacket[]>(sql, values);
      return rows as R[];
    },
  };

  beforeAll(async () => {
    server = await startMariadb();
    database = await server.createDatabase();
    observer = files.pool({ connectionLimit: 2 });
    await migrate(observer);
  });
  afterAll(async () => {
    await Promise.all(pools.map((pool) => pool.end()));
    await database.drop();
    await server.remove();
  });
  return files;
}

/** An application's own table, beside Latchkey's; `observer` reads it, whatever the store's own pool is set to. */
export async function businessTable(observer: Pool): Promise<Business<MysqlConnection>> {
  await observer.query("CREATE TABLE IF NOT EXISTS business (id VARCHAR(200) PRIMARY KEY) ENGINE = InnoDB");
  return {
    insert: (tx, id) => tx.execute("INSERT INTO business (id) VALUES (?)", [id]),
    ids: async () => {
      const [rows] = await observer.query<RowDataPacket[]>("SELECT id FROM business");
      return rows.map((row) => row.id as string);
    },
  };
}

/** A pool whose connections let `stage` come between them and each statement. */
export function stagedPool(
  pool: Pool,
  stage: (sql: string, send: () => Promise<unknown>) => Promise<unknown>,
): Pool {
  return overridden(pool, {
    getConnection: async () => {
      const connection = await pool.getConnection();
      const staged =
        (name: "query" | "execute") => (statement: string | QueryOptions, values?: ExecuteValues) =>
          stage(typeof statement === "string" ? statement : statement.sql, () =>
            (connection[name] as PoolConnection["execute"])(statement as string, values),
          );
      return overridden(connection, { query: staged("query"), execute: staged("execute") });
    },
  });
}

/** The same object, but for some of its methods. */
export function overridden<T extends object>(target: T, own: Readonly<Record<string, unknown>>): T {
  return new Proxy(target, {
    get(_, name) {
      if (typeof name === "string" && Object.hasOwn(own, name)) return own[name];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

export async function leaseOf(store: Store<MysqlConnection>, wanted: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(wanted);
  if (reservation.kind !== "execute") throw new Error(`expected to execute, got ${reservation.kind}`);
  return reservation.lease;
}

/** No connection was given back with a transaction open: it would hold its locks until somebody ends it. */
export async function nothingLeftOpen({ query }: { query<R>(sql: string): Promise<R[]> }): Promise<void> {
  const ask = async () => {
    const open = await query("SELECT trx_mysql_thread_id FROM information_schema.innodb_trx");
    expect(open).toEqual([]);
  };
  await vi.waitFor(ask, { interval: innodbTrxAgeMs, timeout: 5_000 });
}

/** What the server tells of transactions is looked up anew only if nobody has asked for a tenth of a second. */
export const innodbTrxAgeMs = 120;

/** What MySQL has no means for. */
export const unheard = {
  push: "MySQL tells nobody that something changed",
  "bust news": "MySQL tells nobody that something changed",
  "bust generation": "MySQL tells nobody that something changed",
  "outbox push": "MySQL tells nobody that something changed",
};

export { again, request } from "../support/reserve-request.ts";
