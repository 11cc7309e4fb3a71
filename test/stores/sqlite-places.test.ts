import Database from "libsql";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Lease, Store } from "../../src/core/store.ts";
import { completePlacedLeases } from "../../src/stores/sqlite/statements.ts";
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

it("a row is looked for by its number, however many there are, and whatever SQLite knows of the table", async () => {
  const check = () => {
    // Of its own: the driver takes a plan for a statement that is under way.
    const other = new Database(place.path);
    for (const rows of [2, 8, 16, 64, 200, 1_000]) {
      const plan = planOf(other, completePlacedLeases(rows));
      expect(plan).toContain("SEARCH latchkey_records USING INTEGER PRIMARY KEY (rowid=?)");
      expect(plan).not.toMatch(/SCAN latchkey_records|AUTOMATIC/);
    }
    other.close();
  };
  check();
  await leases(100);
  database.exec("ANALYZE");
  check();
  await leases(1_000);
  database.exec("ANALYZE");
  check();
});

describe("where SQLite takes the table for a tiny one, which it would rather go through than look for rows", () => {
  const isTogether = (sql: string) => sql.includes("AS done");

  beforeEach(async () => {
    await leases(1);
    database.exec("ANALYZE");
  });

  it("completions go one by one, and together again after the next ANALYZE", async () => {
    const inOneStatement = async () => {
      store = sqliteStore(listening(database, (sql) => written.push(sql)));
      const held = await leases();
      written = [];
      expect(await settleAll(held)).toEqual(held.map(() => "settled"));
      return written.some(isTogether);
    };
    expect(await inOneStatement()).toBe(false);
    await leases();
    database.exec("ANALYZE");
    expect(await inOneStatement()).toBe(true);
  });

  it("that is noticed as soon as many together take long", async () => {
    const slow = (sql: string) => {
      written.push(sql);
      for (const until = performance.now() + 20; isTogether(sql) && performance.now() < until; );
    };
    // It was no tiny table when it was opened.
    database.exec("DELETE FROM sqlite_stat1");
    store = sqliteStore(listening(database, slow));
    database.exec("ANALYZE");
    const held = [await leases(), await leases()];
    written = [];
    expect(await settleAll(held[0] ?? [])).toHaveLength(count);
    expect(written.filter(isTogether)).toHaveLength(1);
    expect(await settleAll(held[1] ?? [])).toEqual(Array(count).fill("settled"));
    expect(written.filter(isTogether)).toHaveLength(1);
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
