import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import Database from "libsql";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import { loadMigrations } from "../../src/stores/migrations.ts";
import { Statement } from "../../src/stores/sqlite/driver.ts";
import { type SqliteDatabase, type SqliteValue, sqliteStore } from "../../src/stores/sqlite/store.ts";
import {
  claimAll,
  complete,
  everyByte,
  kept,
  lease,
  pragma,
  release,
  request,
  suspend,
  useFolder,
} from "./sqlite-support.ts";

const place = useFolder();
const migrations = loadMigrations(new URL("../../src/stores/sqlite/migrations/", import.meta.url));

afterEach(() => {
  vi.restoreAllMocks();
});

describe("opening a database", () => {
  it("makes the folder when it is missing", async () => {
    const store = sqliteStore(join(place.folder, "not", "yet", "records.db"));
    await lease(store, request());
    await store.close();
  });

  it("keeps every record through close and reopen, byte for byte", async () => {
    const first = sqliteStore(place.path);
    const completed = request();
    const released = request();
    const suspended = request();
    const running = request({ onCrash: "resume", request: kept });
    const pending = request({ mode: "accept", request: kept, route: "rides", onCrash: "resume" });
    await first.settle(await lease(first, completed), complete(everyByte));
    await first.settle(await lease(first, released), release);
    await first.settle(await lease(first, suspended), suspend);
    const held = await lease(first, running);
    await first.advance(held, { progress: [{ kind: "atomic", name: "a", result: "1" }], onCrash: "retry" });
    expect((await first.reserve(pending)).kind).toBe("pending");
    const ids = [completed, released, suspended, running, pending];
    const before = await Promise.all(ids.map((id) => first.read(id)));
    await first.close();

    const second = sqliteStore(place.path);
    const after = await Promise.all(ids.map((id) => second.read(id)));
    expect(after.map(({ record }) => record)).toEqual(before.map(({ record }) => record));
    expect(await second.renew([held], 60_000)).toEqual(["held"]);
    expect((await second.settle(held, complete())).kind).toBe("settled");
    expect((await second.claimResumable(claimAll)).claimed).toMatchObject([{ request: kept }]);
    expect(await second.audit({ limit: 10 })).toHaveLength(2);
    await second.close();
  });

  it("leaves everything in the file itself when it is closed", async () => {
    const store = sqliteStore(place.path);
    const asked = request();
    await store.settle(await lease(store, asked), complete());
    await store.close();
    copyFileSync(place.path, join(place.folder, "copy.db"));
    const copy = sqliteStore(join(place.folder, "copy.db"));
    expect((await copy.reserve(asked)).kind).toBe("replay");
    await copy.close();
  });

  it("writes ahead and waits for the disk at every commit", async () => {
    const database = new Database(place.path);
    database.exec("PRAGMA synchronous = OFF");
    sqliteStore(database);
    expect(pragma(database, "journal_mode")).toBe("wal");
    expect(pragma(database, "synchronous")).toBe(2);
    expect(pragma(database, "fullfsync")).toBe(1);
    expect(pragma(database, "busy_timeout")).toBe(2_000);
    database.close();

    // The same settings are made for a file that the store opens itself; what the file remembers of them shows it.
    await sqliteStore(join(place.folder, "own.db")).close();
    const own = new Database(join(place.folder, "own.db"));
    expect(pragma(own, "journal_mode")).toBe("wal");
    own.close();
  });

  it("does not wait for the disk at every commit when told so", () => {
    const database = new Database(place.path);
    sqliteStore(database, { synchronous: "normal" });
    expect(pragma(database, "journal_mode")).toBe("wal");
    expect(pragma(database, "synchronous")).toBe(1);
    database.close();
  });

  it("refuses a database in memory, which would forget everything", () => {
    expect(() => sqliteStore(":memory:")).toThrow(ConfigError);
    expect(() => sqliteStore(":memory:")).toThrow(/memoryStore\(\)/);
    expect(() => sqliteStore(new Database(":memory:"))).toThrow(/memoryStore\(\)/);
  });

  it.each([
    ["libsql and better-sqlite3", { code: "SQLITE_BUSY_RECOVERY" }],
    ["node:sqlite", { code: "ERR_SQLITE_ERROR", errcode: 261 }],
  ])("tries again when another process opens the file at this moment, as %s report it", (_, reported) => {
    const database = new Database(place.path);
    const exec = database.exec.bind(database);
    let locked = 3;
    vi.spyOn(database, "exec").mockImplementation((sql) => {
      if (!sql.includes("journal_mode") || locked === 0) return exec(sql);
      locked -= 1;
      throw Object.assign(new Error("database is locked"), reported);
    });
    sqliteStore(database);
    expect(locked).toBe(0);
    expect(pragma(database, "journal_mode")).toBe("wal");
    database.close();
  });

  it("refuses a file that is not a database, and says which", () => {
    writeFileSync(place.path, "These are my holiday plans, and no database. ".repeat(100));
    expect(() => sqliteStore(place.path)).toThrow(StoreError);
    expect(() => sqliteStore(place.path)).toThrow(
      `the SQLite database ${place.path} cannot be used: file is not a database`,
    );
    expect(readFileSync(place.path, "utf8")).toContain("holiday plans");
  });

  it("refuses a damaged database, and says which", async () => {
    await sqliteStore(place.path).close();
    const bytes = readFileSync(place.path);
    bytes.fill(0xa5, 100, 4096); // The rest of the first page, where the tables are listed.
    writeFileSync(join(place.folder, "damaged.db"), bytes);
    expect(() => sqliteStore(join(place.folder, "damaged.db"))).toThrow(
      /damaged\.db cannot be used: .*malformed/,
    );
  });

  it("refuses a database that a newer Latchkey migrated, and leaves it alone", async () => {
    await sqliteStore(place.path).close();
    const database = new Database(place.path);
    const future = migrations.length + 1;
    database.exec(`INSERT INTO latchkey_migrations VALUES (${future}, 'from_the_future', 0)`);
    const error = thrownBy(() => sqliteStore(place.path));
    expect(error).toBeInstanceOf(ConfigError);
    expect(error).toHaveProperty("message", expect.stringContaining("by a newer Latchkey"));
    expect(database.prepare("SELECT count(*) AS count FROM latchkey_migrations").get()).toMatchObject({
      count: future,
    });
    database.close();
  });

  it("keeps what an older Latchkey wrote, and what refers to it", async () => {
    const database = new Database(place.path);
    database.exec("PRAGMA foreign_keys = ON");
    const [first] = migrations;
    if (first === undefined) expect.fail("there is no migration");
    database.exec(`
      CREATE TABLE latchkey_migrations (id INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL);
      INSERT INTO latchkey_migrations VALUES (1, 'records', 0);
      ${first.sql};
      CREATE TABLE rides (
        id INTEGER PRIMARY KEY, scope TEXT, key TEXT,
        FOREIGN KEY (scope, key) REFERENCES latchkey_records (scope, key) ON DELETE SET NULL);`);
    const insert = database.prepare(`
      INSERT INTO latchkey_records (
               scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until,
               reconcile_after, reason, completed_at, response_status, response_head, response_body)
      VALUES ('tenant', ?, ?, 'v1:first', 3, 'reconcile', 1, 9999999999999, ?, ?, ?, ?, ?, ?, ?, ?)`);
    insert.run("a", "in_progress", "owner", 9999999999999, null, null, null, null, null, null);
    insert.run("b", "completed", "owner", null, null, null, 2, 201, '{"v":1,"headers":[]}', everyByte);
    insert.run("c", "failed_retryable", "owner", null, null, "nothing was sent", null, null, null, null);
    insert.run("d", "unknown", null, null, 5, "no answer came", null, null, null, null);
    insert.run("e", "expired", null, null, null, null, null, null, null, null);
    database.exec("INSERT INTO rides VALUES (1, 'tenant', 'b')");

    const store = sqliteStore(database);
    const read = async (key: string) => (await store.read({ scope: "tenant", key })).record;
    const common = { fence: 3, progress: [], route: undefined };
    expect(await read("a")).toMatchObject({ ...common, state: "in_progress", owner: "owner" });
    expect(await read("b")).toMatchObject({ ...common, state: "completed", response: { body: everyByte } });
    expect(await read("c")).toMatchObject({ ...common, state: "failed_retryable", resumeAfter: undefined });
    expect(await read("d")).toMatchObject({ ...common, reconcileAttempts: 0, escalatedAt: undefined });
    expect(await read("e")).toMatchObject({ ...common, state: "expired" });
    expect(database.prepare("SELECT key FROM rides").get()).toMatchObject({ key: "b" });
    expect(await store.claimUnknown(claimAll)).toMatchObject([{ key: "d", reconcileAttempts: 1 }]);
    const held = { scope: "tenant", key: "a", fence: 3, owner: "owner" };
    expect((await store.settle(held, complete())).kind).toBe("settled");
    database.close();
  });

  it("remembers which migrations were applied, and when", async () => {
    const database = new Database(place.path);
    sqliteStore(database, { clock: () => 1_767_225_600_000 });
    sqliteStore(database, { clock: () => 1_800_000_000_000 });
    expect(database.prepare("SELECT id, name, applied_at FROM latchkey_migrations").all()).toEqual(
      migrations.map(({ id, name }) => ({ id, name, applied_at: 1_767_225_600_000 })),
    );
    database.close();
  });

  it("closes what it opened, and leaves the user's own connection open", async () => {
    const database = new Database(place.path);
    const store = sqliteStore(database);
    await store.close();
    expect(pragma(database, "journal_mode")).toBe("wal");
    database.close();
  });
});

describe("the driver", () => {
  it("makes no difference to what a statement answers", () => {
    const database = new Database(place.path);
    database.exec("CREATE TABLE samples (number INTEGER, bytes BLOB)");
    const write = new Statement(database, "INSERT INTO samples VALUES (?, ?)");
    expect(write.run(1_767_225_600_001, new Uint8Array([1, 2, 3]))).toBe(1);
    const expected = { number: 1_767_225_600_001, bytes: new Uint8Array([1, 2, 3]) };
    for (const bigints of [false, true]) {
      const read = new Statement(database.defaultSafeIntegers(bigints), "SELECT number, bytes FROM samples");
      expect(read.get()).toMatchObject(expected);
      expect(read.all()).toMatchObject([expected]);
    }
    expect(new Statement(database, "SELECT 1 WHERE 0").get()).toBeUndefined();
    database.close();

    // Node makes small buffers as views into a large one, and other drivers may hand out such.
    const row = { bytes: Buffer.from([1, 2, 3]) };
    const statement = { run: () => ({ changes: 1n }), get: () => row, all: () => [row] };
    const other = new Statement({ exec() {}, prepare: () => statement, close() {} }, "");
    expect(other.run()).toBe(1);
    expect(other.get()).toEqual({ bytes: new Uint8Array([1, 2, 3]) });
  });

  it.each([
    ["refuses a list of parameters, as Node's own does", true],
    ["takes a list for a parameter", false],
  ])("may be one that %s", (_, throws) => {
    const database = new Database(place.path);
    const strict: SqliteDatabase = {
      exec: (sql) => database.exec(sql),
      prepare(sql) {
        const statement = database.prepare(sql);
        const checked = (parameters: SqliteValue[]) => {
          if (!Array.isArray(parameters[0])) return parameters;
          if (throws) throw new Error("Unknown named parameter '0'");
          return [String(parameters[0]), null];
        };
        return {
          run: (...parameters) => statement.run(...checked(parameters)),
          get: (...parameters) => statement.get(...checked(parameters)),
          all: (...parameters) => statement.all(...checked(parameters)),
        };
      },
      close: () => database.close(),
    };
    strict.exec("CREATE TABLE samples (number INTEGER, text TEXT)");
    expect(new Statement(strict, "INSERT INTO samples VALUES (?, ?)").run(1, "one")).toBe(1);
    const read = new Statement(strict, "SELECT text FROM samples WHERE number = ? AND text = ?");
    expect(read.get(1, "one")).toMatchObject({ text: "one" });
    expect(read.all(1, "one")).toEqual([{ text: "one" }]);
    strict.close();
  });
});

function thrownBy(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  return expect.fail("nothing was thrown");
}
