import Module from "node:module";
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { useFolder } from "./sqlite-support.ts";

const place = useFolder();

/** Each test is an application of its own: all files of one are opened by the same driver. */
beforeEach(() => {
  vi.resetModules();
});
afterEach(() => {
  vi.restoreAllMocks();
});

const openDatabase = async () => (await import("../../src/stores/sqlite/driver.ts")).openDatabase(place.path);
const openStore = async () => (await import("../../src/stores/sqlite/store.ts")).sqliteStore(place.path);

describe("the driver that a file is opened with", () => {
  class DatabaseSync {}
  class Libsql {}
  class BetterSqlite {}
  const all = { "node:sqlite": { DatabaseSync }, libsql: Libsql, "better-sqlite3": BetterSqlite };
  const [libsqlFile, betterFile] = [
    "/app/node_modules/.pnpm/libsql@0.5.29/node_modules/libsql/index.js",
    "/app/node_modules/better-sqlite3/lib/index.js",
  ];

  it("is Node's own where there is one", async () => {
    pretend({ installed: all });
    expect(await openDatabase()).toBeInstanceOf(DatabaseSync);
  });

  it("is better-sqlite3 where there is nothing else", async () => {
    pretend({ installed: { "better-sqlite3": BetterSqlite } });
    expect(await openDatabase()).toBeInstanceOf(BetterSqlite);
  });

  it.each([
    [betterFile, BetterSqlite],
    [libsqlFile, Libsql],
    ["C:\\app\\node_modules\\better-sqlite3\\lib\\index.js", BetterSqlite],
    ["/app/node_modules/libsql-stateless/index.js", DatabaseSync],
  ])(
    "is the one that the application has loaded, which may have the same file open: %s",
    async (file, expected) => {
      // A copy of the application's own, of which there may be another one beside us.
      pretend({ installed: { "node:sqlite": { DatabaseSync } }, loaded: { [file]: expected } });
      expect(await openDatabase()).toBeInstanceOf(expected);
    },
  );

  it.each([
    ["Node's own and a package", { [libsqlFile]: Libsql }, true, "node:sqlite and libsql"],
    [
      "two packages",
      { [libsqlFile]: Libsql, [betterFile]: BetterSqlite },
      false,
      "libsql and better-sqlite3",
    ],
    [
      "two copies of one",
      { [betterFile]: BetterSqlite, [`/other${betterFile}`]: BetterSqlite },
      false,
      "better-sqlite3 and",
    ],
  ])("is not guessed where several are loaded: %s", async (_what, loaded, isOwnLoaded, names) => {
    pretend({ installed: all, loaded, isOwnLoaded });
    await expect(openDatabase()).rejects.toThrow(names);
    await expect(openDatabase()).rejects.toThrow("sqliteStore(database)");
  });

  it("is the same for all files, whatever is loaded later", async () => {
    pretend({ installed: all });
    expect(await openDatabase()).toBeInstanceOf(DatabaseSync);
    pretend({ installed: all, loaded: { [libsqlFile]: Libsql }, isOwnLoaded: true });
    expect(await openDatabase()).toBeInstanceOf(DatabaseSync);
  });

  it.each([
    { code: "MODULE_NOT_FOUND" },
    { code: "ERR_DLOPEN_FAILED" },
    { message: "Could not locate the bindings file." },
  ])("is another one where a package turns out to have no binary: %j", async (trouble) => {
    class WithoutBinary {
      constructor() {
        throw Object.assign(new Error(), trouble);
      }
    }
    pretend({ installed: all, loaded: { [betterFile]: WithoutBinary } });
    expect(await openDatabase()).toBeInstanceOf(DatabaseSync);
  });

  it("is no other one where this one cannot open the file, and says why", async () => {
    class Broken {
      constructor() {
        throw Object.assign(new Error("unable to open database file"), { code: "SQLITE_CANTOPEN" });
      }
    }
    pretend({ installed: { ...all, "node:sqlite": { DatabaseSync: Broken } } });
    await expect(openDatabase()).rejects.toThrow("unable to open database file");
  });

  it("closes the file again when it cannot be used", async () => {
    const close = vi.fn();
    class Failing {
      close = close;
      exec() {
        throw new Error("disk I/O error");
      }
    }
    pretend({ installed: { "node:sqlite": { DatabaseSync: Failing } } });
    await expect(openStore()).rejects.toThrow(
      `the SQLite database ${place.path} cannot be used: disk I/O error`,
    );
    expect(close).toHaveBeenCalledOnce();
  });

  it("is asked for in one sentence where there is none", async () => {
    pretend({ installed: {} });
    await expect(openStore()).rejects.toThrow(/npm install libsql.* Node 22\.13 or newer/);
    await expect(openStore()).rejects.toMatchObject({ name: "ConfigError" });
  });
});

interface Pretended {
  /** What `require` finds, and no others. */
  readonly installed: Readonly<Record<string, unknown>>;
  /** What is loaded already, by file. */
  readonly loaded?: Readonly<Record<string, unknown>>;
  readonly isOwnLoaded?: boolean;
}

function pretend({ installed, loaded = {}, isOwnLoaded = false }: Pretended): void {
  const drivers = ["node:sqlite", "libsql", "better-sqlite3"];
  const loader = Module as unknown as {
    _load(name: string, ...rest: unknown[]): unknown;
    _cache: Record<string, unknown>;
  };
  const load = loader._load;
  vi.spyOn(loader, "_load").mockImplementation((name, ...rest) => {
    if (!drivers.includes(name)) return load.call(loader, name, ...rest);
    if (Object.hasOwn(installed, name)) return installed[name];
    throw new Error(`Cannot find module '${name}'`);
  });
  for (const [file, exports] of Object.entries(loaded)) loader._cache[file] = { exports };
  const property = "moduleLoadList";
  const list = Object.getOwnPropertyDescriptor(process, property) ?? expect.fail();
  const value = isOwnLoaded ? ["NativeModule sqlite"] : [];
  Object.defineProperty(process, property, { ...list, value });
  onTestFinished(() => {
    for (const file of Object.keys(loaded)) delete loader._cache[file];
    Object.defineProperty(process, property, list);
  });
}
