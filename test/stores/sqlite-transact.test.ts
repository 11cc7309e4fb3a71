import { setTimeout as sleep } from "node:timers/promises";
import Database from "libsql";
import { afterEach, beforeEach, describe, expect, expectTypeOf, it, vi } from "vitest";
import { PhaseError, StoreError } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/store.ts";
import { type SqliteDatabase, sqliteStore } from "../../src/stores/sqlite/store.ts";
import {
  complete,
  createRides,
  insertRide,
  lease,
  message,
  outboxOf,
  pragma,
  request,
  rides,
  transact,
  useFolder,
} from "./sqlite-support.ts";

const place = useFolder();
let database: Database.Database;
let store: Store<Database.Database>;

beforeEach(() => {
  database = new Database(place.path);
  store = sqliteStore(database);
  createRides(database);
});

afterEach(async () => {
  vi.restoreAllMocks();
  await store.close();
  database.close();
});

describe("an atomic phase", () => {
  it("gets the user's own connection, with its own type", async () => {
    expectTypeOf(sqliteStore<Database.Database>).returns.toEqualTypeOf<Store<Database.Database>>();
    expectTypeOf(() => sqliteStore("./records.db")).returns.toEqualTypeOf<Store<SqliteDatabase>>();
    const held = await lease(store, request());
    await store.transact?.(
      held,
      (tx) => {
        expectTypeOf(tx).toEqualTypeOf<Database.Database>();
        expect(tx).toBeInstanceOf(Database);
        expect(tx.inTransaction).toBe(true);
        insertRide(tx, "ride");
        expect(rides(database)).toEqual(["ride"]);
      },
      () => ({ progress: [], onCrash: "retry", messages: [] }),
    );
    expect(rides(database)).toEqual(["ride"]);
  });

  it("gets the store's connection where the store opened the file itself", async () => {
    const own = sqliteStore(place.path);
    const held = await lease(own, request());
    const answer = await transact(own, held, (tx) => insertRide(tx, "ride"));
    expect(answer.kind).toBe("committed");
    expect(rides(database)).toEqual(["ride"]);
    await own.close();
  });

  it("may await its own promises, however many", async () => {
    const held = await lease(store, request());
    const answer = await transact(store, held, async (tx) => {
      for (let nth = 0; nth < 100; nth += 1) await Promise.resolve();
      insertRide(tx, "ride");
      return "done";
    });
    expect(answer).toMatchObject({ kind: "committed", result: "done" });
    expect(rides(database)).toEqual(["ride"]);
  });

  it.each([
    ["a timer", () => sleep(1)],
    ["the next turn of the event loop", () => new Promise(setImmediate)],
    ["something that never comes", () => new Promise(() => {})],
    ["another call of the store", (held: Parameters<Store["renew"]>[0]) => store.renew(held, 60_000)],
    ["a phase of its own", (held: Parameters<Store["renew"]>[0]) => transact(store, firstOf(held))],
  ])("that waits for %s is rolled back, and is told so", async (_, wait) => {
    const held = await lease(store, request());
    const phase = transact(store, held, async (tx) => {
      insertRide(tx, "ride");
      await wait([held]);
    });
    await expect(phase).rejects.toThrow(PhaseError);
    await expect(phase).rejects.toThrow(/must not wait for anything but its own statements/);
    expect(rides(database)).toEqual([]);
    expect((await transact(store, held, (tx) => insertRide(tx, "later"))).kind).toBe("committed");
    expect(rides(database)).toEqual(["later"]);
  });

  it("cannot write any more when it is over", async () => {
    const held = await lease(store, request());
    const late = new Promise<unknown>((resolve) => {
      const phase = transact(store, held, async (tx) => {
        await sleep(1);
        try {
          insertRide(tx, "late");
        } catch (error) {
          resolve(error);
        }
      });
      phase.catch(() => {});
    });
    expect(await late).toBeInstanceOf(PhaseError);
    expect(rides(database)).toEqual([]);

    let escaped: SqliteDatabase | undefined;
    await transact(store, held, (tx) => {
      escaped = tx;
    });
    expect(() => escaped?.exec("INSERT INTO rides VALUES ('late')")).toThrow(/after it was over/);
  });

  it.each(["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"])(
    "that says %s itself is told not to, and writes no progress",
    async (sql) => {
      const held = await lease(store, request());
      const phase = transact(
        store,
        held,
        (tx) => {
          insertRide(tx, "ride");
          tx.exec(sql);
        },
        { messages: [message()], response: complete() },
      );
      await expect(phase).rejects.toThrow(PhaseError);
      await expect(phase).rejects.toThrow(/leave out BEGIN, COMMIT and ROLLBACK/);
      expect((await store.read(held)).record?.state).toBe("in_progress");
      expect((await outboxOf(store).counts()).waiting).toBe(0);
      expect(database.inTransaction).toBe(false);
      expect((await store.settle(held, complete())).kind).toBe("settled");
    },
  );

  it("holds back every other write of the process, and lets them through afterwards", async () => {
    const held = await lease(store, request());
    const other = await lease(store, request());
    const exec = vi.spyOn(database, "exec");
    const before = store.settle(other, complete());
    let during: Promise<unknown> | undefined;
    await transact(store, held, async (tx) => {
      during = Promise.all([store.reserve(request()), store.renew([held], 60_000)]);
      await Promise.resolve();
      insertRide(tx, "ride");
    });
    // What came before was written before this; being alone, it needed no transaction around its statement.
    expect(exec.mock.calls.flat().map((sql) => sql.split(/[; ]/)[0])).toEqual(["BEGIN", "RELEASE", "COMMIT"]);
    expect((await before).kind).toBe("settled");
    expect(await during).toMatchObject([{ kind: "execute" }, ["held"]]);
    expect(exec.mock.calls.length).toBe(5);
  });

  it("shows nobody what it has not committed", async () => {
    const asked = request();
    const held = await lease(store, asked);
    const seen: unknown[] = [];
    await transact(
      store,
      held,
      async () => {
        seen.push((await store.read(held)).record?.state, (await store.reserve(asked)).kind);
        seen.push((await outboxOf(store).counts()).waiting);
      },
      { messages: [message()], response: complete() },
    );
    expect(seen).toEqual(["in_progress", "inFlight", 0]);
    expect((await store.reserve(asked)).kind).toBe("replay");
  });

  it("lets heartbeats through between many phases that wait for their turn", async () => {
    const leases = await Promise.all(Array.from({ length: 10 }, () => lease(store, request())));
    const order: string[] = [];
    const phases = leases.map(async (held, nth) => {
      await transact(store, held, (tx) => insertRide(tx, `${nth}`));
      order.push("phase");
    });
    const heartbeat = store.renew(leases, 60_000).then(() => order.push("heartbeat"));
    await Promise.all([...phases, heartbeat]);
    expect(order.indexOf("heartbeat")).toBeLessThan(3);
    expect(rides(database)).toHaveLength(10);
  });

  it("is written down before the store closes, and none begins after it", async () => {
    const own = sqliteStore(place.path);
    const held = await lease(own, request());
    const phase = transact(own, held, (tx) => insertRide(tx, "before"));
    const closing = own.close();
    const late = transact(own, held, (tx) => insertRide(tx, "after"));
    await expect(late).rejects.toThrow(/closed/);
    expect((await phase).kind).toBe("committed");
    await closing;
    expect(rides(database)).toEqual(["before"]);
  });
});

describe("what SQLite cannot do in a phase", () => {
  it("is a StoreError when another process has the lock, and the work does not run", async () => {
    const held = await lease(store, request());
    database.exec("PRAGMA busy_timeout = 50"); // The real one would only make this test slow.
    const other = new Database(place.path);
    other.exec("BEGIN IMMEDIATE");
    const work = vi.fn();
    const phase = transact(store, held, work);
    await expect(phase).rejects.toThrow(StoreError);
    await expect(phase).rejects.toThrow("database is locked");
    expect(work).not.toHaveBeenCalled();
    other.exec("ROLLBACK");
    other.close();
    expect((await transact(store, held)).kind).toBe("committed");
  });

  it("is a StoreError when the disk is full at its end, and nothing of it is left", async () => {
    const held = await lease(store, request());
    database.exec(`PRAGMA max_page_count = ${pragma(database, "page_count")}`);
    const large = complete(new Uint8Array(1024 * 1024));
    const phase = transact(store, held, (tx) => insertRide(tx, "ride"), { response: large });
    await expect(phase).rejects.toThrow(StoreError);
    await expect(phase).rejects.toThrow(/full/);
    expect(rides(database)).toEqual([]);
    expect((await store.read(held)).record?.state).toBe("in_progress");
    database.exec("PRAGMA max_page_count = 1000000");
    expect((await transact(store, held, (tx) => insertRide(tx, "ride"), { response: large })).kind).toBe(
      "committed",
    );
  });

  it("is the handler's own error where its own statement failed", async () => {
    const held = await lease(store, request());
    insertRide(database, "ride");
    const phase = transact(store, held, (tx) => insertRide(tx, "ride"));
    await expect(phase).rejects.toThrow("UNIQUE constraint failed: rides.id");
    await expect(phase).rejects.not.toBeInstanceOf(StoreError);
  });

  it("leaves a transaction alone that the application has open", async () => {
    const held = await lease(store, request());
    database.exec("BEGIN");
    insertRide(database, "own");
    await expect(transact(store, held)).rejects.toThrow(StoreError);
    database.exec("COMMIT");
    expect(rides(database)).toEqual(["own"]);
  });
});

function firstOf<T>([first]: readonly T[]): T {
  return first ?? expect.fail("there is none");
}
