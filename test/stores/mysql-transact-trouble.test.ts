import type { PoolConnection, RowDataPacket } from "mysql2/promise";
import { describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import { mysqlStore } from "../../src/stores/mysql/store.ts";
import { insertRide, phase, usePhases } from "./mysql-phases.ts";
import { leaseOf, nothingLeftOpen, request, stagedPool } from "./mysql-support.ts";

const phases = usePhases();
const { files, inPhase, rides, progressOf } = phases;

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
      await insertRide(tx, "after the deadlock").catch(() => "never mind");
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
      await insertRide(tx, "before the wait");
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
        await insertRide(tx, "between heartbeats");
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
    const lease = await leaseOf(phases.store, request());
    const failed = phases.store.transact?.(
      lease,
      async (tx) => {
        await insertRide(tx, "cut off");
        await files.query(`KILL CONNECTION ${tx.threadId}`);
      },
      () => phase(),
    );
    await expect(failed).rejects.toThrow(StoreError);
    expect(await rides()).not.toContain("cut off");
    expect(await progressOf(lease)).toBe(0);
    expect((await inPhase((tx) => insertRide(tx, "the next one"))).answer).toMatchObject({
      kind: "committed",
    });
  });

  it("rejects when nobody knows whether the COMMIT has happened, and is not run again", async () => {
    const lost = stagedPool(files.pool(), async (sql, send) => {
      const answer = await send();
      if (sql === "COMMIT")
        throw Object.assign(new Error("lost"), { code: "PROTOCOL_CONNECTION_LOST", fatal: true });
      return answer;
    });
    const lease = await leaseOf(phases.store, request());
    let runs = 0;
    const failed = mysqlStore(lost).transact?.(
      lease,
      async (tx: PoolConnection) => {
        runs += 1;
        await insertRide(tx, "perhaps");
      },
      () => phase(),
    );
    await expect(failed).rejects.toThrow(StoreError);
    expect(runs).toBe(1);
    expect(await rides()).toContain("perhaps");
    expect(await progressOf(lease)).toBe(1);
  });
});
