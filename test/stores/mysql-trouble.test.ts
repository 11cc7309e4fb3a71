import { setTimeout as sleep } from "node:timers/promises";
import mysql from "mysql2/promise";
import { describe, expect, it } from "vitest";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import type { StoredResponse } from "../../src/core/response.ts";
import { Database } from "../../src/stores/mysql/database.ts";
import { MysqlStore } from "../../src/stores/mysql/mysql-store.ts";
import { type MysqlPool, mysqlStore } from "../../src/stores/mysql/store.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import {
  again,
  innodbTrxAgeMs,
  leaseOf,
  nothingLeftOpen,
  request,
  stagedPool,
  useMysql,
} from "./mysql-support.ts";

const files = useMysql();

const answer = (bytes: number): StoredResponse => ({
  kind: "full",
  status: 201,
  headers: [],
  body: new Uint8Array(bytes).fill(7),
});
const complete = (bytes: number) =>
  ({ kind: "complete", response: answer(bytes), retentionMs: 60_000 }) as const;

describe("what the server refuses", () => {
  it("a database without the tables: the error says to migrate", async () => {
    const store = mysqlStore(files.pool({ uri: await files.emptyDatabase() }));
    await expect(store.reserve(request())).rejects.toThrow(/run migrate\(pool\)/);
    await expect(store.outbox?.counts()).rejects.toThrow(/run migrate\(pool\)/);
    await expect(store.reserve(request())).rejects.toThrow(StoreError);
  });

  it("a server that takes no writes: the connection does not go back into the pool", async () => {
    await files.query("CREATE USER app@'%'");
    await files.query("GRANT EXECUTE, SELECT, INSERT, UPDATE, DELETE ON *.* TO app@'%'");
    const pool = files.pool({ user: "app" });
    const threads: number[] = [];
    pool.on("connection", (connection) => threads.push(connection.threadId));
    const store = mysqlStore(pool);
    const wanted = request();
    await files.query("SET GLOBAL read_only = ON");
    try {
      await expect(store.reserve(wanted)).rejects.toThrow(/takes no writes/);
      await expect(store.reserve(wanted)).rejects.toThrow(StoreError);
    } finally {
      await files.query("SET GLOBAL read_only = OFF");
    }
    expect(threads, "a new connection after each refusal").toHaveLength(2);
    expect((await store.reserve(wanted)).kind).toBe("execute");
  });

  it("whoever serves requests needs no right to create anything", async () => {
    await files.query("CREATE USER server@'%'");
    await files.query("GRANT EXECUTE, SELECT, INSERT, UPDATE, DELETE ON *.* TO server@'%'");
    const store = mysqlStore(files.pool({ user: "server" }));
    const lease = await leaseOf(store, request());
    expect(await store.renew([lease], 60_000)).toEqual(["held"]);
    expect((await store.settle(lease, complete(10))).kind).toBe("settled");
  });

  it("a pool that is no pool: the error says what to pass", () => {
    for (const pool of [undefined, {}, "mysql://root@localhost"]) {
      expect(() => mysqlStore(pool as MysqlPool)).toThrow(ConfigError);
    }
    expect(() => mysqlStore(files.pool(), { responseBytesMax: -1 })).toThrow(ConfigError);
  });

  it("a server that is not there: the store's failure, and nothing else", async () => {
    const pool = mysql.createPool("mysql://root@127.0.0.1:1/none");
    await expect(mysqlStore(pool).reserve(request())).rejects.toThrow(StoreError);
    await pool.end();
  });
});

it("a host that vanished holds no connection for good, whether a statement was prepared on it or not", async () => {
  const { hostname: host, port } = new URL(files.url);
  const proxy = await startTcpProxy({ host, port: Number(port) });
  const uri = files.url.replace(`:${port}/`, `:${proxy.port}/`);
  const pool = files.pool({ uri, connectionLimit: 1 });
  const store = new MysqlStore(new Database(pool, { silentMs: 300 }), {});
  try {
    const calls = [() => store.reserve(request()), () => store.read(request())];
    for (const call of calls) {
      expect((await store.reserve(request())).kind).toBe("execute");
      proxy.strand();
      await expect(call()).rejects.toThrow(/no answer for 300 ms/);
    }
    const lease = await leaseOf(store, request());
    const cutOff = store.transact?.(
      lease,
      () => proxy.strand(),
      () => ({ progress: [], onCrash: "retry", messages: [] }),
    );
    await expect(cutOff).rejects.toThrow(StoreError);
    expect(await store.renew([lease], 60_000)).toEqual(["held"]);
  } finally {
    await proxy.close();
  }
});

describe("large responses", () => {
  it("the largest that the store says it takes is stored and replayed", async () => {
    const store = mysqlStore(files.pool());
    const { responseBytesMax } = store.capabilities;
    expect(responseBytesMax).toBe(8 * 1024 * 1024);
    const wanted = request();
    await store.settle(await leaseOf(store, wanted), complete(responseBytesMax));
    const replay = await store.reserve(again(wanted));
    if (replay.kind !== "replay" || replay.response.kind !== "full") expect.fail(replay.kind);
    expect(Buffer.compare(replay.response.body, new Uint8Array(responseBytesMax).fill(7))).toBe(0);
  });

  it("one that does not fit into a packet is refused in words, and the connection is not lost", async () => {
    await files.query("SET GLOBAL max_allowed_packet = 1048576");
    try {
      const pool = files.pool({ connectionLimit: 1 });
      const store = mysqlStore(pool, { responseBytesMax: 32 * 1024 * 1024 });
      const wanted = request();
      const lease = await leaseOf(store, wanted);
      const connection = await pool.getConnection();
      connection.release();
      await expect(store.settle(lease, complete(2_000_000))).rejects.toThrow(/max_allowed_packet/);
      expect((await store.read(lease)).record?.state).toBe("in_progress");
      expect((await store.settle(lease, complete(1_000_000))).kind).toBe("settled");
      const after = await pool.getConnection();
      after.release();
      expect(after.threadId).toBe(connection.threadId);
    } finally {
      await files.query("SET GLOBAL max_allowed_packet = 16777216");
    }
  });
});

describe("deadlocks and locks", () => {
  it("a heartbeat that has to give way in a deadlock is tried again", async () => {
    let deadlocks = 0;
    const store = mysqlStore(
      stagedPool(files.pool(), async (_, send) => {
        try {
          return await send();
        } catch (error) {
          if ((error as { errno?: number }).errno === 1213) deadlocks += 1;
          throw error;
        }
      }),
    );
    await files.query("CREATE TABLE heavy (n INT PRIMARY KEY) ENGINE = InnoDB");
    const leases = [await leaseOf(store, request()), await leaseOf(store, request())];
    const [first, last] = (
      await files.query<{ id: Buffer }>("SELECT id FROM latchkey_records WHERE owner IN (?) ORDER BY id", [
        leases.map(({ owner }) => owner),
      ])
    ).map(({ id }) => id);
    const other = await files.pool().getConnection();
    await other.beginTransaction();
    // The other one has done more, so that the heartbeat is the one that gives way.
    await other.query("INSERT INTO heavy SELECT lane FROM latchkey_lanes");
    await other.query("SELECT id FROM latchkey_records WHERE id = ? FOR UPDATE", [last]);
    const renewed = store.renew(leases, 60_000);
    await waitingForLock();
    await other.query("SELECT id FROM latchkey_records WHERE id = ? FOR UPDATE", [first]);
    await other.rollback();
    other.release();
    expect(await renewed).toEqual(["held", "held"]);
    expect(deadlocks).toBe(1);
  });

  it("a lock that was not got in time is an error, and leaves no transaction behind", async () => {
    const pool = files.pool({ connectionLimit: 1 });
    pool.pool.on("connection", (connection) => connection.query("SET innodb_lock_wait_timeout = 1"));
    const store = mysqlStore(pool);
    const lease = await leaseOf(store, request());
    const other = await files.pool().getConnection();
    await other.beginTransaction();
    await other.query("SELECT id FROM latchkey_records FOR UPDATE");
    await expect(store.settle(lease, complete(1))).rejects.toThrow(StoreError);
    await expect(store.settle(lease, { kind: "suspend", reason: "x", reconcileAfterMs: 0 })).rejects.toThrow(
      StoreError,
    );
    await other.rollback();
    other.release();
    await nothingLeftOpen(files);
    expect((await store.settle(lease, complete(1))).kind).toBe("settled");
  });

  it("a connection that was left in a transaction does not hold a reservation back", async () => {
    const pool = files.pool({ connectionLimit: 1 });
    const dirty = await pool.getConnection();
    await dirty.query("SET autocommit = 0");
    await dirty.query("SELECT * FROM latchkey_records");
    dirty.release();
    const store = mysqlStore(pool);
    const others = mysqlStore(files.pool());
    const wanted = request();
    const lease = await leaseOf(store, wanted);
    expect((await others.reserve(again(wanted))).kind, "it is committed").toBe("inFlight");
    expect(await store.renew([lease], 60_000)).toEqual(["held"]);
    await others.advance(lease, {
      progress: [{ kind: "atomic", name: "a", result: "1" }],
      onCrash: "resume",
    });
    expect((await store.read(lease)).record?.progress, "and what others commit is seen").toHaveLength(1);
    expect((await store.settle(lease, complete(1))).kind).toBe("settled");
    expect((await others.reserve(again(wanted))).kind).toBe("replay");
    await nothingLeftOpen(files);
  });
});

async function waitingForLock(): Promise<void> {
  for (;;) {
    const waiting = await files.query(
      "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    );
    if (waiting.length > 0) return;
    await sleep(innodbTrxAgeMs);
  }
}
