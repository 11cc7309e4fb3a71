import Database from "libsql";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Lease, Store } from "../../src/core/store.ts";
import {
  completeLeases,
  completePlacedLeases,
  deleteExpired,
  deleteSettled,
  markExpired,
} from "../../src/stores/sqlite/statements.ts";
import { type SqliteDatabase, type SqliteStatement, sqliteStore } from "../../src/stores/sqlite/store.ts";
import { again } from "../support/reserve-request.ts";
import { complete, lease, planOf, request, useFolder } from "./sqlite-support.ts";

/* Records are completed in the rows in which they were reserved, and looked for by their names where they are not there. */

const place = useFolder();

let database: Database.Database;
let store: Store<SqliteDatabase>;
/** What was written, by the texts of the statements. */
let written: string[] = [];

beforeEach(() => {
  database = new Database(place.path);
  store = sqliteStore(listening(database, (sql) => written.push(sql)));
});

afterEach(() => {
  database.close();
});

const count = 64;

describe("leases that were reserved together", () => {
  it("are completed in their rows, with one statement, each with its own answer", async () => {
    const held = await leases();
    written = [];
    const bodyOf = (index: number) => Buffer.from(`answer ${index}`);
    const answers = await settleAll(held, bodyOf);
    expect(answers).toEqual(held.map(() => "settled"));
    expect(written).toEqual([completePlacedLeases(count)]);
    for (const [index, each] of held.entries()) {
      const { record } = await store.read(each);
      if (record?.state !== "completed" || record.response.kind !== "full") expect.fail(record?.state);
      expect(Buffer.from(record.response.body)).toEqual(bodyOf(index));
    }
  });

  it("are completed in their rows also where some of those who came with them were there already", async () => {
    const known = request();
    await lease(store, known);
    const asked = Array.from({ length: count }, () => request());
    asked[9] = again(known);
    // With another one in front there will be a transaction, so that nothing is looked for before it.
    const all = [request({ route: "other" }), ...asked];
    const answers = await Promise.all(all.map((each) => store.reserve(each)));
    const held = answers.flatMap((answer) => (answer.kind === "execute" ? [answer.lease] : []));
    expect(held).toHaveLength(count);
    written = [];
    expect(await settleAll(held)).toEqual(held.map(() => "settled"));
    expect(written).toEqual([completePlacedLeases(count)]);
  });

  it("are completed beside one that was reserved alone", async () => {
    const held = [await lease(store, request()), ...(await leases())];
    expect(await settleAll(held)).toEqual(held.map(() => "settled"));
  });

  it("are completed whatever their order, and as copies", async () => {
    const held = await leases();
    const copies = held.map((each, index) => (index % 2 === 0 ? each : { ...each }));
    expect(await settleAll(copies.reverse())).toEqual(held.map(() => "settled"));
  });

  it("are completed where their records are now, if those have moved", async () => {
    const held = await leases();
    database.exec("UPDATE latchkey_records SET rowid = rowid + 1000 WHERE rowid % 3 = 0");
    expect(await settleAll(held)).toEqual(held.map(() => "settled"));
    for (const each of held) expect((await store.read(each)).record?.state).toBe("completed");
  });

  it("change nothing in the records that have their rows now", async () => {
    const owner = "one owner of all";
    const held = await leases(count, owner);
    database.exec("DELETE FROM latchkey_records");
    const others = await leases(count, owner);
    expect(await settleAll(held)).toEqual(held.map(() => "lost"));
    for (const each of others) expect((await store.read(each)).record?.state).toBe("in_progress");
    expect(await settleAll(others)).toEqual(others.map(() => "settled"));
  });

  it("keep their first answers when they are settled once more", async () => {
    const held = await leases();
    await settleAll(held, () => Buffer.from("first"));
    await settleAll(held, () => Buffer.from("second"));
    for (const each of held) {
      const { record } = await store.read(each);
      if (record?.state !== "completed" || record.response.kind !== "full") expect.fail(record?.state);
      expect(Buffer.from(record.response.body).toString()).toBe("first");
    }
  });

  it("are told apart by owner and fence in the row itself", async () => {
    const held = await leases();
    database.exec("UPDATE latchkey_records SET owner = 'another' WHERE rowid = 3");
    database.exec("UPDATE latchkey_records SET fence = 2 WHERE rowid = 5");
    const answers = await settleAll(held);
    expect(answers.flatMap((kind, index) => (kind === "lost" ? [index + 1] : []))).toEqual([3, 5]);
    expect(answers.filter((kind) => kind === "settled")).toHaveLength(count - 2);
    const left = database.prepare("SELECT rowid AS row FROM latchkey_records WHERE state = 'in_progress'");
    expect(left.all()).toEqual([{ row: 3 }, { row: 5 }]);
  });
});

describe("whatever SQLite knows of the table", () => {
  const statements = [
    ...[2, 8, 16, 64, 200, 1_000].flatMap((rows) => [completePlacedLeases(rows), completeLeases(rows)]),
    markExpired,
    deleteSettled,
    deleteExpired,
  ];

  it("rows are looked for, however many there are", async () => {
    const check = () => {
      // Of its own: the driver takes a plan for a statement that is under way.
      const other = new Database(place.path);
      sqliteStore(other);
      for (const sql of statements) {
        const plan = planOf(other, sql);
        expect(plan).toContain("SEARCH latchkey_records USING INTEGER PRIMARY KEY (rowid=?)");
        expect(plan).not.toMatch(/SCAN latchkey_records|AUTOMATIC/);
      }
      other.close();
    };
    check();
    for (const more of [1, 9, 20, 40, 400, 2_000]) {
      await leases(more);
      database.exec("ANALYZE");
      check();
    }
  });

  const knownTables = () =>
    database
      .prepare("SELECT DISTINCT tbl AS name FROM sqlite_stat1 ORDER BY tbl")
      .all()
      .map((row) => (row as { name: string }).name);

  it("it forgets what ANALYZE said of our tables while they were small, and nothing else", async () => {
    database.exec("CREATE TABLE rides (id TEXT PRIMARY KEY); INSERT INTO rides VALUES ('one')");
    await leases(1);
    database.exec("ANALYZE");
    expect(knownTables()).toContain("latchkey_records");
    sqliteStore(database);
    expect(knownTables()).toEqual(["rides"]);
    await leases(1_000);
    database.exec("ANALYZE");
    sqliteStore(database);
    expect(knownTables()).toEqual(["latchkey_records", "rides"]);
  });

  /** Takes its time for many completions in one statement. */
  const slow = (sql: string) => {
    for (const until = performance.now() + 20; sql.includes("AS done") && performance.now() < until; );
  };

  it("it forgets as soon as many completions together take long", async () => {
    store = sqliteStore(listening(database, slow));
    await leases(1);
    database.exec("ANALYZE");
    expect(knownTables()).toContain("latchkey_records");
    await settleAll(await leases());
    expect(knownTables()).toEqual([]);
  });

  it("a connection is told the new numbers where it believes in old ones", async () => {
    const said: string[] = [];
    const connection = listening(database, slow);
    const exec = (sql: string) => {
      said.push(sql);
      return connection.exec(sql);
    };
    store = sqliteStore({ ...connection, exec });
    await leases(1_000);
    database.exec("ANALYZE");
    await settleAll(await leases());
    expect(said).toContain("ANALYZE main.sqlite_master");
    expect(knownTables()).toEqual(["latchkey_records"]);
  });

  it("nobody is held up where it cannot be forgotten", async () => {
    await leases(1);
    database.exec("ANALYZE");
    const refusing: SqliteDatabase = {
      exec: (sql) => database.exec(sql),
      close: () => database.close(),
      prepare(sql) {
        if (sql.includes("sqlite_stat1")) throw new Error("not authorized");
        return database.prepare(sql) as unknown as SqliteStatement;
      },
    };
    store = sqliteStore(refusing);
    expect(await settleAll(await leases())).toHaveLength(count);
  });
});

function leases(most = count, owner?: string): Promise<Lease[]> {
  const asked = Array.from({ length: most }, () => (owner === undefined ? request() : request({ owner })));
  return Promise.all(asked.map((each) => lease(store, each)));
}

async function settleAll(held: readonly Lease[], bodyOf = (_: number) => Buffer.from("done")) {
  const answers = await Promise.all(held.map((each, index) => store.settle(each, complete(bodyOf(index)))));
  return answers.map(({ kind }) => kind);
}

/** The same connection; tells what is written through it. */
function listening(connection: Database.Database, tell: (sql: string) => void): SqliteDatabase {
  return {
    exec: (sql) => connection.exec(sql),
    close: () => connection.close(),
    prepare(sql) {
      const statement = connection.prepare(sql) as unknown as SqliteStatement;
      return {
        get: (...parameters) => statement.get(...parameters),
        all: (...parameters) => statement.all(...parameters),
        run(...parameters) {
          tell(sql);
          return statement.run(...parameters);
        },
      };
    },
  };
}
