import type { Pool } from "mysql2/promise";
import { it } from "vitest";
import { mysqlStore } from "../../src/stores/mysql/store.ts";
import { useMysql } from "./mysql-support.ts";
import { assertAnswersAsMemoryDoes } from "./store-model.ts";

const files = useMysql();

it("answers any sequence of calls as the memory store does", async () => {
  // One connection, because of those who come at once the first comes first in the model.
  const pool = files.pool({ connectionLimit: 1 });
  await assertAnswersAsMemoryDoes(
    async (clock) => {
      for (const table of ["latchkey_records", "latchkey_audit"]) await files.query(`DELETE FROM ${table}`);
      return mysqlStore(onClock(pool, clock));
    },
    { numRuns: 60 },
  );
}, 60_000);

/** A pool whose connections have the time of this clock, as replication sets it. */
function onClock(pool: Pool, clock: () => number): Pool {
  return new Proxy(pool, {
    get(target, name) {
      if (name !== "getConnection") return Reflect.get(target, name, target);
      return async () => {
        const connection = await target.getConnection();
        await connection.query(`SET timestamp = ${clock() / 1_000}`);
        return connection;
      };
    },
  });
}
