import { beforeAll, describe, expect, it } from "vitest";
import type { Note } from "../../src/core/notes.ts";
import type { NewMessage } from "../../src/core/outbox.ts";
import type { Store } from "../../src/core/store.ts";
import { type MysqlConnection, mysqlStore } from "../../src/stores/mysql/store.ts";
import { leaseOf, request, stagedPool, useMysql } from "./mysql-support.ts";

const files = useMysql();
const release = { kind: "release", reason: "to be tried again", retentionMs: 60_000 } as const;
let store: Store<MysqlConnection>;

beforeAll(() => {
  store = mysqlStore(files.pool());
});

describe("a note", () => {
  it("may be any text, whatever the session's character set is", async () => {
    const pool = files.pool({ charset: "LATIN1_SWEDISH_CI" });
    const { notes } = mysqlStore(pool);
    const values = ["", "\u0000", "a\u0000b", "\uFEFFmark", "ünï 🙂 \u{10FFFF}", "\r\n'\"\\"];
    const writes = values.map((value, index) => ({
      name: `text-${index}`,
      expected: undefined,
      note: { value, version: `v ${value}` },
    }));
    await notes.write(writes);
    const read = await notes.read(writes.map(({ name }) => name));
    expect(read.notes).toEqual(writes.map(({ note }) => note));
  });

  it("is told from others by each byte of its name", async () => {
    const names = ["name", "Name", "NAME", "name.", "name%"];
    const { answers } = await store.notes.write(names.map((name) => fresh(name)));
    expect(answers).toEqual(names.map(() => ({ kind: "written" })));
    const { notes } = await store.notes.read(names);
    expect(notes.map((note) => note?.value)).toEqual(names);
  });

  it("is answered for in its place, however many there are and in whatever order", async () => {
    const names = Array.from({ length: 300 }, (_, index) => `many-${(index * 7) % 300}`);
    await store.notes.write([fresh("many-5")]);
    const { answers } = await store.notes.write(names.map((name) => fresh(name, "second")));
    for (const [index, name] of names.entries()) {
      expect(answers[index]?.kind).toBe(name === "many-5" ? "conflict" : "written");
    }
    const { notes } = await store.notes.read(names);
    for (const [index, name] of names.entries()) expect(notes[index]?.value).toBe(name);
  });

  it("leaves nothing behind where it was not written, or was removed", async () => {
    await store.notes.write([{ ...fresh("never"), expected: "v-0" }]);
    await store.notes.write([fresh("once")]);
    await store.notes.write([{ name: "once", expected: "first", note: undefined }]);
    expect(await files.query("SELECT name FROM latchkey_notes WHERE name IN ('never', 'once')")).toEqual([]);
  });

  it("counts what eight processes add at once, to several in any order, and loses nothing", async () => {
    const names = ["a", "b", "c", "d", "e"].map((name) => `counter-${name}`);
    const rounds = 15;
    const add = async ({ notes }: Store, process: number) => {
      let added = 0;
      for (let round = 0; round < rounds; round += 1) {
        // Each its own way around, in which nobody may stand in another's way for good.
        const own = names.toSorted(() => Math.random() - 0.5);
        const before = await notes.read(own);
        const writes = own.map((name, index) => ({
          name,
          expected: before.notes[index]?.version,
          note: next(before.notes[index], `${process}-${round}-${name}`),
        }));
        const { answers } = await notes.write(writes);
        added += answers.filter(({ kind }) => kind === "written").length;
      }
      return added;
    };
    const processes = Array.from({ length: 8 }, (_, index) => {
      const pool = files.pool({ connectionLimit: 2 });
      // MariaDB then fails what locks a row that has changed since the transaction first read.
      const setting = `SET innodb_snapshot_isolation = ${index % 2}`;
      pool.pool.on("connection", (connection) => connection.query(setting));
      return mysqlStore(pool);
    });
    const added = await Promise.all(processes.map(add));
    const { notes } = await store.notes.read(names);
    const counted = notes.reduce((sum, note) => sum + Number(note?.value), 0);
    expect(counted).toBe(added.reduce((sum, each) => sum + each, 0));
    expect(counted).toBeGreaterThanOrEqual(names.length * rounds);
  });

  it("costs few round trips, however many are written together", async () => {
    let sent = 0;
    const { notes } = mysqlStore(
      stagedPool(files.pool(), (_, send) => {
        sent += 1;
        return send();
      }),
    );
    await notes.write(Array.from({ length: 100 }, (_, index) => fresh(`together-${index}`)));
    // The transaction, its locks, what is there, what is written, and its end.
    expect(sent).toBe(5);
  });

  it.each(["soft", "delete"] as const)("is removed by a reaper (%s) after its time only", async (expiry) => {
    for (let nth = 0; nth < 5; nth += 1)
      await store.notes.write([{ ...fresh(`${expiry}-${nth}`), ttlMs: 0 }]);
    await store.notes.write([{ ...fresh(`${expiry}-long`), ttlMs: 60_000 }, fresh(`${expiry}-kept`)]);
    const left: number[] = [];
    for (let round = 0; round < 3; round += 1) {
      await store.reap({ limit: 3, expiry });
      left.push(
        (await files.query("SELECT name FROM latchkey_notes WHERE name LIKE ?", [`${expiry}-%`])).length,
      );
    }
    expect(left).toEqual([4, 2, 2]);
  });

  it("stays if it is written anew between being found and being removed", async () => {
    await store.notes.write([{ ...fresh("anew"), ttlMs: 0 }]);
    let isAnew = false;
    const late = mysqlStore(
      stagedPool(files.pool(), async (sql, send) => {
        if (!isAnew && sql.includes("DELETE n")) {
          isAnew = true;
          await store.notes.write([fresh("anew", "second")]);
        }
        return send();
      }),
    );
    await late.reap({ limit: 1_000, expiry: "delete" });
    expect(isAnew).toBe(true);
    expect((await store.notes.read(["anew"])).notes[0]?.version).toBe("second");
  });
});

describe("a tenant", () => {
  it("is told from others whose names begin as its own, however long they are", async () => {
    const [one, other] = ["1", "2"].map((end) => `${"t".repeat(200)}${end}`) as [string, string];
    const scopes = [one, `${one} POST /rides`, other, `${other} POST /rides`, `${one}x`, `${one}\u0000`];
    for (const scope of scopes) await store.settle(await leaseOf(store, request({ scope })), release);
    // Each record has an audit entry.
    expect(await store.forgetTenant({ tenantScope: one, limit: 100 })).toEqual({ removed: 4, unsettled: 0 });
    expect(await store.forgetTenant({ tenantScope: one, limit: 100 })).toEqual({ removed: 0, unsettled: 0 });
    expect(await store.forgetTenant({ tenantScope: other, limit: 100 })).toEqual({
      removed: 4,
      unsettled: 0,
    });
  });

  it("is forgotten in parts that are no larger than was asked for, of records, messages and audit together", async () => {
    const scope = "in-parts";
    for (let nth = 0; nth < 4; nth += 1)
      await store.settle(await leaseOf(store, request({ scope })), release);
    await bury(Array.from({ length: 3 }, (_, index) => message(`${scope} POST /rides`, index)));
    const rounds: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      rounds.push((await store.forgetTenant({ tenantScope: scope, limit: 3 })).removed);
    }
    expect(rounds).toEqual([3, 3, 3, 2, 0]);
  });

  it("is forgotten to the last record while others remove some of them at the same time", async () => {
    const scope = "contended";
    for (let nth = 0; nth < 60; nth += 1) {
      await store.settle(await leaseOf(store, request({ scope })), release);
    }
    const forget = async () => {
      let total = 0;
      for (;;) {
        const { removed, unsettled } = await store.forgetTenant({ tenantScope: scope, limit: 7 });
        expect(unsettled).toBe(0);
        if (removed === 0) return total;
        total += removed;
      }
    };
    const totals = await Promise.all([forget(), forget(), forget()]);
    expect(totals.reduce((sum, total) => sum + total, 0)).toBe(120);
  });

  it("keeps a record that is used anew between being found and being removed", async () => {
    const wanted = request({ scope: "used-anew" });
    await store.settle(await leaseOf(store, wanted), release);
    let isUsed = false;
    const late = mysqlStore(
      stagedPool(files.pool(), async (sql, send) => {
        if (!isUsed && sql.includes("DELETE r")) {
          isUsed = true;
          await leaseOf(store, wanted);
        }
        return send();
      }),
    );
    // The audit entries of the release and of the retry.
    expect(await late.forgetTenant({ tenantScope: "used-anew", limit: 10 })).toMatchObject({ removed: 2 });
    expect(isUsed).toBe(true);
    expect((await store.read(wanted)).record?.state).toBe("in_progress");
    expect(await late.forgetTenant({ tenantScope: "used-anew", limit: 10 })).toEqual({
      removed: 0,
      unsettled: 1,
    });
  });
});

function fresh(name: string, version = "first") {
  return { name, expected: undefined, note: { value: name, version } };
}

function next(before: Note | undefined, version: string): Note {
  return { value: String(Number(before?.value ?? 0) + 1), version };
}

function message(scope: string, index: number): NewMessage {
  const key = `${scope} ${index}`;
  return {
    topic: "rides",
    payload: "{}",
    partition: null,
    key,
    correlationId: key,
    scope,
    traceparent: null,
    delayMs: 0,
  };
}

/** Enqueues messages that nobody can deliver. */
async function bury(messages: readonly NewMessage[]): Promise<void> {
  const { outbox, transact } = store;
  if (outbox === undefined || transact === undefined) expect.fail("there are transactions");
  await transact.call(
    store,
    await leaseOf(store, request()),
    () => undefined,
    () => ({ progress: [], onCrash: "retry", messages }),
  );
  const claimed = await outbox.claim({ owner: "relay", limit: 100, leaseMs: 60_000 });
  await outbox.settle(
    "relay",
    claimed.map(({ id }) => ({ kind: "dead", id, error: "refused" })),
  );
}
