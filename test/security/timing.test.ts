import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { idempotent, statusResource } from "../../src/adapters/fetch.ts";
import { sameToken } from "../../src/http/token.ts";
import { createLatchkey, type Store } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { separation, separationOf, spin, type Timed } from "./timing.ts";

/*
 * Whether an attacker can tell by the time that an answer takes that another tenant, or another session, has used a
 * key. Both kinds of questions are asked in one random order. Without a difference the separation of this many answers
 * is within 0.12 of zero in 999 of 1,000 rounds; a leak is there in each of three rounds, and noise is not. Paying is
 * measured in memory only: elsewhere the disk takes its time, whatever the key.
 */
const keys = 1_000;
const rounds = 3;
const unnoticed = 0.12;

const stores = {
  memory: () => memoryStore(),
  SQLite: (folder: string) => sqliteStore(join(folder, "latchkey.db"), { synchronous: "normal" }) as Store,
};

const keyOf = (round: number, nth: number) =>
  `${String(round).padStart(4, "0")}-${String(nth).padStart(12, "0")}`;
const isPresent = (nth: number) => nth % 2 === 0;

/** A service in which the victim has used every second key. */
async function prepare(open: (folder: string) => Store, options: { readonly leakUs?: number } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-timing-"));
  const store = open(folder);
  const { leakUs } = options;
  if (leakUs !== undefined) leak(store, leakUs);
  const latchkey = createLatchkey({
    store,
    tenant: (request) => request.header("x-tenant"),
    statusPath: "/status",
  });
  const binding = (request: Request) => request.headers.get("x-session") ?? undefined;
  const protect = idempotent(latchkey, { binding })(async () => Response.json({ paid: true }));
  const status = statusResource(latchkey, { binding });
  const headers = (as: { tenant: string; session: string }, key: string) => ({
    "x-tenant": as.tenant,
    "x-session": as.session,
    "idempotency-key": key,
    "content-type": "application/json",
  });
  const service = {
    pay: (as: { tenant: string; session: string }, key: string) =>
      protect(
        new Request("http://x/pay", { method: "POST", headers: headers(as, key), body: '{"amount":10}' }),
      ),
    ask: (as: { tenant: string; session: string }, key: string) =>
      status(new Request(`http://x/status/${key}`, { headers: headers(as, key) })),
    async fill(round: number) {
      const used = Array.from({ length: keys }, (_, nth) => nth).filter(isPresent);
      await Promise.all(used.map((nth) => service.pay(victim, keyOf(round, nth))));
    },
    async close() {
      await latchkey.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return service;
}

const victim = { tenant: "victim", session: "s1" };

/** What a lookup that is not by tenant would do: it takes longer for a key that anybody has used. */
function leak(store: Store, microseconds: number): void {
  const used = new Set<string>();
  const { reserve, read } = store;
  Object.assign(store, {
    reserve: ((request) => {
      if (request.scope === victim.tenant) used.add(request.key);
      else if (used.has(request.key)) spin(microseconds);
      return reserve.call(store, request);
    }) satisfies Store["reserve"],
    read: ((id) => {
      if (id.scope !== victim.tenant && used.has(id.key)) spin(microseconds);
      return read.call(store, id);
    }) satisfies Store["read"],
  });
}

type Prepared = Awaited<ReturnType<typeof prepare>>;
type Attack = (service: Prepared, key: string) => Promise<unknown>;

const attacker = { tenant: "attacker", session: "s1" };

const ask: Attack = (service, key) => service.ask(attacker, key);
const pay: Attack = (service, key) => service.pay(attacker, key);

const attacks: readonly [what: string, open: (folder: string) => Store, attack: Attack][] = [
  ["in memory, asking for the status of a key", stores.memory, ask],
  ["on SQLite, asking for the status of a key", stores.SQLite, ask],
  ["in memory, paying under a key", stores.memory, pay],
];

/** Asks for all keys once. */
async function measure(service: Prepared, attack: Attack, round = 0): Promise<number> {
  await service.fill(round);
  const questions = Array.from({ length: keys }, (_, nth): Timed => {
    return { isPresent: isPresent(nth), run: () => attack(service, keyOf(round, nth)) };
  });
  return separationOf(questions);
}

/** The measurements of some rounds, until one is enough. */
async function measured(service: Prepared, attack: Attack, isEnough: (value: number) => boolean) {
  // What runs for the first time is slow, and would be slow for one kind only.
  for (let nth = 0; nth < 200; nth += 1) await attack(service, keyOf(9999, nth));
  const values: number[] = [];
  for (let round = 0; round < rounds && !values.some(isEnough); round += 1) {
    values.push(await measure(service, attack, round));
  }
  return values;
}

describe("by the time of an answer", () => {
  it.each(attacks)(
    "%s that another tenant has used is like one that nobody has",
    async (_what, open, attack) => {
      const service = await prepare(open);
      try {
        const values = await measured(service, attack, (value) => value < unnoticed);
        expect(Math.min(...values)).toBeLessThan(unnoticed);
      } finally {
        await service.close();
      }
    },
    60_000,
  );

  it.each(attacks)(
    "%s: a difference of a fifth of a millisecond would be noticed",
    async (_what, open, attack) => {
      const service = await prepare(open, { leakUs: 200 });
      try {
        const values = await measured(service, attack, (value) => value > 3 * unnoticed);
        expect(Math.max(...values)).toBeGreaterThan(3 * unnoticed);
      } finally {
        await service.close();
      }
    },
    60_000,
  );
});

describe("by the time of an answer, within a tenant", () => {
  it("the status of a key of another session is like that of one that nobody has used", async () => {
    const service = await prepare(() => memoryStore());
    try {
      const thief: Attack = (asked, key) => asked.ask({ tenant: "victim", session: "s2" }, key);
      const values = await measured(service, thief, (value) => value < unnoticed);
      expect(Math.min(...values)).toBeLessThan(unnoticed);
    } finally {
      await service.close();
    }
  }, 60_000);
});

describe("a token that is guessed", () => {
  it("is refused in the same time however much of it is right, and whatever its length", async () => {
    const token = "0123456789abcdef".repeat(4);
    const near = `${token.slice(0, -1)}x`;
    const values: number[] = [];
    for (let round = 0; round < rounds && !values.some((value) => value < unnoticed); round += 1) {
      const questions = Array.from({ length: keys }, (_, nth): Timed => {
        const guess = isPresent(nth) ? near : `x${token.slice(1)}`;
        return {
          isPresent: isPresent(nth),
          run: async () => {
            for (let times = 0; times < 20; times += 1) sameToken(token, guess);
          },
        };
      });
      values.push(await separationOf(questions));
    }
    expect(Math.min(...values)).toBeLessThan(unnoticed);
    expect([token, near, token.slice(1), `${token}0`, ""].map((guess) => sameToken(token, guess))).toEqual([
      true,
      false,
      false,
      false,
      false,
    ]);
  });
});

describe("the measure itself", () => {
  it("is 0 for samples that are alike, 1 for those that are apart, and knows equal values", () => {
    expect(separation([1, 2, 3, 4], [1, 2, 3, 4])).toBe(0);
    expect(separation([1, 2, 3], [4, 5, 6])).toBe(1);
    expect(separation([4, 5, 6], [1, 2, 3])).toBe(-1);
    expect(separation([1, 1, 1], [1, 1, 1])).toBe(0);
    expect(separation([0, 10], [5, 5])).toBe(0);
  });

  it("does not mind pauses", () => {
    const noisy = Array.from({ length: 1000 }, (_, nth) => (nth % 10 === 0 ? 1e9 * nth : nth % 7));
    expect(Math.abs(separation(noisy, [...noisy].reverse()))).toBe(0);
  });
});
