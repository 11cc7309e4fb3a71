import type pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import type { Lease, SettleAnswer, Settlement, Store } from "../../src/core/store.ts";
import { PlacedLease } from "../../src/stores/placed-lease.ts";
import {
  again,
  complete,
  expectingNew,
  explained,
  functionsIn,
  insertion,
  leaseOf,
  manyRecords,
  request,
  response,
  useDatabase,
} from "./postgres-support.ts";

/*
 * What the migrations 0010_settling_by_place and 0011_strays are for: requests that are alike are reserved and completed in
 * fewer steps, and their rows are looked for where they were reserved, and by their names only where they are not there.
 */

const database = useDatabase();
let pool: pg.Pool;

beforeAll(() => {
  pool = database.pool({ max: 20 });
});

async function leases(store: Store, count: number): Promise<Lease[]> {
  const wanted = Array.from({ length: count }, () => request());
  return Promise.all(wanted.map((each) => leaseOf(store, each)));
}

function settleAll(store: Store, held: readonly Lease[], settlement = (_: Lease): Settlement => complete) {
  return Promise.all(held.map((lease) => store.settle(lease, settlement(lease))));
}

const kindsOf = (answers: readonly SettleAnswer[]) => answers.map(({ kind }) => kind);
const settled = (held: readonly Lease[]) => held.map(() => "settled");
const byPlace = "latchkey_complete_alike";
const byName = "latchkey_complete_batch";

describe("requests that are alike", () => {
  it("are completed where they were reserved, each with its own head and body", async () => {
    const { store, texts } = await expectingNew(pool);
    const held = await leases(store, 12);
    const answerOf = (lease: Lease) => ({
      ...response,
      headers: [["location", `/charges/${lease.key}`]] as const,
      body: Buffer.from(`done ${lease.key}`),
    });
    const answers = await settleAll(store, held, (lease) => ({ ...complete, response: answerOf(lease) }));
    expect(kindsOf(answers)).toEqual(settled(held));
    expect(new Set(functionsIn(texts))).toEqual(new Set(["latchkey_reserve_alike", byPlace]));
    for (const [index, lease] of held.entries()) {
      const replay = await store.reserve(again(request({ key: lease.key })));
      expect(replay).toMatchObject({ kind: "replay", response: answerOf(lease) });
      expect(replay.kind === "replay" && replay.expiresAt).toBe(
        (answers[index] as { expiresAt: number }).expiresAt,
      );
    }
  });

  it("are completed by name where their answers have several statuses or times", async () => {
    const { store, texts } = await expectingNew(pool);
    const held = await leases(store, 8);
    texts.length = 0;
    const answers = await settleAll(store, held, (lease) => ({
      ...complete,
      response: { ...response, status: lease === held[0] ? 200 : 201 },
      retentionMs: lease === held[1] ? 120_000 : 60_000,
    }));
    expect(kindsOf(answers)).toEqual(settled(held));
    expect(functionsIn(texts)).toContain(byName);
    const { record } = await store.read(held[0] as Lease);
    expect(record).toMatchObject({ response: { status: 200 } });
  });

  it("are completed by name if their leases are copies", async () => {
    const { store, texts } = await expectingNew(pool);
    const held = (await leases(store, 8)).map((lease) => ({ ...lease }));
    texts.length = 0;
    expect(kindsOf(await settleAll(store, held))).toEqual(settled(held));
    expect(new Set(functionsIn(texts))).toEqual(new Set([byName]));
  });

  it("are completed with an expiry that is written beside the indexed one if it is soon after it", async () => {
    const { store } = await expectingNew(pool);
    const held = await leases(store, 4);
    const [answer] = await settleAll(store, held, () => ({ ...complete, retentionMs: 90_000 }));
    const [row] = await database.query<{ moved: boolean; kept: number }>(
      `SELECT expires_at > created_at + interval '60 seconds' AS moved,
         (extract(epoch FROM kept_until) * 1000)::float8 AS kept FROM latchkey_records WHERE key = $1`,
      [held[0]?.key ?? ""],
    );
    expect(row).toEqual({ moved: false, kept: (answer as { expiresAt: number }).expiresAt });
    const later = await leases(store, 4);
    const [late] = await settleAll(store, later, () => ({ ...complete, retentionMs: 86_400_000 }));
    const { record } = await store.read(later[0] as Lease);
    expect(record?.expiresAt).toBe((late as { expiresAt: number }).expiresAt);
  });
});

describe("a row that is not where it was reserved", () => {
  const writes: Record<string, (store: Store, lease: Lease) => Promise<unknown>> = {
    "its lease was renewed": (store, lease) => store.renew([lease], 60_000),
    "its phases went on": (store, lease) => store.advance(lease, { progress: [], onCrash: "resume" }),
    "somebody waits for it": (_, { key }) =>
      database.query("UPDATE latchkey_records SET watched = true WHERE key = $1", [key]),
    "the table was written anew": () => database.query("VACUUM FULL latchkey_records"),
  };

  it.each(Object.entries(writes))(
    "is completed all the same, and so are its neighbours: %s",
    async (_, write) => {
      const { store, texts } = await expectingNew(pool);
      const held = await leases(store, 12);
      await write(store, held[5] as Lease);
      texts.length = 0;
      expect(kindsOf(await settleAll(store, held))).toEqual(settled(held));
      expect(functionsIn(texts)).toEqual([byPlace]);
      for (const { key } of held) {
        expect(await store.reserve(again(request({ key })))).toMatchObject({
          kind: "replay",
          response: { ...response, body: Buffer.from("done") },
        });
      }
    },
  );

  it("is looked for alone: its neighbours and the next batches are completed in their places", async () => {
    const { store, texts } = await expectingNew(pool);
    for (let round = 0; round < 4; round += 1) {
      const held = await leases(store, 12);
      await database.query("UPDATE latchkey_records SET watched = true WHERE key = $1", [held[round]?.key]);
      texts.length = 0;
      expect(kindsOf(await settleAll(store, held))).toEqual(settled(held));
      expect(new Set(functionsIn(texts))).toEqual(new Set([byPlace]));
    }
  });

  it("is not waited for by its neighbours while somebody writes it", async () => {
    const { store } = await expectingNew(pool);
    const held = await leases(store, 12);
    const [moved, ...others] = held as [Lease, ...Lease[]];
    const writer = await pool.connect();
    await store.renew([moved], 60_000);
    await writer.query("BEGIN");
    await writer.query("SELECT FROM latchkey_records WHERE key = $1 FOR UPDATE", [moved.key]);
    let isFree = false;
    const last = store.settle(moved, complete).then(({ kind }) => ({ kind, isFree }));
    try {
      expect(kindsOf(await settleAll(store, others))).toEqual(settled(others));
    } finally {
      isFree = true;
      await writer.query("COMMIT");
      writer.release();
    }
    expect(await last).toEqual({ kind: "settled", isFree: true });
  });

  it("makes the next batches look for their rows if most are not, and twice as many if it happens again", async () => {
    const { store, texts } = await expectingNew(pool);
    /** How the leases of the next rounds are completed, in a batch each. */
    const waysOf = async (rounds: number, { strays }: { strays: boolean }) => {
      const ways: (string | undefined)[] = [];
      for (let round = 0; round < rounds; round += 1) {
        const held = await leases(store, 4);
        if (strays) await store.renew(held, 60_000);
        texts.length = 0;
        expect(kindsOf(await settleAll(store, held))).toEqual(settled(held));
        ways.push(...functionsIn(texts));
      }
      return ways;
    };
    expect(await waysOf(1, { strays: true })).toEqual([byPlace]);
    const afterwards = await waysOf(24, { strays: false });
    const pause = afterwards.indexOf(byPlace);
    expect(pause).toBeGreaterThanOrEqual(8);
    expect(new Set(afterwards.slice(0, pause))).toEqual(new Set([byName]));
    expect(new Set(afterwards.slice(pause))).toEqual(new Set([byPlace]));
    await waysOf(1, { strays: true });
    await waysOf(16, { strays: true });
    expect((await waysOf(40, { strays: false })).indexOf(byPlace)).toBeGreaterThan(pause);
  });

  it("is lost alone, if its lease is", async () => {
    const { store } = await expectingNew(pool);
    const held = await leases(store, 12);
    const [taken] = held as [Lease];
    await database.query("UPDATE latchkey_records SET fence = 2, owner = 'another' WHERE key = $1", [
      taken.key,
    ]);
    expect(kindsOf(await settleAll(store, held))).toEqual(["lost", ...settled(held.slice(1))]);
    expect((await store.read(taken)).record).toMatchObject({ state: "in_progress", fence: 2 });
  });

  it.each<[string, (lease: Lease) => Partial<Lease>]>([
    ["of another key", () => ({ key: "another" })],
    ["of another scope", () => ({ scope: "another" })],
    ["of another owner", () => ({ owner: "another" })],
    ["of another attempt", () => ({ fence: 2 })],
  ])("is not taken for the one that is there now: %s", async (_, change) => {
    const { store } = await expectingNew(pool);
    await database.query("TRUNCATE latchkey_records");
    const held = await leases(store, 4);
    const [gone] = held as [Lease];
    await database.query("DELETE FROM latchkey_records WHERE key = $1", [gone.key]);
    await database.query("VACUUM latchkey_records");
    const there = { ...gone, ...change(gone) };
    const columns = { scope: `'${there.scope}'`, key: `'${there.key}'`, fence: String(there.fence) };
    const id = [there.scope, there.key];
    const lookThere = () =>
      database.query<{ place: string; state: string }>(
        "SELECT ctid::text AS place, state FROM latchkey_records WHERE scope = $1 AND key = $2",
        id,
      );
    const before = [{ place: PlacedLease.placeOf<string>(gone) ?? "", state: "in_progress" }];
    // Pages have other free places too. What a row has left is not free until the next vacuum.
    for (let tries = 0; (await lookThere())[0]?.place !== before[0]?.place; tries += 1) {
      if (tries > 2_000) throw new Error(`no row came to ${before[0]?.place}`);
      await database.query("DELETE FROM latchkey_records WHERE scope = $1 AND key = $2", id);
      await database.query(
        insertion({ ...columns, owner: `'${there.owner}'`, state: "'in_progress'", lease_until: "now()" }),
      );
    }
    expect(kindsOf(await settleAll(store, held))).toEqual(["lost", ...settled(held.slice(1))]);
    expect(await lookThere()).toEqual(before);
  });
});

describe("the plan of completing by place", () => {
  it("goes to the places and nowhere else, in an empty table and in a large one with the plans of the empty", async () => {
    await database.query("TRUNCATE latchkey_records");
    await database.query("ANALYZE latchkey_records");
    const { store, plansOf, end } = await explained(database.url);
    const round = () => plansOf(async () => settleAll(store, await leases(store, 12)));
    const expectPlaces = (plans: string) => {
      expect(plans).toContain("latchkey_reserve_alike");
      expect(plans).toContain(byPlace);
      const scans = [...plans.matchAll(/(\w+ )?Scan (using \w+ )?on latchkey_records/g)].map(
        ([line]) => line,
      );
      expect(new Set(scans)).toEqual(new Set(["Tid Scan on latchkey_records"]));
      expect(plans).not.toMatch(/Rows Removed by (Join )?Filter: \d\d/);
    };
    for (let times = 0; times < 8; times += 1) await round();
    expectPlaces(await round());
    await database.query(manyRecords);
    expectPlaces(await round());
    await database.query("ANALYZE latchkey_records");
    expectPlaces(await round());
    await end();
  });

  it("goes through the primary key for a row that is not there any more, and for no other", async () => {
    await database.query("TRUNCATE latchkey_records");
    await database.query("ANALYZE latchkey_records");
    const { store, plansOf, end } = await explained(database.url);
    const round = () =>
      plansOf(async () => {
        const held = await leases(store, 12);
        await database.query("UPDATE latchkey_records SET watched = true WHERE key = $1", [held[5]?.key]);
        await settleAll(store, held);
      });
    const expectOne = (plans: string) => {
      expect(plans).not.toContain("Seq Scan");
      const looks = /Index Scan using latchkey_records_pkey on latchkey_records r[^\n]* loops=(\d+)/g;
      expect([...plans.matchAll(looks)].map(([, loops]) => loops)).toEqual(["1"]);
    };
    for (let times = 0; times < 8; times += 1) await round();
    expectOne(await round());
    await database.query(manyRecords);
    expectOne(await round());
    await end();
  });

  it("and that of a watch goes through the primary key", async () => {
    await database.query("TRUNCATE latchkey_records");
    await database.query("ANALYZE latchkey_records");
    const { store, plansOf, query, end } = await explained(database.url);
    const watch = () =>
      plansOf(async () => {
        const [lease] = await leases(store, 1);
        await query("SELECT latchkey_watch($1, $2)", [lease?.scope, lease?.key]);
      });
    const expectKey = (plans: string) => {
      expect(plans).toMatch(/Update on latchkey_records[\s\S]*Index Scan using latchkey_records_pkey/);
      expect(plans).not.toContain("Seq Scan");
    };
    for (let times = 0; times < 8; times += 1) await watch();
    expectKey(await watch());
    await database.query(manyRecords);
    expectKey(await watch());
    await database.query("ANALYZE latchkey_records");
    expectKey(await watch());
    await end();
  });
});
