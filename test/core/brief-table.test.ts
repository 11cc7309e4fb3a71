import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { type BriefEntry, BriefTable } from "../../src/core/brief-table.ts";
import { leftBehind } from "../support/garbage.ts";

interface Entry extends BriefEntry<Entry> {}

function entry(key: string, scope = "acme"): Entry {
  return { scope, key, hash: 0, nextInBucket: undefined };
}

describe("BriefTable", () => {
  it("finds entries by scope and key until they are deleted", () => {
    const table = new BriefTable<Entry>();
    const [first, second, other] = [entry("a"), entry("b"), entry("a", "globex")];
    for (const each of [first, second, other]) table.add(each);
    const found = () =>
      [
        { scope: "acme", key: "a" },
        { scope: "acme", key: "b" },
        { scope: "globex", key: "a" },
        { scope: "globex", key: "b" },
      ].map((id) => table.get(id));
    expect(found()).toEqual([first, second, other, undefined]);
    table.delete(first);
    expect(found()).toEqual([undefined, second, other, undefined]);
    expect(table.size).toBe(2);
  });

  it("does not take a scope and a key for another pair of the same letters", () => {
    const table = new BriefTable<Entry>();
    table.add(entry("bc", "a"));
    expect(table.get({ scope: "ab", key: "c" })).toBeUndefined();
  });

  it("finds an entry whose scope is empty after others were looked for", () => {
    const table = new BriefTable<Entry>();
    const first = entry("a", "");
    table.add(first);
    expect(table.get({ scope: "acme", key: "a" })).toBeUndefined();
    expect(table.get({ scope: "", key: "a" })).toBe(first);
  });

  it("deletes by identity: the name may be another request's by now", () => {
    const table = new BriefTable<Entry>();
    const [first, second] = [entry("a"), entry("a")];
    table.add(first);
    table.delete(first);
    table.add(second);
    table.delete(first);
    table.delete(entry("never added"));
    expect(table.get({ scope: "acme", key: "a" })).toBe(second);
    expect(table.size).toBe(1);
  });

  it("finds each when there are many, and after many have gone", () => {
    const table = new BriefTable<Entry>();
    const all = Array.from({ length: 20_000 }, (_, index) => entry(`key-${index}`, `tenant-${index % 7}`));
    for (const each of all) table.add(each);
    expect(all.every((each) => table.get(each) === each)).toBe(true);
    for (const [index, each] of all.entries()) if (index % 3 !== 0) table.delete(each);
    expect(all.every((each, index) => table.get(each) === (index % 3 === 0 ? each : undefined))).toBe(true);
    expect(table.size).toBe(6_667);
  });

  it("leaves nothing behind that only a full collection of garbage would find", () => {
    // One of these may be disturbed by a full collection, which would make it look good. A plain Map keeps 8 MB.
    expect(Math.max(...[1, 2, 3].map(() => leftBehind(passing(new BriefTable<Entry>()))))).toBeLessThan(
      1_000_000,
    );
  });

  // The last one, since it leaves much behind.
  it.each([
    ["keys", () => entry(randomUUID())],
    ["scopes", () => entry("key", randomUUID())],
  ])("tells %s apart whose hashes are equal", (_what, make) => {
    const table = new BriefTable<Entry>();
    // A hash has 32 bits: of so many, about twenty pairs have the same one. Names that only count up have none at all with some
    // of the numbers that hashes begin with.
    const all = Array.from({ length: 400_000 }, make);
    for (const each of all) table.add(each);
    const byHash = new Map<number, Entry[]>();
    for (const each of all) byHash.set(each.hash, [...(byHash.get(each.hash) ?? []), each]);
    const alike = [...byHash.values()].filter(({ length }) => length > 1);
    expect(alike.length).toBeGreaterThan(0);
    for (const each of alike.flat()) expect(table.get(each)).toBe(each);
    for (const [gone, left] of alike) {
      if (gone === undefined || left === undefined) throw new Error("two were asked for");
      table.delete(gone);
      expect(table.get(gone)).toBeUndefined();
      expect(table.get(left)).toBe(left);
      expect(gone.nextInBucket).toBeUndefined();
    }
  });
});

/** Brings and takes away entries with keys of 1 KB. */
function passing(table: BriefTable<Entry>): (index: number) => void {
  const underWay: Entry[] = [];
  return (index) => {
    const next = entry(`${"k".repeat(1_000)}${index}`);
    table.add(next);
    underWay.push(next);
    if (underWay.length > 64) table.delete(underWay.shift() as Entry);
  };
}
