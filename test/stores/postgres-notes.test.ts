import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { Notes, NoteWrite } from "../../src/core/notes.ts";
import type { Store } from "../../src/core/store.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { eventually, isTrial, useDatabase } from "./postgres-support.ts";

const database = useDatabase();

/** A process of its own. */
const opened = (): Notes => postgresStore(database.pool()).notes;

const first = (name: string, value = "1", version = "v-1"): NoteWrite => ({
  name,
  expected: undefined,
  note: { value, version },
});

it("every string is kept as it is, also what text in Postgres cannot hold", async () => {
  const notes = opened();
  const values = ["", "\u0000", "a\u0000b", "\ud800", "\udc00\ud800", "🙂", '\\"{}', "\\u0000", "null"];
  const writes = values.map((value, nth) => first(`string-${nth}`, value));
  expect((await notes.write(writes)).answers).toEqual(values.map(() => ({ kind: "written" })));
  const read = await notes.read(writes.map(({ name }) => name));
  expect(read.notes.map((note) => note?.value)).toEqual(values);
});

it("a batch is read in one statement, and written in one", async () => {
  const sent: string[] = [];
  const pool = database.pool();
  const { notes } = postgresStore({
    query(statement: unknown, values?: unknown[]) {
      const text = typeof statement === "string" ? statement : (statement as { text: string }).text;
      if (!isTrial(text)) sent.push(text);
      return pool.query(statement as string, values);
    },
    connect: () => pool.connect(),
    on: () => {},
  } as unknown as typeof pool);
  const names = Array.from({ length: 50 }, (_, nth) => `one-statement-${nth}`);
  await notes.write(names.map((name) => first(name)));
  // All of these conflict, and what is there is told by the same statement.
  const { answers } = await notes.write(names.map((name) => first(name, "2", "v-2")));
  expect(new Set(answers.map(({ kind }) => kind))).toEqual(new Set(["conflict"]));
  await notes.read(names);
  expect(sent).toHaveLength(3);
});

it("processes that write overlapping notes in any order never wait for each other, and one wins each", async () => {
  const names = Array.from({ length: 12 }, (_, nth) => `overlap-${nth}`);
  const processes = Array.from({ length: 6 }, opened);
  const expected = new Map<string, string | undefined>();
  for (let round = 0; round < 30; round += 1) {
    const wins = new Map<string, string[]>();
    await Promise.all(
      processes.map(async (notes, nth) => {
        const order = nth % 2 === 0 ? names : [...names].reverse();
        const writes = order.map((name) => {
          // Some are removed, so that what is there and what is made anew meet as well.
          const note = (round + nth) % 3 === 0 ? undefined : { value: "", version: randomUUID() };
          return { name, expected: expected.get(name), note } satisfies NoteWrite;
        });
        const { answers } = await notes.write(writes);
        for (const [index, { name, note }] of writes.entries()) {
          // To remove what is not there changes nothing, so any number may.
          const isChange = note !== undefined || expected.get(name) !== undefined;
          if (answers[index]?.kind !== "written" || !isChange) continue;
          wins.set(name, [...(wins.get(name) ?? []), note?.version ?? ""]);
        }
      }),
    );
    const { notes: left } = await (processes[0] as Notes).read(names);
    for (const [index, name] of names.entries()) {
      expect(wins.get(name)?.length).toBe(1);
      expect(left[index]?.version ?? "").toBe(wins.get(name)?.[0]);
      expected.set(name, left[index]?.version);
    }
  }
});

describe("somebody else who writes at this very moment", () => {
  it.each([
    [
      "changes it",
      "INSERT INTO latchkey_notes VALUES ($1, '\"1\"', 'v-1')",
      "UPDATE latchkey_notes SET value = $2, version = $3 WHERE name = $1",
    ],
    ["makes it", "SELECT $1::text", "INSERT INTO latchkey_notes VALUES ($1, $2, $3)"],
  ])("%s: the answer says what is there by now", async (how, before, meanwhile) => {
    const name = `moment-${how}`;
    await database.query(before, [name]);
    const notes = opened();
    const { notes: found } = await notes.read([name]);
    const other = await database.pool().connect();
    await other.query("BEGIN");
    await other.query(meanwhile, [name, '"theirs"', "v-theirs"]);
    const writing = notes.write([
      { name, expected: found[0]?.version, note: { value: "ours", version: "v-ours" } },
    ]);
    await eventually(waitsForLock);
    await other.query("COMMIT");
    other.release();
    expect((await writing).answers).toEqual([
      { kind: "conflict", note: { value: "theirs", version: "v-theirs" } },
    ]);
  });

  it("removes it: what was expected to be missing is missing, and is made", async () => {
    const name = "moment-removed";
    const notes = opened();
    await notes.write([first(name)]);
    const other = await database.pool().connect();
    await other.query("BEGIN");
    await other.query("DELETE FROM latchkey_notes WHERE name = $1", [name]);
    const writing = notes.write([first(name, "2", "v-2")]);
    await eventually(waitsForLock);
    await other.query("COMMIT");
    other.release();
    expect((await writing).answers).toEqual([{ kind: "written" }]);
  });

  it("goes through the notes by name: a batch that waits for one holds none that comes after it", async () => {
    const notes = opened();
    const names = ["order-1", "order-2"];
    await notes.write(names.map((name) => first(name)));
    const other = await database.pool().connect();
    const take = (name: string) =>
      other.query("UPDATE latchkey_notes SET version = 'v-theirs' WHERE name = $1", [name]);
    await other.query("BEGIN");
    await take("order-1");
    const writing = notes.write(
      [...names].reverse().map((name) => ({ name, expected: "v-1", note: { value: "", version: "v-2" } })),
    );
    await eventually(waitsForLock);
    await take("order-2");
    await other.query("COMMIT");
    other.release();
    expect((await writing).answers.map(({ kind }) => kind)).toEqual(["conflict", "conflict"]);
  });

  async function waitsForLock(): Promise<boolean> {
    const rows = await database.query(
      "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return rows.length > 0;
  }
});

describe("the reaper", () => {
  const left = async () =>
    (
      await database.query<{ name: string }>(
        "SELECT name FROM latchkey_notes WHERE name LIKE 'reaped-%' ORDER BY name",
      )
    ).map(({ name }) => name);

  async function written(notes: Notes): Promise<void> {
    await database.query("DELETE FROM latchkey_notes");
    await notes.write([
      { ...first("reaped-0"), ttlMs: 1 },
      { ...first("reaped-1"), ttlMs: 60_000 },
      first("reaped-2"),
      { ...first("reaped-3"), ttlMs: 1 },
      { ...first("reaped-4"), ttlMs: 1 },
    ]);
    await eventually(async () => (await notes.read(["reaped-0", "reaped-3"])).notes.every((note) => !note));
  }

  it.each<[string, (store: Store) => unknown]>([
    ["deletes", (store) => store.reap({ limit: 2, expiry: "delete" })],
    ["keeps records for audit", (store) => store.reap({ limit: 2, expiry: "soft" })],
  ])(
    "that %s removes notes whose time is over, a bounded number at a time, and no others",
    async (_, reap) => {
      const store = postgresStore(database.pool());
      await written(store.notes);
      await reap(store);
      expect(await left()).toEqual(["reaped-1", "reaped-2", "reaped-3", "reaped-4"]);
      await reap(store);
      expect(await left()).toEqual(["reaped-1", "reaped-2", "reaped-4"]);
      await reap(store);
      expect(await left()).toEqual(["reaped-1", "reaped-2"]);
      // It begins again at the beginning.
      await store.notes.write([{ ...first("reaped-0"), ttlMs: 1 }]);
      await eventually(async () => (await store.notes.read(["reaped-0"])).notes[0] === undefined);
      await reap(store);
      expect(await left()).toEqual(["reaped-1", "reaped-2"]);
    },
  );

  it("passes by what is written anew at this moment", async () => {
    const store = postgresStore(database.pool());
    await written(store.notes);
    const other = await database.pool().connect();
    await other.query("BEGIN");
    await other.query("UPDATE latchkey_notes SET expires_at = NULL WHERE name = 'reaped-3'");
    await store.reap({ limit: 10, expiry: "delete" });
    await other.query("COMMIT");
    other.release();
    expect(await left()).toEqual(["reaped-1", "reaped-2", "reaped-3"]);
  });
});

it("engines in plain statements keep every string too, and remove what is over", async () => {
  const pool = database.pool();
  await migrate(pool, { engine: "distributed" });
  const store = postgresStore(pool, { engine: "distributed" });
  await store.notes.write([first("kept", "a\u0000b\ud800"), { ...first("over"), ttlMs: 1 }]);
  await eventually(async () => (await store.notes.read(["over"])).notes[0] === undefined);
  await store.reap({ limit: 10, expiry: "delete" });
  expect(await database.query("SELECT name, value FROM latchkey_dist_notes")).toEqual([
    { name: "kept", value: JSON.stringify("a\u0000b\ud800") },
  ]);
  expect((await store.notes.read(["kept"])).notes[0]?.value).toBe("a\u0000b\ud800");
});
