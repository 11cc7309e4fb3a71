import { setTimeout as sleep } from "node:timers/promises";
import type { PoolOptions } from "mysql2/promise";
import { beforeAll, describe, it } from "vitest";
import { type MysqlConnection, type MysqlPool, migrate, mysqlStore } from "../../src/stores/mysql/store.ts";
import type { Business } from "../../src/testing/contract/harness.ts";
import { runStoreContract } from "../../src/testing/index.ts";
import { businessTable, unheard, useMysql } from "./mysql-support.ts";

const files = useMysql();

/** Everything that a pool may be told to do with results, parameters and the session. */
const odd: PoolOptions = {
  charset: "latin1",
  supportBigNumbers: true,
  bigNumberStrings: true,
  decimalNumbers: true,
  dateStrings: true,
  rowsAsArray: true,
  nestTables: "_",
  namedPlaceholders: true,
  jsonStrings: true,
  timezone: "+05:30",
  flags: ["-FOUND_ROWS"],
  typeCast: () => "not what it was",
};

/** What a session may be set to, for each connection of a pool. */
const oddSession = [
  "SET SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE'",
  "SET SESSION autocommit = 0",
  "SET SESSION time_zone = '+13:00'",
];

const subjects: Readonly<Record<string, (uri: string) => MysqlPool>> = {
  "a pool of promises": (uri) => files.pool({ uri }),
  "a pool of callbacks": (uri) => files.pool({ uri }).pool as MysqlPool,
  "a pool with every odd setting": (uri) => {
    const pool = files.pool({ uri, ...odd });
    // Queued on the connection before whoever asked for it gets it.
    pool.pool.on("connection", (connection) => {
      for (const statement of oddSession) connection.query(statement);
    });
    return pool;
  },
};

for (const [name, open] of Object.entries(subjects)) {
  // Each subject has a database of its own, and the cases mostly wait for leases to run out: all subjects at once.
  describe.concurrent(name, () => {
    let pool: MysqlPool;
    let business: Business<MysqlConnection>;

    beforeAll(async () => {
      const uri = await files.emptyDatabase();
      pool = open(uri);
      await migrate(pool);
      business = await businessTable(files.pool({ uri, connectionLimit: 2 }));
    });

    // One pool for all cases, a store for each: closing the store must leave the pool open.
    runStoreContract({
      it: it.sequential,
      lacks: unheard,
      async open() {
        const store = mysqlStore(pool);
        return {
          store,
          passTime: async (ms) => void (await sleep(ms)),
          business,
          close: () => store.close(),
        };
      },
    });
  });
}
