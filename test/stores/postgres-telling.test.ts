import postgres from "postgres";
import { describe, expect, it, onTestFinished } from "vitest";
import type { RecordId } from "../../src/core/record.ts";
import type { Reservation, Store } from "../../src/core/store.ts";
import { createLatchkey } from "../../src/latchkey.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { Watchers } from "../../src/stores/watchers.ts";
import {
  again,
  complete,
  eventually,
  explained,
  isWatched,
  leaseOf,
  manyRecords,
  request,
  spied,
  useDatabase,
} from "./postgres-support.ts";

/*
 * What the migration 0012_telling is for: whoever finds a request under way and is going to wait for it is told of its end,
 * without having to ask for that in a statement of its own.
 */

const database = useDatabase();

/** The process in which requests are under way. */
function working(): Store {
  return postgresStore(database.pool());
}

/** A process that listens, and hears, and what it sends from then on. */
async function hearing(): Promise<{ store: Store; texts: string[] }> {
  const texts: string[] = [];
  const pool = spied(database.pool(), (text) => void texts.push(text));
  const store = postgresStore(pool, { listen: true });
  onTestFinished(() => store.close());
  const unwatch = await store.watch?.({ scope: "tenant", key: "nobody's" }, () => {});
  unwatch?.();
  texts.length = 0;
  return { store, texts };
}

/** Counts the wake-ups for a record of which the store has said that it tells. */
async function awaited(store: Store, id: RecordId) {
  const woken = { times: 0, isRunning: false };
  const wake = () => {
    woken.times += 1;
  };
  const unwatch = await store.watch?.(id, wake, { isTold: true });
  woken.isRunning = unwatch?.isRunning === true;
  return woken;
}

const inFlight = (isTold: boolean) => ({
  kind: "inFlight",
  retryAfterMs: expect.any(Number),
  ...(isTold ? { isTold } : {}),
});

it("whoever will wait is woken, and the only statement is the one that found the request under way", async () => {
  const one = working();
  const { store, texts } = await hearing();
  const first = request();
  const lease = await leaseOf(one, first);
  expect(await store.reserve(again(first, { waits: true }))).toEqual(inFlight(true));
  const woken = await awaited(store, lease);
  expect(woken.isRunning).toBe(true);
  expect(texts).toEqual([expect.stringContaining("latchkey_reserve_one")]);
  await one.settle(lease, complete);
  await eventually(() => woken.times === 1);
});

describe("in a batch", () => {
  /** Some keys that are under way elsewhere, and as many new ones, all asked for at once by one that will wait. */
  async function askForAll(
    store: Store,
    { known, fresh, routes = [] }: { known: number; fresh: number; routes?: readonly string[] },
  ) {
    const one = working();
    const underWay = Array.from({ length: known }, (_, index) =>
      request({ route: routes[index % routes.length] }),
    );
    const held = await Promise.all(underWay.map((each) => leaseOf(one, each)));
    const asked = [
      ...underWay.map((each) => again(each, { waits: true })),
      ...Array.from({ length: fresh }, () => request({ waits: true, route: routes[0] })),
    ];
    const answers = await Promise.all(asked.map((each) => store.reserve(each)));
    return { one, held, answers };
  }

  async function expectWoken(store: Store, { one, held, answers }: Awaited<ReturnType<typeof askForAll>>) {
    for (const [index, lease] of held.entries()) {
      expect(answers[index]).toEqual(inFlight(true));
      const woken = await awaited(store, lease);
      await one.settle(lease, complete);
      await eventually(() => woken.times === 1);
    }
    const others = answers.slice(held.length).map(({ kind }) => kind);
    expect(others).toEqual(others.map(() => "execute"));
  }

  const ways = (texts: readonly string[]) => new Set(texts.map((text) => /FROM (\w+)/.exec(text)?.[1]));

  it("that expects some of its keys to be known, and in one that expects most", async () => {
    const { store, texts } = await hearing();
    for (const fresh of [6, 0, 0]) await expectWoken(store, await askForAll(store, { known: 6, fresh }));
    expect(ways(texts)).toEqual(new Set(["latchkey_reserve_batch", "latchkey_reserve_known"]));
  });

  it.each([
    ["requests that are alike", "the same", "latchkey_reserve_alike"],
    ["requests of different routes", "another", "latchkey_reserve_fresh"],
  ])("of %s that are all expected to be new", async (_, route, way) => {
    const { store, texts } = await hearing();
    for (let round = 0; round < 8; round += 1) {
      await Promise.all(Array.from({ length: 10 }, () => leaseOf(store, request())));
    }
    texts.length = 0;
    const found = await askForAll(store, { known: 2, fresh: 8, routes: ["the same", route] });
    expect(ways(texts)).toContain(way);
    await expectWoken(store, found);
  });
});

it("an end that was told before anybody watched is not missed", async () => {
  const one = working();
  const { store } = await hearing();
  const [first, second] = [request(), request()];
  const [lease, later] = [await leaseOf(one, first), await leaseOf(one, second)];
  await store.reserve(again(first, { waits: true }));
  await store.reserve(again(second, { waits: true }));
  const woken = await awaited(store, later);
  await one.settle(lease, complete);
  await one.settle(later, complete);
  // Notifications come in the order of their commits: the first has been heard as well.
  await eventually(() => woken.times === 1);
  expect((await awaited(store, lease)).isRunning).toBe(false);
  // Two that have been promised it, on one store: neither takes it from the other, and one that was woken does not either.
  expect((await awaited(store, lease)).isRunning).toBe(false);
  expect((await awaited(store, later)).isRunning).toBe(false);
});

it("only so many ends are remembered", async () => {
  const watchers = new Watchers();
  const id = (nth: number) => ({ scope: "", key: String(nth) });
  for (let nth = 0; nth <= 1_024; nth += 1) watchers.wakeAndRemember(id(nth));
  expect([watchers.wasHeard(id(0)), watchers.wasHeard(id(1))]).toEqual([false, true]);
});

it("in one batch, those who will not wait have nothing told", async () => {
  const one = working();
  const { store, texts } = await hearing();
  const requests = [request(), request(), request()];
  const held = await Promise.all(requests.map((each) => leaseOf(one, each)));
  const answers = await Promise.all(
    requests.map((each, index) => store.reserve(again(each, { waits: index === 1 }))),
  );
  expect(texts).toHaveLength(1);
  expect(answers).toEqual([inFlight(false), inFlight(true), inFlight(false)]);
  expect(await Promise.all(held.map((lease) => isWatched(database, lease)))).toEqual([false, true, false]);
});

it("a record for which somebody waits already is read and not written", async () => {
  const one = working();
  const { store } = await hearing();
  const first = request();
  const lease = await leaseOf(one, first);
  const versionOf = () =>
    database.query("SELECT xmin, xmax, ctid FROM latchkey_records WHERE key = $1", [lease.key]);
  expect(await store.reserve(again(first, { waits: true }))).toEqual(inFlight(true));
  const before = await versionOf();
  expect(await store.reserve(again(first, { waits: true }))).toEqual(inFlight(true));
  expect(await versionOf()).toEqual(before);
});

it("works through postgres.js, alone and in a batch", async () => {
  const one = working();
  const sql = postgres(database.url);
  const store = postgresStore(sql, { listen: true });
  await store.watch?.({ scope: "tenant", key: "nobody's" }, () => {});
  for (const count of [1, 5]) {
    const requests = Array.from({ length: count }, () => request());
    const held = await Promise.all(requests.map((each) => leaseOf(one, each)));
    const answers = await Promise.all(requests.map((each) => store.reserve(again(each, { waits: true }))));
    expect(answers).toEqual(answers.map(() => inFlight(true)));
    const woken = await Promise.all(held.map((lease) => awaited(store, lease)));
    await Promise.all(held.map((lease) => one.settle(lease, complete)));
    await eventually(() => woken.every(({ times }) => times === 1));
  }
  await store.close();
  await sql.end();
});

it("on tables of the version before, the error says what to do", async () => {
  const one = working();
  const { store } = await hearing();
  const first = request();
  await leaseOf(one, first);
  await database.query("ALTER FUNCTION latchkey_tell_of RENAME TO latchkey_told");
  try {
    await expect(store.reserve(again(first, { waits: true }))).rejects.toThrow("older version: run migrate");
  } finally {
    await database.query("ALTER FUNCTION latchkey_told RENAME TO latchkey_tell_of");
  }
});

it("nothing is told where nobody will wait, and nothing is promised where nobody hears", async () => {
  const one = working();
  const { store } = await hearing();
  const first = request();
  const lease = await leaseOf(one, first);
  expect(await store.reserve(again(first))).toEqual(inFlight(false));
  const deaf = postgresStore(database.pool(), { listen: true });
  const without = postgresStore(database.pool());
  for (const other of [deaf, without, one]) {
    expect(await other.reserve(again(first, { waits: true }))).toEqual(inFlight(false));
  }
  expect(await isWatched(database, lease)).toBe(false);
  await deaf.close();
});

it("nothing is told of another request with the same key, nor of what has ended", async () => {
  const one = working();
  const { store } = await hearing();
  const first = request();
  const lease = await leaseOf(one, first);
  expect(await store.reserve(again(first, { waits: true, fingerprint: "v1:another" }))).toEqual({
    kind: "mismatch",
  });
  expect(await isWatched(database, lease)).toBe(false);
  await one.settle(lease, complete);
  expect(await store.reserve(again(first, { waits: true }))).toMatchObject({ kind: "replay" });
  expect(await isWatched(database, lease)).toBe(false);
});

it("a record that somebody is just writing is not waited for, and not promised", async () => {
  const one = working();
  const { store } = await hearing();
  const requests = [request(), request()];
  const held = await Promise.all(requests.map((each) => leaseOf(one, each)));
  const writer = await database.pool().connect();
  try {
    await writer.query("BEGIN");
    await writer.query("SELECT 1 FROM latchkey_records WHERE key = $1 FOR UPDATE", [held[0]?.key]);
    const answers: Reservation[] = await Promise.all(
      requests.map((each) => store.reserve(again(each, { waits: true }))),
    );
    expect(answers).toEqual([inFlight(false), inFlight(true)]);
  } finally {
    await writer.query("ROLLBACK");
    writer.release();
  }
});

it("it does not wait for the disk, unless something else was written beside it", async () => {
  const pool = database.pool({ max: 1 });
  const lease = await leaseOf(postgresStore(pool), request());
  const waitsForDisk = async (before: string) => {
    await pool.query("BEGIN");
    await pool.query(before);
    const told = await pool.query("SELECT latchkey_tell_of($1, $2) AS told", [lease.scope, lease.key]);
    expect(told.rows).toEqual([{ told: true }]);
    const { rows } = await pool.query("SHOW synchronous_commit");
    await pool.query("COMMIT");
    return rows[0].synchronous_commit;
  };
  expect(await waitsForDisk("SELECT 1")).toBe("off");
  expect(await waitsForDisk("CREATE TABLE written AS SELECT 1")).toBe("on");
  expect((await pool.query("SHOW synchronous_commit")).rows).toEqual([{ synchronous_commit: "on" }]);
});

it("the record is found by its key, however many there are", async () => {
  const { store, plansOf, query, end } = await explained(database.url);
  await query("TRUNCATE latchkey_records", []);
  const lease = await leaseOf(store, request());
  // A table of one row is read faster as a whole, and what is found out about it now is kept.
  await query("ANALYZE latchkey_records", []);
  const tell = () => query("SELECT latchkey_tell_of($1, $2)", [lease.scope, lease.key]);
  await tell();
  await query(manyRecords, []);
  await query("UPDATE latchkey_records SET watched = false WHERE key = $1", [lease.key]);
  const plans = await plansOf(tell);
  expect(plans.match(/Index Scan using latchkey_records_pkey/g)).toHaveLength(2);
  expect(plans).not.toContain("Seq Scan");
  await end();
});

it("a waiting duplicate in another process asks twice: what there is, and what has come of it", async () => {
  const { store, texts } = await hearing();
  const [first, second] = [working(), store].map((each) =>
    createLatchkey({ store: each, tenant: "single", onInFlight: "wait" }),
  );
  const operation = { tenant: "single", key: "awaited elsewhere", input: {} };
  let begin = () => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  let end = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const executed = first?.run(operation, async () => {
    begin();
    await ended;
    return "done";
  });
  await begun;
  const waiting = second?.run(operation, () => Promise.reject(new Error("executed twice")));
  await eventually(() => isWatchedByAnybody());
  end();
  expect(await executed).toBe("done");
  expect(await waiting).toBe("done");
  expect(texts).toHaveLength(2);
  await first?.close();
  await second?.close();

  async function isWatchedByAnybody(): Promise<boolean> {
    const rows = await database.query("SELECT 1 FROM latchkey_records WHERE key = $1 AND watched", [
      operation.key,
    ]);
    return rows.length === 1;
  }
});
