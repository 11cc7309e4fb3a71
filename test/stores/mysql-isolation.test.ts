import type { Pool, RowDataPacket } from "mysql2/promise";
import { expect, it } from "vitest";
import type { NewMessage } from "../../src/core/outbox.ts";
import { mysqlStore } from "../../src/stores/mysql/store.ts";
import { again, leaseOf, request, stagedPool, useMysql } from "./mysql-support.ts";

const files = useMysql();

const response = {
  kind: "complete",
  response: { kind: "full", status: 201, headers: [], body: new Uint8Array(3) },
  retentionMs: 60_000,
} as const;

const message: NewMessage = {
  topic: "rides",
  payload: "{}",
  partition: null,
  key: "ride",
  correlationId: "request",
  scope: "tenant",
  traceparent: null,
  delayMs: 0,
};

/** A pool with one connection, whose session is set so. */
function poolWith(setting: string): Pool {
  const pool = files.pool({ connectionLimit: 1 });
  pool.pool.on("connection", (connection) => connection.query(setting));
  return pool;
}

it.each([1, 0])(
  "READ UNCOMMITTED, autocommit = %i: nobody is told what a phase has not committed",
  async (autocommit) => {
    const pool = poolWith("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
    await pool.query("SET SESSION autocommit = ?", [autocommit]);
    const careless = mysqlStore(pool);
    const { outbox } = careless;
    if (outbox === undefined) expect.fail("there is an outbox");
    const wanted = request();
    const lease = await leaseOf(careless, wanted);
    let looked = 0;
    const staged = stagedPool(files.pool(), async (sql, send) => {
      if (sql !== "COMMIT") return send();
      expect((await careless.reserve(again(wanted))).kind).toBe("inFlight");
      expect((await careless.read(wanted)).record?.state).toBe("in_progress");
      expect(await outbox.counts()).toMatchObject({ waiting: 0 });
      expect(await outbox.claim({ owner: "relay", limit: 10, leaseMs: 60_000 })).toEqual([]);
      const [rows] = await pool.query<RowDataPacket[]>("SELECT COUNT(*) AS messages FROM latchkey_outbox");
      expect(rows[0]?.messages, "the session itself still reads all").toBe(1);
      looked += 1;
      throw new Error("not committed");
    });
    const failed = mysqlStore(staged).transact?.(
      lease,
      () => 1,
      () => ({ progress: [], onCrash: "retry", messages: [message], response }),
    );
    await expect(failed).rejects.toThrow("not committed");
    expect(looked).toBe(1);
    expect((await careless.settle(lease, response)).kind).toBe("settled");
    expect((await careless.reserve(again(wanted))).kind).toBe("replay");
  },
);

it("a session whose COMMIT begins the next transaction: everything is found", async () => {
  const store = mysqlStore(poolWith("SET SESSION completion_type = CHAIN"));
  const wanted = request();
  const lease = await leaseOf(store, wanted);
  expect((await store.reserve(again(wanted))).kind).toBe("inFlight");
  expect((await store.settle(lease, response)).kind).toBe("settled");
  expect((await store.read(wanted)).record?.state).toBe("completed");
  expect(await store.outbox?.counts()).toMatchObject({ waiting: 0 });
});
