import mysql, { type Pool, type PoolOptions, type RowDataPacket } from "mysql2/promise";
import { afterAll, beforeAll } from "vitest";
import { type MysqlConnection, type MysqlPool, migrate } from "../../src/stores/mysql/store.ts";
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

/** What MySQL has no means for. */
export const unheard = {
  push: "MySQL tells nobody that something changed",
  "bust news": "MySQL tells nobody that something changed",
  "outbox push": "MySQL tells nobody that something changed",
};

export type { MysqlPool };
