import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { afterEach, describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import {
  claimAll,
  complete,
  everyByte,
  lease,
  outboxOf,
  pragma,
  request,
  transact,
  unclaimed,
  useFolder,
} from "./sqlite-support.ts";

const place = useFolder();

afterEach(async () => {
  // A process that a failed test left behind would go on writing into the folder.
  for (const { child, ended } of started.splice(0)) {
    child.kill("SIGKILL");
    await ended;
  }
});

describe("when SQLite cannot do it", () => {
  it("a closed store rejects every verb", async () => {
    const store = sqliteStore(place.path);
    const held = await lease(store, request());
    await store.close();
    await store.close();
    for (const call of [
      () => store.reserve(request()),
      () => store.settle(held, complete()),
      () => store.renew([held], 60_000),
      () => store.read(held),
      () => store.sweep({ limit: 1, unclaimed }),
      () => store.advance(held, { progress: [], onCrash: "retry" }),
      () => store.claimResumable(claimAll),
      () => store.claimUnknown(claimAll),
      () => store.resolve(held, 1, complete(), "operator"),
      () => store.audit({ limit: 1 }),
      () => transact(store, held),
      () => outboxOf(store).claim({ owner: "relay", limit: 1, leaseMs: 1 }),
      () => outboxOf(store).settle("relay", []),
      () => outboxOf(store).counts(),
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
    const database = new Database(place.path);
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
    const database = new Database(place.path);
    const store = sqliteStore(database);
    database.exec("PRAGMA busy_timeout = 50"); // The real one would only make this test slow.
    const completed = request();
    await store.settle(await lease(store, completed), complete());

    const other = new Database(place.path);
    other.exec("BEGIN IMMEDIATE");
    await expect(store.reserve(request())).rejects.toThrow("database is locked");
    expect((await store.reserve(completed)).kind).toBe("replay");
    expect((await store.reserve({ ...completed, fingerprint: "v1:other" })).kind).toBe("mismatch");
    other.exec("ROLLBACK");
    expect((await store.reserve(request())).kind).toBe("execute");
    other.close();
    database.close();
  });

  it("a transaction that the application left open is not touched, and nothing is written into it", async () => {
    const database = new Database(place.path);
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
    const racers = [1, 2].map(() => start("sqlite-racer.ts", place.folder, String(rounds)));
    await Promise.all(racers.map((racer) => racer.line()));
    const startAt = Date.now() + 100;
    for (const { child } of racers) child.stdin?.end(`${startAt}\n`);
    for (let round = 0; round < rounds; round += 1) {
      const kinds = await Promise.all(racers.map((racer) => racer.line()));
      expect(kinds.sort(), `round ${round}`).toEqual(["execute", "inFlight"]);
    }
  });

  it("lose nothing that was acknowledged when one is killed", async () => {
    const settler = start("sqlite-settler.ts", place.path);
    const acknowledged: string[] = [];
    while (acknowledged.length < 200) acknowledged.push(await settler.line());
    settler.child.kill("SIGKILL");
    acknowledged.push(...(await settler.rest()));

    const database = new Database(place.path);
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
