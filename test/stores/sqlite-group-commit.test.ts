import { randomUUID } from "node:crypto";
import { statSync } from "node:fs";
import Database from "libsql";
import { afterEach, describe, expect, it } from "vitest";
import { createLatchkey } from "../../src/latchkey.ts";
import { type SqliteDatabase, type SqliteStoreOptions, sqliteStore } from "../../src/stores/sqlite/store.ts";
import { complete, lease, pragma, request, useFolder } from "./sqlite-support.ts";

const place = useFolder();
const callers = 64;
const opened: Database.Database[] = [];

afterEach(() => {
  for (const database of opened.splice(0)) database.close();
});

describe("what arrives in one turn of the event loop", () => {
  it("is one durable transaction: 64 reservations wait for the disk once, and so do their outcomes", async () => {
    const { store, count } = open();
    const leases = await all(() => lease(store, request()));
    expect(count.take()).toMatchObject({ begins: 1, commits: 1 });
    await Promise.all(leases.map((held) => store.settle(held, complete())));
    expect(count.take()).toMatchObject({ begins: 1, commits: 1 });
  });

  it("is one transaction to reserve and one to settle, seen from an application", async () => {
    const { store, count } = open();
    const latchkey = createLatchkey({ store, tenant: "single" });
    await all(() => latchkey.run({ tenant: "acme", key: randomUUID() }, () => "done"));
    expect(count.take()).toMatchObject({ begins: 2, commits: 2 });
    await latchkey.close();
  });

  it("is written with one statement, and nothing is looked for first", async () => {
    const { store, count } = open();
    const leases = await all(() => lease(store, request()));
    // Only the first one does not know yet that there will be a transaction.
    expect(count.take()).toMatchObject({ reads: 1, writes: 1 });
    await Promise.all(leases.map((held) => store.settle(held, complete())));
    expect(count.take()).toMatchObject({ reads: 0, writes: 1 });
  });

  it("needs no transaction where it is all known", async () => {
    const { store, count } = open();
    const asked = request();
    await store.settle(await lease(store, asked), complete());
    count.take();
    const answers = await all(() => store.reserve(asked));
    expect(new Set(answers.map(({ kind }) => kind))).toEqual(new Set(["replay"]));
    expect(count.take()).toEqual({ begins: 0, commits: 0, reads: callers, writes: 0 });
  });

  it("executes once, however many duplicates are in it", async () => {
    const { store } = open();
    const asked = request();
    const answers = await all((index) => store.reserve({ ...asked, owner: `owner-${index}` }));
    const kinds = answers.map(({ kind }) => kind).sort();
    expect(kinds).toEqual(["execute", ...Array.from({ length: callers - 1 }, () => "inFlight")]);
  });

  it("is answered as far as it can be while another process has the lock", async () => {
    const { store, database } = open();
    const completed = request();
    await store.settle(await lease(store, completed), complete());
    database.exec("PRAGMA busy_timeout = 50"); // The real one would only make this test slow.
    const other = new Database(place.path);
    opened.push(other);
    other.exec("BEGIN IMMEDIATE");
    const [fresh, retry, misuse] = await Promise.allSettled([
      store.reserve(request()),
      store.reserve(completed),
      store.reserve({ ...completed, fingerprint: "v1:other" }),
    ]);
    expect(fresh).toMatchObject({ status: "rejected", reason: { message: "database is locked" } });
    expect(retry).toMatchObject({ status: "fulfilled", value: { kind: "replay" } });
    expect(misuse).toMatchObject({ status: "fulfilled", value: { kind: "mismatch" } });
  });
});

describe("a lone write", () => {
  it("is one statement and no transaction around it, where the connection can tell that none is open", async () => {
    const { store, database, count } = open({}, (connection) => ({
      get inTransaction() {
        return connection.inTransaction;
      },
    }));
    const asked = request();
    const held = await lease(store, asked);
    expect(count.take()).toMatchObject({ begins: 0, commits: 0, writes: 1 });
    await store.settle(held, complete());
    expect(count.take()).toMatchObject({ begins: 0, commits: 0, writes: 1 });
    expect((await store.reserve(asked)).kind).toBe("replay");

    const other = await lease(store, request());
    database.exec("BEGIN");
    await expect(store.settle(other, complete())).rejects.toThrow(/within a transaction/);
    database.exec("ROLLBACK");
    expect((await store.read(other)).record?.state).toBe("in_progress");
  });

  it("has a transaction where the connection does not tell", async () => {
    const { store, count } = open();
    const held = await lease(store, request());
    expect(count.take()).toMatchObject({ begins: 1, commits: 1, writes: 1 });
    await store.settle(held, complete());
    expect(count.take()).toMatchObject({ begins: 1, commits: 1, writes: 1 });
  });

  it("is refused, or answered as far as it can be, while another process has the lock", async () => {
    const { store, database } = open({}, () => ({ inTransaction: false }));
    const held = await lease(store, request());
    database.exec("PRAGMA busy_timeout = 50");
    const other = new Database(place.path);
    opened.push(other);
    other.exec("BEGIN IMMEDIATE");
    const busy = { message: "database is locked" };
    await expect(store.settle(held, complete())).rejects.toMatchObject(busy);
    await expect(store.reserve(request())).rejects.toMatchObject(busy);
    other.exec("COMMIT");
    expect((await store.settle(held, complete())).kind).toBe("settled");
  });
});

describe("with groupCommit: false", () => {
  it("every write is a transaction of its own", async () => {
    const { store, count } = open({ groupCommit: false });
    const leases = await all(() => lease(store, request()));
    expect(count.take()).toMatchObject({ begins: callers, commits: callers });
    await Promise.all(leases.map((held) => store.settle(held, complete())));
    expect(count.take()).toMatchObject({ begins: callers, commits: callers });
  });

  it("duplicates execute once all the same", async () => {
    const { store } = open({ groupCommit: false });
    const asked = request();
    const answers = await all((index) => store.reserve({ ...asked, owner: `owner-${index}` }));
    expect(answers.filter(({ kind }) => kind === "execute")).toHaveLength(1);
  });
});

describe("the write-ahead log", () => {
  it("is brought into the file after 64 MiB, whatever the size of its pages, and is cut off after a long reader", () => {
    for (const pageBytes of [4_096, 16_384]) {
      const database = new Database(`${place.path}-${pageBytes}`);
      opened.push(database);
      database.exec(`PRAGMA page_size = ${pageBytes}`);
      sqliteStore(database);
      expect(pragma(database, "page_size")).toBe(pageBytes);
      expect(Number(pragma(database, "wal_autocheckpoint")) * pageBytes).toBe(64 * mebibyte);
      expect(pragma(database, "journal_size_limit")).toBe(96 * mebibyte);
    }
  });

  it("does not grow with what is written", async () => {
    const { store } = open({ synchronous: "normal" });
    const body = new Uint8Array(4 * mebibyte);
    for (let written = 0; written < 160 * mebibyte; written += body.byteLength) {
      await store.settle(await lease(store, request()), complete(body));
      expect(statSync(`${place.path}-wal`).size).toBeLessThan(72 * mebibyte);
    }
  });
});

describe("the cache", () => {
  it("has 16 MiB, or more where the application has chosen more", () => {
    for (const [chosen, expected] of [
      [-2_000, -16_384],
      [1_000, -16_384],
      [-65_536, -65_536],
      [100_000, 100_000],
    ]) {
      const database = new Database(place.path);
      opened.push(database);
      database.exec(`PRAGMA cache_size = ${chosen}`);
      sqliteStore(database);
      expect(pragma(database, "cache_size")).toBe(expected);
    }
  });
});

const mebibyte = 1024 * 1024;

function all<T>(call: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: callers }, (_, index) => call(index)));
}

/** A store on a connection that counts what it is asked for. */
function open(options: SqliteStoreOptions = {}, tells: (database: Database.Database) => object = () => ({})) {
  const database = new Database(place.path);
  opened.push(database);
  const counts = { begins: 0, commits: 0, reads: 0, writes: 0 };
  const counting: SqliteDatabase = {
    exec(sql) {
      if (sql.startsWith("BEGIN")) counts.begins += 1;
      if (sql.startsWith("COMMIT")) counts.commits += 1;
      return database.exec(sql);
    },
    prepare(sql) {
      const statement = database.prepare(sql);
      return {
        run(...parameters) {
          counts.writes += 1;
          return statement.run(...parameters);
        },
        get(...parameters) {
          counts.reads += 1;
          return statement.get(...parameters);
        },
        all: (...parameters) => statement.all(...parameters),
      };
    },
    close: () => database.close(),
  };
  Object.defineProperties(counting, Object.getOwnPropertyDescriptors(tells(database)));
  const store = sqliteStore(counting, options);
  const take = () => {
    const taken = { ...counts };
    for (const name of Object.keys(counts) as (keyof typeof counts)[]) counts[name] = 0;
    return taken;
  };
  take();
  return { store, database, count: { take } };
}
