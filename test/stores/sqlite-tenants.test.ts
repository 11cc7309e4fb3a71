import Database from "libsql";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Store } from "../../src/core/store.ts";
import { deleteForgotten } from "../../src/stores/sqlite/notes.ts";
import { type SqliteDatabase, sqliteStore } from "../../src/stores/sqlite/store.ts";
import * as statements from "../../src/stores/sqlite/tenants.ts";
import { manualClock } from "../../src/testing/index.ts";
import {
  claimAll,
  kept,
  lease,
  message,
  outboxOf,
  planOf,
  release,
  request,
  suspend,
  transact,
  useFolder,
} from "./sqlite-support.ts";

const place = useFolder();
const clock = manualClock();
let database: Database.Database;
let store: Store<SqliteDatabase>;

beforeEach(() => {
  database = new Database(place.path);
  store = sqliteStore(database, { synchronous: "normal", clock: clock.now });
});

afterEach(async () => {
  await store.close();
  database.close();
});

describe("a note", () => {
  it("may be any text", async () => {
    const values = ["", "\u0000", "a\u0000b", "\uFEFFmark", "ünï 🙂 \u{10FFFF}", "\r\n'\"\\"];
    const writes = values.map((value, index) => ({
      name: `text-${index}`,
      expected: undefined,
      note: { value, version: "v" },
    }));
    await store.notes.write(writes);
    const { notes } = await store.notes.read(writes.map(({ name }) => name));
    expect(notes.map((note) => note?.value)).toEqual(values);
  });

  it("is told from others by each byte of its name", async () => {
    const names = ["name", "Name", "NAME", "name.", "name%"];
    const { answers } = await store.notes.write(
      names.map((name) => ({ name, expected: undefined, note: { value: name, version: "v" } })),
    );
    expect(answers).toEqual(names.map(() => ({ kind: "written" })));
    const { notes } = await store.notes.read(names);
    expect(notes.map((note) => note?.value)).toEqual(names);
  });

  it("is changed by one of two processes, and is there after the file was closed", async () => {
    const other = sqliteStore(place.path, { synchronous: "normal", clock: clock.now });
    for (let round = 0; round < 20; round += 1) {
      const name = `shared-${round}`;
      const answers = await Promise.all(
        [store, other].map(async ({ notes }, index) => {
          const note = { value: "x", version: `${index}` };
          return (await notes.write([{ name, expected: undefined, note }])).answers[0];
        }),
      );
      expect(answers.map((answer) => answer?.kind).sort()).toEqual(["conflict", "written"]);
    }
    await other.close();
    const reopened = sqliteStore(place.path, { clock: clock.now });
    expect((await reopened.notes.read(["shared-0"])).notes[0]?.value).toBe("x");
    await reopened.close();
  });

  it.each(["soft", "delete"] as const)(
    "is removed by a reaper (%s) after its time, a limited number at once, and never before",
    async (expiry) => {
      const write = (name: string, ttlMs?: number) =>
        store.notes.write([{ name, expected: undefined, note: { value: "x", version: "v" }, ttlMs }]);
      for (let nth = 0; nth < 5; nth += 1) await write(`short-${nth}`, 1_000);
      await write("long", 60_000);
      await write("kept");
      await clock.advance(1_000);
      const left: number[] = [];
      for (let round = 0; round < 3; round += 1) {
        expect(await store.reap({ limit: 3, expiry })).toEqual({ deleted: 0, expired: 0 });
        left.push(count("latchkey_notes"));
      }
      expect(left).toEqual([4, 2, 2]);
      expect((await store.notes.read(["long", "kept"])).notes).not.toContain(undefined);
    },
  );
});

describe("a tenant", () => {
  it("is found by indexes, however much there is of others", () => {
    for (const [sql, index] of [
      [statements.forgetRecords, "sqlite_autoindex_latchkey_records_1"],
      [statements.forgetMessages, "latchkey_outbox_done"],
      [statements.forgetAudit, "latchkey_audit_record"],
      [statements.countUnsettled, "sqlite_autoindex_latchkey_records_1"],
    ] as const) {
      const plan = planOf(database, sql);
      expect(plan).toContain(`${index} (scope>? AND scope<?)`);
      if (sql !== statements.countUnsettled) expect(plan).not.toContain("SCAN");
    }
    expect(planOf(database, deleteForgotten)).toContain("latchkey_notes_forget (forget_at<?)");
  });

  it("is told from others whose names begin as its own", async () => {
    for (const scope of ["acme", "acme POST /rides", "acme\t", "acme!", "acmE", "acme.x", "acm"]) {
      await store.settle(await lease(store, request({ scope })), release);
    }
    // Two records, each with an audit entry.
    expect((await store.forgetTenant({ tenantScope: "acme", limit: 100 })).removed).toBe(4);
  });

  it("is forgotten with the bodies that were kept of its requests", async () => {
    const scope = "acme POST /rides";
    await store.settle(await lease(store, request({ scope, request: kept })), release);
    expect(count("latchkey_request_bodies")).toBe(1);
    expect(await store.forgetTenant({ tenantScope: "acme", limit: 10 })).toEqual({
      removed: 2, // With its audit entry.
      unsettled: 0,
    });
    expect(count("latchkey_request_bodies")).toBe(0);
  });

  it("is forgotten in parts that are no larger than was asked for, of records, messages and audit together", async () => {
    const scope = "acme";
    for (let nth = 0; nth < 4; nth += 1) await store.settle(await lease(store, request({ scope })), release);
    const messages = Array.from({ length: 3 }, () => message({ scope: "acme POST /rides" }));
    await transact(store, await lease(store, request()), undefined, { messages });
    const claimed = await outboxOf(store).claim({ owner: "relay", limit: 10, leaseMs: 60_000 });
    await outboxOf(store).settle(
      "relay",
      claimed.map(({ id }) => ({ kind: "dead", id, error: "refused" })),
    );
    const rounds: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      rounds.push((await store.forgetTenant({ tenantScope: scope, limit: 3 })).removed);
    }
    expect(rounds).toEqual([3, 3, 3, 2, 0]);
  });
});

describe("unknown outcomes", () => {
  it("are counted without reading a record", () => {
    const plan = planOf(database, statements.countUnknown);
    expect(plan).toBe("SCAN latchkey_records USING COVERING INDEX latchkey_records_reconcile");
  });

  it("are claimed past those that wait for an operator", async () => {
    const [escalated, open] = [request(), request()];
    const held = await lease(store, escalated);
    await store.settle(held, { ...suspend, reconcileAfterMs: 0 });
    await store.resolve(escalated, held.fence, { kind: "escalate", reason: "nobody knows" }, "test");
    await store.settle(await lease(store, open), { ...suspend, reconcileAfterMs: 0 });
    expect((await store.claimUnknown(claimAll)).map(({ key }) => key)).toEqual([open.key]);
    await clock.advance(500);
    expect(await store.unknownCounts()).toEqual({ waiting: 1, escalated: 1, oldestMs: 500 });
  });
});

function count(table: string): number {
  const row = database.prepare(`SELECT count(*) AS count FROM ${table}`).get() as { count: number };
  return row.count;
}
