import type { ResultSetHeader } from "mysql2/promise";
import { beforeAll } from "vitest";
import type { PhaseCommit, Store } from "../../src/core/store.ts";
import { type MysqlConnection, mysqlStore } from "../../src/stores/mysql/store.ts";
import { leaseOf, request, useMysql } from "./mysql-support.ts";

/** A server for one test file, with a table `rides` that stands for an application's own. */
export function usePhases() {
  const files = useMysql();
  let store: Store<MysqlConnection>;

  beforeAll(async () => {
    store = mysqlStore(files.pool());
    await files.query("CREATE TABLE rides (id VARCHAR(100) PRIMARY KEY, seats INT NOT NULL) ENGINE = InnoDB");
  });

  return {
    files,
    get store() {
      return store;
    },
    /** Runs one phase under a new lease. */
    async inPhase<T>(work: (tx: MysqlConnection) => T | Promise<T>, on = store) {
      const lease = await leaseOf(on, request());
      const answer = await on.transact?.(lease, work, () => phase());
      return { answer, lease };
    },
    async rides(): Promise<string[]> {
      return (await files.query<{ id: string }>("SELECT id FROM rides ORDER BY id")).map(({ id }) => id);
    },
    async progressOf(id: { scope: string; key: string }): Promise<number | undefined> {
      return (await store.read(id)).record?.progress.length;
    },
  };
}

export function phase(): PhaseCommit {
  return {
    progress: [{ kind: "atomic", name: "booked", result: "1" }],
    onCrash: "resume",
    messages: [],
  };
}

export function insertRide(tx: MysqlConnection, id: string) {
  return tx.execute<ResultSetHeader>("INSERT INTO rides VALUES (?, 1)", [id]);
}
