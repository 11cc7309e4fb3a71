import { describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import { mysqlStore } from "../../src/stores/mysql/store.ts";
import { again, leaseOf, request, useMysql } from "./mysql-support.ts";

const files = useMysql();

/** Pairs that some collation, or some way of writing two texts one after the other, takes for the same. */
const pairs: Readonly<Record<string, readonly [string, string]>> = {
  "a trailing space": ["key", "key "],
  "a capital letter": ["key", "Key"],
  "an accent": ["cafe", "café"],
  "two ways to write an accent": ["caf\u00e9", "cafe\u0301"],
  "a NUL at the end": ["key", "key\0"],
  "a NUL within": ["a\0b", "a\0c"],
  "an emoji": ["pay 🙂", "pay 🙃"],
  "what is not in latin1": ["☃", "☂"],
  "a sharp s": ["strasse", "straße"],
  "a backslash and a quote": ["a\\'", "a'"],
  "the last of 255 characters": ["k".repeat(255), `${"k".repeat(254)}l`],
  "the last of 255 emojis": ["🙂".repeat(255), `${"🙂".repeat(254)}🙃`],
};

describe.each([["utf8mb4"], ["latin1"]])("over a connection in %s", (charset) => {
  it.each(Object.entries(pairs))("two keys that differ by %s are two records", async (_, [one, other]) => {
    const store = mysqlStore(files.pool({ charset }));
    const { scope } = request({ scope: `${charset} ${one} ${other}` });
    const first = request({ scope, key: one });
    const second = request({ scope, key: other });
    await leaseOf(store, first);
    await leaseOf(store, second);
    expect((await store.reserve(again(first))).kind).toBe("inFlight");
    expect((await store.read(first)).record).toMatchObject({ scope, key: one, owner: first.owner });
  });

  it.each(Object.entries(pairs))("so are two scopes that differ by %s", async (_, [one, other]) => {
    const store = mysqlStore(files.pool({ charset }));
    const key = `${charset} ${one} ${other}`;
    await leaseOf(store, request({ scope: one, key }));
    await leaseOf(store, request({ scope: other, key }));
  });
});

it("what workers are handed has the text that it was written with, whatever the connection's character set", async () => {
  const latin = mysqlStore(files.pool({ charset: "latin1" }));
  const texts = { scope: "ten\\ant ☃", key: `'key" 🙂` };
  const reason = "не знаю 🤷";
  await latin.settle(await leaseOf(latin, request(texts)), { kind: "suspend", reason, reconcileAfterMs: 0 });
  const [unknown] = await mysqlStore(files.pool()).claimUnknown({
    limit: 10,
    backoff: { baseMs: 60_000, capMs: 60_000 },
  });
  expect(unknown).toMatchObject({ ...texts, reason });
  expect(await latin.audit({ ...texts, limit: 1 })).toMatchObject([{ ...texts, reason }]);
});

it("no scope and key can be taken for another pair, and a scope may be of any length", async () => {
  const store = mysqlStore(files.pool());
  const long = "s".repeat(20_000);
  for (const id of [
    { scope: "ab", key: "c" },
    { scope: "a", key: "bc" },
    { scope: "1:c", key: "ab" },
    { scope: long, key: "c" },
    { scope: `${long}s`, key: "c" },
  ]) {
    expect((await store.reserve(request(id))).kind, JSON.stringify(id).slice(0, 40)).toBe("execute");
  }
});

it("half of a surrogate pair has no bytes of its own, and is refused", async () => {
  const store = mysqlStore(files.pool());
  await expect(store.reserve(request({ key: "half \ud83d" }))).rejects.toThrow(StoreError);
  await expect(store.reserve(request({ scope: "half \ude42" }))).rejects.toThrow(StoreError);
});
