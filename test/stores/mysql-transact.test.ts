import type { PoolConnection, ResultSetHeader, RowDataPacket } from "mysql2/promise";
import { beforeAll, describe, expect, it } from "vitest";
import { PhaseError, StoreError } from "../../src/core/errors.ts";
import type { PhaseCommit, Store } from "../../src/core/store.ts";
import { type MysqlConnection, mysqlStore } from "../../src/stores/mysql/store.ts";
import { leaseOf, nothingLeftOpen, request, stagedPool, useMysql } from "./mysql-support.ts";

const files = useMysql();
const phase = (overrides: Partial<PhaseCommit> = {}): PhaseCommit => ({
  progress: [{ kind: "atomic", name: "booked", result: "1" }],
  onCrash: "resume",
  messages: [],
  ...overrides,
});

let store: Store<MysqlConnection>;

beforeAll(async () => {
  store = mysqlStore(files.pool());
  await files.query("CREATE TABLE rides (id VARCHAR(100) PRIMARY KEY, seats INT NOT NULL) ENGINE = InnoDB");
  await files.query(
    "CREATE PROCEDURE ends_it () BEGIN INSERT INTO rides VALUES ('by a procedure', 1); COMMIT; END",
  );
});

/** Runs one phase under a new lease. */
async function inPhase<T>(work: (tx: MysqlConnection) => T | Promise<T>, on = store) {
  const lease = await leaseOf(on, request());
  const answer = await on.transact?.(lease, work, () => phase());
  return { answer, lease };
}

async function rides(): Promise<string[]> {
  return (await files.query<{ id: string }>("SELECT id FROM rides ORDER BY id")).map(({ id }) => id);
}

async function progressOf(id: { scope: string; key: string }): Promise<number | undefined> {
  return (await store.read(id)).record?.progress.length;
}

const insert = (tx: MysqlConnection, id: string) =>
  tx.execute<ResultSetHeader>("INSERT INTO rides VALUES (?, 1)", [id]);

describe("a phase that would end its own transaction", () => {
  const methods: Readonly<Record<string, (tx: MysqlConnection) => unknown>> = {
    "tx.commit()": (tx) => tx.commit(),
    "tx.rollback()": (tx) => tx.rollback(),
    "tx.beginTransaction()": (tx) => tx.beginTransaction(),
    "tx.release()": (tx) => tx.release(),
    "tx.destroy()": (tx) => tx.destroy(),
    "tx.end()": (tx) => tx.end(),
  };
  const statements = [
    "COMMIT",
    " commit and chain",
    "ROLLBACK",
    "BEGIN",
    "START TRANSACTION",
    "SET autocommit = 1",
    "SET @@session.autocommit = 1",
    "CREATE TABLE not_made (a INT)",
    "DROP TABLE rides",
    "ALTER TABLE rides ADD COLUMN a INT",
    "TRUNCATE TABLE rides",
    "LOCK TABLES rides WRITE",
  ];
  const attempts: [string, (tx: MysqlConnection) => unknown][] = [
    ...Object.entries(methods),
    ...statements.map((sql): [string, (tx: MysqlConnection) => unknown] => [sql, (tx) => tx.query(sql)]),
    ["SELECT by options, then COMMIT", (tx) => tx.query({ sql: "COMMIT" })],
  ];

  it.each(attempts)("is refused before anything is sent: %s", async (name, end) => {
    const before = await rides();
    const failed = inPhase(async (tx) => {
      await insert(tx, `before ${name}`);
      await end(tx);
    });
    await expect(failed).rejects.toThrow(PhaseError);
    expect(await rides()).toEqual(before);
    await nothingLeftOpen(files);
  });

  it.each(["/* hidden */ COMMIT", "CALL ends_it()", "/* hidden */ CREATE TABLE made (a INT)"])(
    "is noticed at its end where nobody saw it coming: %s",
    async (sql) => {
      const lease = await leaseOf(store, request());
      const failed = store.transact?.(
        lease,
        (tx) => tx.query(sql),
        () => phase(),
      );
      await expect(failed).rejects.toThrow(PhaseError);
      expect(await progressOf(lease), "the phase is not written down").toBe(0);
      await nothingLeftOpen(files);
    },
  );

  it("may use savepoints and temporary tables", async () => {
    const { answer } = await inPhase(async (tx) => {
      await tx.query("SAVEPOINT own");
      await insert(tx, "given up");
      await tx.query("ROLLBACK TO SAVEPOINT own");
      await tx.query("CREATE TEMPORARY TABLE scratch (a INT)");
      await tx.query("DROP TEMPORARY TABLE scratch");
      await insert(tx, "kept");
    });
    expect(answer).toMatchObject({ kind: "committed" });
    expect(await rides()).toContain("kept");
    expect(await rides()).not.toContain("given up");
  });

  it("cannot use its connection after it is over", async () => {
    let kept: MysqlConnection | undefined;
    await inPhase((tx) => {
      kept = tx;
    });
    expect(() => kept?.query("INSERT INTO rides VALUES ('late', 1)")).toThrow(PhaseError);
    expect(await rides()).not.toContain("late");
  });
});

describe("what goes past the phase", () => {
  it("a method that was kept does not write into the phase of another request", async () => {
    const single = mysqlStore(files.pool({ connectionLimit: 1 }));
    const kept: ((sql: string) => Promise<unknown>)[] = [];
    await inPhase((tx) => {
      kept.push(tx.query, tx.execute);
    }, single);
    expect(kept).toHaveLength(2);
    const { answer } = await inPhase(async () => {
      for (const send of kept) {
        await expect(send("INSERT INTO rides VALUES ('by another', 1)")).rejects.toThrow(PhaseError);
      }
    }, single);
    expect(answer).toMatchObject({ kind: "committed" });
    expect(await rides()).not.toContain("by another");
  });

  it("a prepared statement is refused, in words that say what to use", async () => {
    const failed = inPhase(async (tx) => {
      await insert(tx, "before preparing");
      await tx.prepare("INSERT INTO rides VALUES (?, 1)");
    });
    await expect(failed).rejects.toThrow(/use tx\.execute/);
    await expect(failed).rejects.toThrow(PhaseError);
    expect(await rides()).not.toContain("before preparing");
    await nothingLeftOpen(files);
  });
});

describe("a phase that throws", () => {
  const unreadable = {
    get errno() {
      throw new Error("not to be looked at");
    },
  };

  it.each([
    ["nothing", undefined],
    ["null", null],
    ["what cannot be looked at", unreadable],
  ])("%s is rolled back, gives its connection back and throws just that", async (name, value) => {
    const single = mysqlStore(files.pool({ connectionLimit: 1 }));
    const failed = inPhase(async (tx) => {
      await insert(tx, `before ${name}`);
      throw value;
    }, single);
    const caught = await failed.then(
      () => expect.fail("it threw"),
      (error: unknown) => ({ error }),
    );
    expect(caught.error).toBe(value);
    await nothingLeftOpen(files);
    expect(await rides()).not.toContain(`before ${name}`);
    expect((await inPhase((tx) => insert(tx, `after ${name}`), single)).answer).toMatchObject({
      kind: "committed",
    });
  });
});

describe("a phase that meets others", () => {
  it("is not committed in part when a deadlock has rolled it back, even if its handler goes on", async () => {
    await files.query("INSERT INTO rides VALUES ('left', 1), ('right', 1)");
    const other = await files.pool().getConnection();
    const failed = inPhase(async (tx) => {
      await tx.query("UPDATE rides SET seats = 2 WHERE id = 'left'");
      await other.beginTransaction();
      // The other one has done more, so this one has to give way.
      await other.query("INSERT INTO rides SELECT CONCAT('seat ', lane), 1 FROM latchkey_lanes");
      await other.query("UPDATE rides SET seats = 3 WHERE id = 'right'");
      const blocked = other.query("UPDATE rides SET seats = 3 WHERE id = 'left'");
      await tx.query("UPDATE rides SET seats = 2 WHERE id = 'right'").catch(() => "never mind");
      await blocked;
      await other.rollback();
      await insert(tx, "after the deadlock").catch(() => "never mind");
    });
    await expect(failed).rejects.toThrow(StoreError);
    other.release();
    expect(await rides()).not.toContain("after the deadlock");
    expect(await files.query("SELECT seats FROM rides WHERE id = 'left'")).toEqual([{ seats: 1 }]);
  });

  it("is rolled back as a whole after a lock that it did not get in time", async () => {
    const pool = files.pool();
    pool.pool.on("connection", (connection) => connection.query("SET innodb_lock_wait_timeout = 1"));
    await files.query("INSERT INTO rides VALUES ('wanted', 1)");
    const other = await files.pool().getConnection();
    await other.beginTransaction();
    await other.query("SELECT * FROM rides WHERE id = 'wanted' FOR UPDATE");
    const failed = inPhase(async (tx) => {
      await insert(tx, "before the wait");
      await tx.query("UPDATE rides SET seats = 2 WHERE id = 'wanted'");
    }, mysqlStore(pool));
    await expect(failed).rejects.toMatchObject({ errno: 1205 });
    await other.rollback();
    other.release();
    expect(await rides()).not.toContain("before the wait");
    await nothingLeftOpen(files);
  });

  it("is committed although a heartbeat came between, also where MariaDB fails what reads and locks", async () => {
    const pool = files.pool();
    pool.pool.on("connection", (connection) => connection.query("SET innodb_snapshot_isolation = ON"));
    const strict = mysqlStore(pool);
    const lease = await leaseOf(strict, request());
    const answer = await strict.transact?.(
      lease,
      async (tx) => {
        await tx.query("SELECT * FROM rides");
        expect(await strict.renew([lease], 61_000)).toEqual(["held"]);
        await insert(tx, "between heartbeats");
        const [[row]] = await tx.query<RowDataPacket[]>("SELECT @@innodb_snapshot_isolation AS setting");
        expect(row?.setting, "for the phase itself it stays").toBe(1);
      },
      () => phase(),
    );
    expect(answer).toMatchObject({ kind: "committed" });
    expect(await rides()).toContain("between heartbeats");
  });

  it("fifty at once on the same rows: each is committed as a whole or not at all, and none is lost", async () => {
    const names = Array.from({ length: 8 }, (_, index) => `storm ${index}`);
    for (const name of names) await files.query("INSERT INTO rides VALUES (?, 0)", [name]);
    const stormy = mysqlStore(files.pool({ connectionLimit: 20 }));
    let deadlocks = 0;
    const one = async (nth: number) => {
      const lease = await leaseOf(stormy, request());
      // Every other one the other way round, so that they meet in the middle.
      const order = nth % 2 === 0 ? names : names.toReversed();
      for (;;) {
        try {
          const answer = await stormy.transact?.(
            lease,
            async (tx) => {
              for (const name of order)
                await tx.query("UPDATE rides SET seats = seats + 1 WHERE id = ?", [name]);
            },
            () => phase(),
          );
          return answer?.kind;
        } catch (error) {
          expect((error as { errno?: number }).errno).toBe(1213);
          deadlocks += 1;
        }
      }
    };
    const kinds = await Promise.all(Array.from({ length: 50 }, (_, nth) => one(nth)));
    expect(new Set(kinds)).toEqual(new Set(["committed"]));
    expect(deadlocks, "they have met").toBeGreaterThan(0);
    const seats = await files.query<{ seats: number }>("SELECT seats FROM rides WHERE id LIKE 'storm %'");
    expect(seats.map((row) => row.seats)).toEqual(names.map(() => 50));
  });
});

describe("a phase whose connection goes away", () => {
  it("is the store's failure before the COMMIT, and nothing is left of it", async () => {
    const lease = await leaseOf(store, request());
    const failed = store.transact?.(
      lease,
      async (tx) => {
        await insert(tx, "cut off");
        await files.query(`KILL CONNECTION ${tx.threadId}`);
      },
      () => phase(),
    );
    await expect(failed).rejects.toThrow(StoreError);
    expect(await rides()).not.toContain("cut off");
    expect(await progressOf(lease)).toBe(0);
    expect((await inPhase((tx) => insert(tx, "the next one"))).answer).toMatchObject({ kind: "committed" });
  });

  it("rejects when nobody knows whether the COMMIT has happened, and is not run again", async () => {
    const lost = stagedPool(files.pool(), async (sql, send) => {
      const answer = await send();
      if (sql === "COMMIT")
        throw Object.assign(new Error("lost"), { code: "PROTOCOL_CONNECTION_LOST", fatal: true });
      return answer;
    });
    const lease = await leaseOf(store, request());
    let runs = 0;
    const failed = mysqlStore(lost).transact?.(
      lease,
      async (tx: PoolConnection) => {
        runs += 1;
        await insert(tx, "perhaps");
      },
      () => phase(),
    );
    await expect(failed).rejects.toThrow(StoreError);
    expect(runs).toBe(1);
    expect(await rides()).toContain("perhaps");
    expect(await progressOf(lease)).toBe(1);
  });
});
