import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import Module from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import type { StoredResponse } from "../../src/core/response.ts";
import type { Lease, ReserveRequest, Settlement, Store } from "../../src/core/store.ts";
import { openDatabase, Statement } from "../../src/stores/sqlite/driver.ts";
import {
  deleteExpired,
  deleteSettled,
  endDeadExecutions,
  markExpired,
} from "../../src/stores/sqlite/statements.ts";
import { type SqliteDatabase, sqliteStore } from "../../src/stores/sqlite/store.ts";
import { manualClock, runStoreContract, type StoreHarness } from "../../src/testing/index.ts";

let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "latchkey-sqlite-"));
  path = join(folder, "records.db");
});

afterEach(async () => {
  vi.restoreAllMocks();
  // A process that a failed test left behind would go on writing into the folder.
  for (const { child, ended } of started.splice(0)) {
    child.kill("SIGKILL");
    await ended;
  }
  rmSync(folder, { recursive: true, force: true });
});

describe("sqlite store on a file", () => {
  runStoreContract({ it, open: async () => harness(path) });
});

describe("sqlite store on a connection of the user's own", () => {
  runStoreContract({ it, open: async () => harness(new Database(path)) });
});

describe("sqlite store on a connection that returns integers as bigint", () => {
  runStoreContract({ it, open: async () => harness(new Database(path).defaultSafeIntegers()) });
});

describe("opening a database", () => {
  it("makes the folder when it is missing", async () => {
    const store = sqliteStore(join(folder, "not", "yet", "records.db"));
    await lease(store, request());
    await store.close();
  });

  it("keeps every record through close and reopen, byte for byte", async () => {
    const first = sqliteStore(path);
    const completed = request();
    const released = request();
    const suspended = request();
    const running = request({ onCrash: "resume" });
    await first.settle(await lease(first, completed), complete(everyByte));
    await first.settle(await lease(first, released), release);
    await first.settle(await lease(first, suspended), suspend);
    const held = await lease(first, running);
    const ids = [completed, released, suspended, running];
    const before = await Promise.all(ids.map((id) => first.read(id)));
    await first.close();

    const second = sqliteStore(path);
    const after = await Promise.all(ids.map((id) => second.read(id)));
    expect(after.map(({ record }) => record)).toEqual(before.map(({ record }) => record));
    expect(await second.renew([held], 60_000)).toEqual(["held"]);
    expect((await second.settle(held, complete())).kind).toBe("settled");
    await second.close();
  });

  it("leaves everything in the file itself when it is closed", async () => {
    const store = sqliteStore(path);
    const asked = request();
    await store.settle(await lease(store, asked), complete());
    await store.close();
    copyFileSync(path, join(folder, "copy.db"));
    const copy = sqliteStore(join(folder, "copy.db"));
    expect((await copy.reserve(asked)).kind).toBe("replay");
    await copy.close();
  });

  it("writes ahead and waits for the disk at every commit", async () => {
    const database = new Database(path);
    database.exec("PRAGMA synchronous = OFF");
    sqliteStore(database);
    expect(pragma(database, "journal_mode")).toBe("wal");
    expect(pragma(database, "synchronous")).toBe(2);
    expect(pragma(database, "fullfsync")).toBe(1);
    expect(pragma(database, "busy_timeout")).toBe(2_000);
    database.close();

    // The same settings are made for a file that the store opens itself; what the file remembers of them shows it.
    await sqliteStore(join(folder, "own.db")).close();
    const own = new Database(join(folder, "own.db"));
    expect(pragma(own, "journal_mode")).toBe("wal");
    own.close();
  });

  it("does not wait for the disk at every commit when told so", () => {
    const database = new Database(path);
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
    const database = new Database(path);
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

  it("closes the file again when it cannot be used", () => {
    const close = vi.fn();
    class DatabaseSync {
      close = close;
      exec() {
        throw new Error("disk I/O error");
      }
    }
    withModules({ "node:sqlite": { DatabaseSync } });
    expect(() => sqliteStore(path)).toThrow(`the SQLite database ${path} cannot be used: disk I/O error`);
    expect(close).toHaveBeenCalledOnce();
  });

  it("refuses a file that is not a database, and says which", () => {
    writeFileSync(path, "These are my holiday plans, and no database. ".repeat(100));
    expect(() => sqliteStore(path)).toThrow(StoreError);
    expect(() => sqliteStore(path)).toThrow(
      `the SQLite database ${path} cannot be used: file is not a database`,
    );
    expect(readFileSync(path, "utf8")).toContain("holiday plans");
  });

  it("refuses a damaged database, and says which", async () => {
    await sqliteStore(path).close();
    const bytes = readFileSync(path);
    bytes.fill(0xa5, 100, 4096); // The rest of the first page, where the tables are listed.
    writeFileSync(join(folder, "damaged.db"), bytes);
    expect(() => sqliteStore(join(folder, "damaged.db"))).toThrow(/damaged\.db cannot be used: .*malformed/);
  });

  it("refuses a database that a newer Latchkey migrated, and leaves it alone", async () => {
    await sqliteStore(path).close();
    const database = new Database(path);
    database.exec("INSERT INTO latchkey_migrations VALUES (2, 'from_the_future', 0)");
    const error = thrownBy(() => sqliteStore(path));
    expect(error).toBeInstanceOf(ConfigError);
    expect(error).toHaveProperty("message", expect.stringContaining("by a newer Latchkey"));
    expect(database.prepare("SELECT count(*) AS count FROM latchkey_migrations").get()).toMatchObject({
      count: 2,
    });
    database.close();
  });

  it("remembers which migrations were applied, and when", async () => {
    const database = new Database(path);
    sqliteStore(database, { clock: () => 1_767_225_600_000 });
    sqliteStore(database, { clock: () => 1_800_000_000_000 });
    expect(database.prepare("SELECT id, name, applied_at FROM latchkey_migrations").all()).toEqual([
      { id: 1, name: "records", applied_at: 1_767_225_600_000 },
    ]);
    database.close();
  });

  it("closes what it opened, and leaves the user's own connection open", async () => {
    const database = new Database(path);
    const store = sqliteStore(database);
    await store.close();
    expect(pragma(database, "journal_mode")).toBe("wal");
    database.close();
  });
});

describe("the driver", () => {
  it("is Node's own where there is one", () => {
    class DatabaseSync {}
    withModules({ "node:sqlite": { DatabaseSync }, libsql: class {}, "better-sqlite3": class {} });
    expect(openDatabase(path)).toBeInstanceOf(DatabaseSync);
  });

  it("is better-sqlite3 where there is nothing else", () => {
    class BetterSqlite {}
    withModules({ "better-sqlite3": BetterSqlite });
    expect(openDatabase(path)).toBeInstanceOf(BetterSqlite);
  });

  it("makes no difference to what a statement answers", () => {
    const database = new Database(path);
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

  it("is asked for in one sentence where there is none", () => {
    withModules({});
    expect(() => sqliteStore(path)).toThrow(ConfigError);
    expect(() => sqliteStore(path)).toThrow(/npm install libsql.* Node 22\.13 or newer/);
  });
});

describe("values", () => {
  it("keeps times of the real clock to the millisecond", async () => {
    const store = sqliteStore(path);
    const before = Date.now();
    const asked = request({ leaseMs: 12_345, retentionMs: 86_400_001 });
    await lease(store, asked);
    const { record, now } = await store.read(asked);
    if (record?.state !== "in_progress") expect.fail(record?.state);
    expect(record.createdAt).toBeGreaterThanOrEqual(before);
    expect(record.createdAt).toBeLessThanOrEqual(now);
    expect(Number.isInteger(record.createdAt)).toBe(true);
    expect(record.leaseUntil - record.createdAt).toBe(12_345);
    expect(record.expiresAt - record.createdAt).toBe(86_400_001);
    await store.close();
  });

  it("keeps a retention that never ends until the last date there is", async () => {
    const store = sqliteStore(path);
    const lastDate = 8_640_000_000_000_000;
    const asked = request({ retentionMs: Number.POSITIVE_INFINITY });
    const held = await lease(store, asked);
    const forever: Settlement = { ...complete(), retentionMs: Number.POSITIVE_INFINITY };
    expect(await store.settle(held, forever)).toEqual({ kind: "settled", expiresAt: lastDate });
    expect(await store.settle(held, forever)).toEqual({ kind: "settled", expiresAt: lastDate });
    expect(await store.reserve(asked)).toMatchObject({ kind: "replay", expiresAt: lastDate });
    expect(await store.reap({ limit: 10, expiry: "delete" })).toEqual({ deleted: 0, expired: 0 });

    const suspended = await lease(store, request());
    const never: Settlement = { ...suspend, reconcileAfterMs: Number.POSITIVE_INFINITY };
    expect((await store.settle(suspended, never)).kind).toBe("settled");
    expect((await store.read(suspended)).record).toMatchObject({ reconcileAfter: lastDate });
    await store.close();
  });

  it("keeps exactly the bytes of a view into a larger buffer", async () => {
    const store = sqliteStore(path);
    const asked = request();
    await store.settle(await lease(store, asked), complete(everyByte.subarray(10, 20)));
    const replay = await store.reserve(asked);
    if (replay.kind !== "replay" || replay.response.kind !== "full") expect.fail(replay.kind);
    expect(replay.response.body).toEqual(new Uint8Array([10, 11, 12, 13, 14, 15, 16, 17, 18, 19]));
    await store.close();
  });

  it("keeps a body of many megabytes", async () => {
    const store = sqliteStore(path);
    const asked = request();
    const body = new Uint8Array(8 * 1024 * 1024).fill(7);
    body[body.length - 1] = 8;
    await store.settle(await lease(store, asked), complete(body));
    const replay = await store.reserve(asked);
    if (replay.kind !== "replay" || replay.response.kind !== "full") expect.fail(replay.kind);
    expect(Buffer.compare(replay.response.body, body)).toBe(0);
    await store.close();
  });
});

describe("sweeping and reaping", () => {
  it("begins with what is due longest", async () => {
    const clock = manualClock();
    const store = sqliteStore(path, { clock: clock.now });
    const late = request({ leaseMs: 2_000 });
    const early = request({ leaseMs: 1_000 });
    for (const asked of [late, early]) await lease(store, asked);
    await clock.advance(5_000);
    expect(await store.sweep({ limit: 1 })).toEqual({ unknown: 1, retryable: 0 });
    expect((await store.read(early)).record?.state).toBe("unknown");
    expect((await store.read(late)).record?.state).toBe("in_progress");
    await store.close();
  });

  it("takes the word from an owner whose execution was swept, even where both say the same", async () => {
    const clock = manualClock();
    const store = sqliteStore(path, { clock: clock.now });
    const unknown = await lease(store, request({ leaseMs: 1_000 }));
    const retryable = await lease(store, request({ leaseMs: 1_000, onCrash: "retry" }));
    await clock.advance(1_000);
    expect(await store.sweep({ limit: 10 })).toEqual({ unknown: 1, retryable: 1 });
    expect(await store.settle(unknown, suspend)).toEqual({ kind: "lost" });
    expect(await store.settle(retryable, release)).toEqual({ kind: "lost" });
    await store.close();
  });

  it("removes no more than the limit of settled and soft-expired records together", async () => {
    const clock = manualClock();
    const store = sqliteStore(path, { clock: clock.now });
    const settleTwo = async () => {
      for (const asked of [request(), request()]) await store.settle(await lease(store, asked), complete());
      await clock.advance(60_000);
    };
    await settleTwo();
    expect(await store.reap({ limit: 10, expiry: "soft" })).toEqual({ deleted: 0, expired: 2 });
    await settleTwo();
    expect(await store.reap({ limit: 3, expiry: "delete" })).toEqual({ deleted: 3, expired: 0 });
    expect(await store.reap({ limit: 3, expiry: "delete" })).toEqual({ deleted: 1, expired: 0 });
    await store.close();
  });

  it("finds its work by the partial indexes, however many other records there are", async () => {
    const database = new Database(path);
    sqliteStore(database);
    for (const [sql, index] of [
      [endDeadExecutions, "latchkey_records_lease"],
      [markExpired, "latchkey_records_expiry"],
      [deleteSettled, "latchkey_records_expiry"],
      [deleteExpired, "latchkey_records_expired"],
    ] as const) {
      const plan = database
        .prepare(`EXPLAIN QUERY PLAN ${sql}`)
        .all()
        .map((row) => (row as { detail: string }).detail)
        .join("\n");
      expect(plan).toMatch(new RegExp(`SEARCH latchkey_records USING (COVERING )?INDEX ${index} \\(`));
      expect(plan).not.toContain("TEMP B-TREE");
      expect(plan).not.toContain("SCAN");
    }
    database.close();
  });
});

describe("several writes at once", () => {
  it("share one transaction", async () => {
    const database = new Database(path);
    const store = sqliteStore(database);
    const exec = vi.spyOn(database, "exec");
    await Promise.all(Array.from({ length: 20 }, () => lease(store, request())));
    expect(exec.mock.calls).toEqual([["BEGIN IMMEDIATE"], ["COMMIT"]]);
    database.close();
  });

  it("fail only where they are at fault", async () => {
    const store = sqliteStore(path);
    const leases = await Promise.all([request(), request(), request()].map((asked) => lease(store, asked)));
    const settlements = [complete(), { ...complete(), retentionMs: Number.NaN }, complete()];
    const answers = await Promise.allSettled(
      leases.map((held, index) => store.settle(held, settlements[index] as Settlement)),
    );
    expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    const states = await Promise.all(leases.map(async (held) => (await store.read(held)).record?.state));
    expect(states).toEqual(["completed", "in_progress", "completed"]);
    await store.close();
  });

  it("are written down before the store closes", async () => {
    const store = sqliteStore(path);
    const asked = request();
    const reserving = store.reserve(asked);
    await store.close();
    expect((await reserving).kind).toBe("execute");
    const reopened = sqliteStore(path);
    expect((await reopened.reserve(asked)).kind).toBe("inFlight");
    await reopened.close();
  });
});

describe("when SQLite cannot do it", () => {
  it("a closed store rejects every verb", async () => {
    const store = sqliteStore(path);
    const held = await lease(store, request());
    await store.close();
    await store.close();
    for (const call of [
      () => store.reserve(request()),
      () => store.settle(held, complete()),
      () => store.renew([held], 60_000),
      () => store.read(held),
      () => store.sweep({ limit: 1 }),
      () => store.reap({ limit: 1, expiry: "delete" }),
    ]) {
      const error = await call().then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(StoreError);
      expect(error).toHaveProperty("message", expect.stringContaining("closed"));
    }
  });

  it("a full disk rejects and harms nothing, and when there is space again it works", async () => {
    const database = new Database(path);
    const store = sqliteStore(database);
    const completed = request();
    await store.settle(await lease(store, completed), complete(everyByte));
    const running = await lease(store, request());
    const before = await Promise.all([store.read(completed), store.read(running)]);

    const large = complete(new Uint8Array(1024 * 1024));
    database.exec(`PRAGMA max_page_count = ${pragma(database, "page_count")}`);
    await expect(store.settle(running, large)).rejects.toThrow(/full/);
    const fresh = request({ fingerprint: "f".repeat(100_000) });
    await expect(store.reserve(fresh)).rejects.toThrow(/full/);

    const after = await Promise.all([store.read(completed), store.read(running)]);
    expect(after.map(({ record }) => record)).toEqual(before.map(({ record }) => record));
    expect((await store.reserve(completed)).kind).toBe("replay");
    expect(await store.renew([running], 60_000)).toEqual(["held"]);

    database.exec("PRAGMA max_page_count = 1000000");
    expect((await store.settle(running, large)).kind).toBe("settled");
    expect((await store.reserve(fresh)).kind).toBe("execute");
    expect(pragma(database, "integrity_check")).toBe("ok");
    database.close();
  });

  it("a lock that another process holds too long rejects what must be written, and still lets retries read", async () => {
    const database = new Database(path);
    const store = sqliteStore(database);
    database.exec("PRAGMA busy_timeout = 50"); // The real one would only make this test slow.
    const completed = request();
    await store.settle(await lease(store, completed), complete());

    const other = new Database(path);
    other.exec("BEGIN IMMEDIATE");
    await expect(store.reserve(request())).rejects.toMatchObject({ code: "SQLITE_BUSY" });
    expect((await store.reserve(completed)).kind).toBe("replay");
    expect((await store.reserve({ ...completed, fingerprint: "v1:other" })).kind).toBe("mismatch");
    other.exec("ROLLBACK");
    expect((await store.reserve(request())).kind).toBe("execute");
    other.close();
    database.close();
  });

  it("a transaction that the application left open is not touched, and nothing is written into it", async () => {
    const database = new Database(path);
    const store = sqliteStore(database);
    database.exec("CREATE TABLE rides (id INTEGER)");
    database.exec("BEGIN");
    database.exec("INSERT INTO rides VALUES (1)");
    const asked = request();
    await expect(store.reserve(asked)).rejects.toThrow(/within a transaction/);
    database.exec("COMMIT");
    expect(database.prepare("SELECT count(*) AS count FROM rides").get()).toMatchObject({ count: 1 });
    expect((await store.reserve(asked)).kind).toBe("execute");
    database.close();
  });
});

describe("several processes", () => {
  it("open a new file at once, and one of them executes", async () => {
    const rounds = 60;
    const racers = [1, 2].map(() => start("sqlite-racer.ts", folder, String(rounds)));
    await Promise.all(racers.map((racer) => racer.line()));
    const startAt = Date.now() + 100;
    for (const { child } of racers) child.stdin?.end(`${startAt}\n`);
    for (let round = 0; round < rounds; round += 1) {
      const kinds = await Promise.all(racers.map((racer) => racer.line()));
      expect(kinds.sort(), `round ${round}`).toEqual(["execute", "inFlight"]);
    }
  });

  it("lose nothing that was acknowledged when one is killed", async () => {
    const settler = start("sqlite-settler.ts", path);
    const acknowledged: string[] = [];
    while (acknowledged.length < 200) acknowledged.push(await settler.line());
    settler.child.kill("SIGKILL");
    acknowledged.push(...(await settler.rest()));

    const database = new Database(path);
    const store = sqliteStore(database);
    for (const key of acknowledged) {
      const replay = await store.reserve(request({ scope: "tenant", key, fingerprint: "v1:same" }));
      if (replay.kind !== "replay" || replay.response.kind !== "full") expect.fail(`${key}: ${replay.kind}`);
      expect(Buffer.from(replay.response.body).toString()).toBe(`body of ${key}`);
    }
    expect(pragma(database, "integrity_check")).toBe("ok");
    database.close();
  });
});

function harness(database: string | SqliteDatabase): StoreHarness {
  const clock = manualClock();
  const store = sqliteStore(database, { clock: clock.now });
  return {
    store,
    passTime: clock.advance,
    async close() {
      await store.close();
      if (typeof database !== "string") database.close();
    },
  };
}

let sequence = 0;

function request(overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  sequence += 1;
  return {
    scope: "tenant",
    key: `key-${sequence}`,
    fingerprint: "v1:first",
    owner: `owner-${sequence}`,
    leaseMs: 60_000,
    retentionMs: 60_000,
    onCrash: "reconcile",
    ...overrides,
  };
}

const everyByte = Uint8Array.from({ length: 256 }, (_, index) => index);

function complete(body: Uint8Array = everyByte): Extract<Settlement, { kind: "complete" }> {
  const response: StoredResponse = {
    kind: "full",
    status: 201,
    headers: [["content-type", "application/octet-stream"]],
    body,
  };
  return { kind: "complete", response, retentionMs: 60_000 };
}
const release: Settlement = { kind: "release", reason: "nothing was sent", retentionMs: 60_000 };
const suspend = { kind: "suspend", reason: "no answer came", reconcileAfterMs: 60_000 } as const;

async function lease(store: Store, asked: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(asked);
  if (reservation.kind !== "execute") expect.fail(`expected to execute, got ${reservation.kind}`);
  return reservation.lease;
}

function pragma(database: SqliteDatabase, name: string): unknown {
  return Object.values(database.prepare(`PRAGMA ${name}`).get() as object)[0];
}

function thrownBy(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  return expect.fail("nothing was thrown");
}

/** Makes `require` find these SQLite drivers and no others. */
function withModules(modules: Readonly<Record<string, unknown>>): void {
  const drivers = ["node:sqlite", "libsql", "better-sqlite3"];
  const loader = Module as unknown as { _load(name: string, ...rest: unknown[]): unknown };
  const load = loader._load;
  vi.spyOn(loader, "_load").mockImplementation((name, ...rest) => {
    if (!drivers.includes(name)) return load.call(loader, name, ...rest);
    if (Object.hasOwn(modules, name)) return modules[name];
    throw new Error(`Cannot find module '${name}'`);
  });
}

interface Started {
  readonly child: ChildProcess;
  readonly ended: Promise<unknown>;
  /** The next line that it prints. */
  line(): Promise<string>;
  /** Everything else that it prints until it ends. */
  rest(): Promise<string[]>;
}

const started: Started[] = [];

/** Runs a fixture in a process of its own. */
function start(fixture: string, ...args: string[]): Started {
  const file = fileURLToPath(new URL(`./fixtures/${fixture}`, import.meta.url));
  const child = spawn(process.execPath, ["--import", "tsx", file, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const running: Started = {
    child,
    ended: once(child, "exit"),
    async line() {
      const { value, done } = await lines.next();
      return done ? expect.fail(`${fixture} ended early`) : value;
    },
    async rest() {
      const left: string[] = [];
      for (let next = await lines.next(); !next.done; next = await lines.next()) left.push(next.value);
      return left;
    },
  };
  started.push(running);
  return running;
}
