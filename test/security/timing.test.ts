import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { idempotent, statusResource } from "../../src/adapters/fetch.ts";
import { createLatchkey, type Store } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { separation, separationOf, spin, type Timed } from "./timing.ts";

/*
 * Whether an attacker can tell by the time that an answer takes that another tenant, or another session, has used a
 * key. Both kinds of questions are asked in one random order. Without a difference the separation of this many answers
 * is within 0.08 of zero in 99 of 100 rounds; a leak is there in each of three rounds, and noise is not.
 */
const keys = 1_600;
const rounds = 3;
const unnoticed = 0.08;

const stores: Readonly<Record<string, (folder: string) => Store>> = {
  memory: () => memoryStore(),
  SQLite: (folder) => sqliteStore(join(folder, "latchkey.db"), { synchronous: "normal" }) as Store,
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

const attacks: Readonly<Record<string, Attack>> = {
  "asking the status resource for a key": (service, key) => service.ask(attacker, key),
  "paying under a key": (service, key) => service.pay(attacker, key),
};

/** Asks for all keys once. */
async function measure(service: Prepared, attack: Attack, round = 0): Promise<number> {
  await service.fill(round);
  const questions = Array.from({ length: keys }, (_, nth): Timed => {
    return { isPresent: isPresent(nth), run: () => attack(service, keyOf(round, nth)) };
  });
  return Math.abs(await separationOf(questions));
}

async function smallest(service: Prepared, attack: Attack): Promise<number> {
  let least = 1;
  for (let round = 0; round < rounds && least > unnoticed; round += 1) {
    least = Math.min(least, await measure(service, attack, round));
  }
  return least;
}

describe.each(Object.entries(stores))("by the time of an answer, on %s", (_name, open) => {
  it.each(Object.entries(attacks))(
    "%s that another tenant has used is like one that nobody has",
    async (_what, attack) => {
      const service = await prepare(open);
      try {
        // What runs for the first time is slow, and would be slow for one kind only.
        for (let nth = 0; nth < 200; nth += 1) await attack(service, keyOf(9999, nth));
        expect(await smallest(service, attack)).toBeLessThan(unnoticed);
      } finally {
        await service.close();
      }
    },
    60_000,
  );

  it.each(Object.entries(attacks))(
    "%s: a difference of a fifth of a millisecond would be noticed",
    async (_what, attack) => {
      const service = await prepare(open, { leakUs: 200 });
      try {
        expect(await measure(service, attack)).toBeGreaterThan(4 * unnoticed);
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
      for (let nth = 0; nth < 200; nth += 1) await thief(service, keyOf(9999, nth));
      expect(await smallest(service, thief)).toBeLessThan(unnoticed);
    } finally {
      await service.close();
    }
  }, 60_000);
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
