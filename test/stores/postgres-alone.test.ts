import type pg from "pg";
import postgres from "postgres";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { StoreRefusedError } from "../../src/core/errors.ts";
import { noProgress } from "../../src/core/phase.ts";
import type { Lease, ReserveRequest, Store } from "../../src/core/store.ts";
import { PlacedLease } from "../../src/stores/placed-lease.ts";
import type { Seams } from "../../src/stores/postgres/calls.ts";
import * as statements from "../../src/stores/postgres/statements/records.ts";
import { type PostgresStoreOptions, postgresStore } from "../../src/stores/postgres/store.ts";
import {
  again,
  complete,
  eventually,
  explained,
  functionsIn,
  isWatched,
  leaseOf,
  manyRecords,
  request,
  response,
  spied,
  useDatabase,
} from "./postgres-support.ts";

/*
 * What a lone caller's calls are: plain statements, as soon as it is known that keys are new and that the table is large, and
 * functions otherwise, which answer whatever there is.
 */

const large = useDatabase();
const small = useDatabase();

beforeAll(() => large.query(manyRecords));

/** The answer, as it is read. */
const read = { ...response, body: Buffer.from("done") };

const insertion = "INSERT";
const update = "UPDATE";
const reserveFunction = "latchkey_reserve_one";
const completeFunction = "latchkey_complete_one";

/** A store that has been asked for new keys only, one by one, and what it sends from then on. */
async function expectingNew(
  pool: pg.Pool,
  keys = 8,
  options: PostgresStoreOptions = {},
): Promise<{ store: Store; sent: () => string[] }> {
  const texts: string[] = [];
  const store = postgresStore(
    spied(pool, (text) => void texts.push(text)),
    options,
  );
  for (let key = 0; key < keys; key += 1) await leaseOf(store, request());
  texts.length = 0;
  return { store, sent: () => texts.splice(0).map(kindOf) };
}

/** A plain statement by what it does, and a call by its function. */
function kindOf(text: string): string {
  const [, verb] = /^\s*(INSERT|UPDATE)/.exec(text) ?? [];
  return verb ?? functionsIn([text])[0] ?? text;
}

/** Another process, which waits for the end of a record. */
async function waiting(lease: Lease) {
  const store = postgresStore(large.pool(), { listen: true });
  onTestFinished(() => store.close());
  const woken = { times: 0 };
  await store.watch?.(lease, () => {
    woken.times += 1;
  });
  return woken;
}

describe("a lone caller whose keys are new", () => {
  it("sends one plain statement to reserve and one to complete", async () => {
    const { store, sent } = await expectingNew(large.pool());
    const first = request({ route: "POST /charges", reconcileAfterMs: 7, onCrash: "retry" });
    const before = Date.now();
    const lease = await leaseOf(store, first);
    const settled = await store.settle(lease, complete);
    expect(sent()).toEqual([insertion, update]);
    expect(settled).toEqual({ kind: "settled", expiresAt: expect.any(Number) });
    const { record } = await store.read(first);
    expect(record).toMatchObject({
      state: "completed",
      fence: 1,
      fingerprint: first.fingerprint,
      route: "POST /charges",
      response: read,
      progress: noProgress,
    });
    const expiresAt = (settled as { expiresAt: number }).expiresAt;
    expect(record?.expiresAt).toBe(expiresAt);
    expect(Math.abs(expiresAt - before - complete.retentionMs)).toBeLessThan(5_000);
  });

  it("leaves the same row as the function does", async () => {
    const { store, sent } = await expectingNew(large.pool());
    const { store: other, sent: sentByOther } = await expectingNew(large.pool(), 0);
    const terms = { route: "POST /charges", leaseMs: 1_234, retentionMs: 5_678, reconcileAfterMs: 9 };
    const [inserted, called] = [request(terms), request(terms)];
    const leases = [await leaseOf(store, inserted), await leaseOf(other, called)] as const;
    expect([...sent(), ...sentByOther()]).toEqual([insertion, reserveFunction]);
    const rowOf = async ({ key }: { key: string }) => {
      const [row] = await large.query<{ row: Record<string, unknown> }>(
        `SELECT to_jsonb(r) - '{key,owner,created_at,lease_until,expires_at,completed_at,kept_until}'::text[] || jsonb_build_object(
           'lease', lease_until - created_at, 'expiry', expires_at - created_at,
           'kept', kept_until IS NOT NULL, 'completed', completed_at IS NOT NULL) AS row
         FROM latchkey_records AS r WHERE key = $1`,
        [key],
      );
      return row?.row;
    };
    expect(await rowOf(inserted)).toEqual(await rowOf(called));
    await store.settle(leases[0], complete);
    await other.settle(leases[1], complete);
    expect([...sent(), ...sentByOther()]).toEqual([update, completeFunction]);
    expect(await rowOf(inserted)).toEqual(await rowOf(called));
  });

  it("is answered with what is there when a key is known after all, and asks functions for a while", async () => {
    const { store, sent } = await expectingNew(large.pool());
    const [underWay, done] = [request(), request()];
    await leaseOf(store, underWay);
    await store.settle(await leaseOf(store, done), complete);
    sent();
    expect(await store.reserve(again(done))).toMatchObject({ kind: "replay", response: read });
    expect(sent()).toEqual([insertion, reserveFunction]);
    expect(await store.reserve(again(underWay))).toMatchObject({ kind: "inFlight" });
    expect(await store.reserve(again(underWay, { fingerprint: "v1:other" }))).toEqual({ kind: "mismatch" });
    for (let key = 0; key < 8; key += 1) await leaseOf(store, request());
    expect(sent()).toEqual(Array.from({ length: 10 }, () => reserveFunction));
    await leaseOf(store, request());
    expect(sent()).toEqual([insertion]);
  });

  it("has one winner with all others who insert the same key at once", async () => {
    const stores = await Promise.all(
      Array.from({ length: 8 }, async () => (await expectingNew(large.pool({ max: 1 }))).store),
    );
    for (let round = 0; round < 20; round += 1) {
      const first = request();
      const answers = await Promise.all(stores.map((store) => store.reserve(again(first))));
      expect(answers.map(({ kind }) => kind).sort()).toEqual([
        "execute",
        ...Array.from({ length: 7 }, () => "inFlight"),
      ]);
    }
  });

  it("fails alone and clearly where something cannot be stored, and nothing is kept of it", async () => {
    const { store, sent } = await expectingNew(large.pool());
    await expect(store.reserve(request({ key: "half of a \0 character" }))).rejects.toThrow(
      StoreRefusedError,
    );
    const lease = await leaseOf(store, request());
    expect(sent()).toEqual([insertion, insertion]);
    const poisoned = { ...complete, response: { ...response, status: 40_000 } };
    await expect(store.settle(lease, poisoned)).rejects.toThrow(StoreRefusedError);
    expect(await store.settle(lease, complete)).toMatchObject({ kind: "settled" });
  });

  it("has requests accepted by the function, which knows how", async () => {
    const { store, sent } = await expectingNew(large.pool());
    const accepted = request({ mode: "accept" });
    expect(await store.reserve(accepted)).toEqual({ kind: "pending" });
    expect(sent()).toEqual([reserveFunction]);
    expect((await store.read(accepted)).record).toMatchObject({ state: "pending", fence: 0 });
  });
});

it("a session's records are the function's, which sees to it that the session lives", async () => {
  const { store, sent } = await expectingNew(large.pool(), 8, { lock: "advisory" });
  onTestFinished(() => store.close());
  const first = request();
  await leaseOf(store, first);
  expect(sent()).toEqual([reserveFunction]);
  const [row] = await large.query("SELECT owner_session FROM latchkey_records WHERE key = $1", [first.key]);
  expect(row).toEqual({ owner_session: expect.any(Number) });
});

describe("a lone completion", () => {
  it("wakes whoever waits for it, once, and is as if nobody had", async () => {
    const { store, sent } = await expectingNew(large.pool());
    const lease = await leaseOf(store, request());
    const woken = await waiting(lease);
    sent();
    await store.settle(lease, complete);
    // The row has moved when it was marked: it is looked for by its name then.
    expect(sent()).toEqual([update, completeFunction]);
    await eventually(() => woken.times === 1);
    expect(await isWatched(large, lease)).toBe(false);
  });

  it("wakes whoever has marked the row where it is", async () => {
    const { store, sent } = await expectingNew(large.pool());
    const lease = await leaseOf(store, request());
    const woken = await waiting(lease);
    const [row] = await large.query<{ place: string }>(
      "SELECT ctid::text AS place FROM latchkey_records WHERE key = $1",
      [lease.key],
    );
    sent();
    expect(await store.settle(new PlacedLease(lease, row?.place), complete)).toMatchObject({
      kind: "settled",
    });
    expect(sent()).toEqual([update]);
    await eventually(() => woken.times === 1);
    expect(await isWatched(large, lease)).toBe(false);
  });

  it("is lost if somebody else has taken over, and settled if it is said twice", async () => {
    const { store, sent } = await expectingNew(large.pool());
    const first = request({ leaseMs: 1, onCrash: "retry" });
    const lease = await leaseOf(store, first);
    await eventually(async () => (await store.reserve(again(first))).kind === "execute");
    sent();
    expect(await store.settle(lease, complete)).toEqual({ kind: "lost" });
    expect(sent().slice(0, 2)).toEqual([update, completeFunction]);
    const twice = await leaseOf(store, request());
    const answer = await store.settle(twice, complete);
    expect(await store.settle(twice, complete)).toEqual(answer);
  });

  it("is the function's for a row on the first 64 pages, or of which it is not known where it is", async () => {
    const { store, sent } = await expectingNew(small.pool());
    await small.query("TRUNCATE latchkey_records");
    const kinds = new Map<string, Set<boolean>>();
    for (let page = 0; page < 70; ) {
      const lease = await leaseOf(store, request());
      page = Number(PlacedLease.placeOf<string>(lease)?.slice(1).split(",")[0]);
      sent();
      await store.settle(lease, complete);
      const [kind = ""] = sent();
      kinds.set(kind, (kinds.get(kind) ?? new Set()).add(page >= 64));
    }
    expect(kinds).toEqual(
      new Map([
        [completeFunction, new Set([false])],
        [update, new Set([true])],
      ]),
    );
    const copy: Lease = { ...(await leaseOf(store, request())) };
    sent();
    await store.settle(copy, complete);
    expect(sent()).toEqual([completeFunction]);
  });
});

it("where plans are not kept, a lone caller asks functions only", async () => {
  const texts: string[] = [];
  const sql = postgres(large.url, { max: 1, debug: (_connection, text) => void texts.push(text) });
  onTestFinished(() => sql.end());
  await sql`SELECT 1`;
  texts.length = 0;
  const store = postgresStore(sql);
  for (let key = 0; key < 9; key += 1) await store.settle(await leaseOf(store, request()), complete);
  expect(new Set(texts.map(kindOf))).toEqual(new Set([reserveFunction, completeFunction]));

  const pool = large.pool({ max: 1 });
  const { store: refused, sent } = await expectingNew(pool, 9);
  await pool.query("DEALLOCATE ALL");
  await refused.settle(await leaseOf(refused, request()), complete);
  // The first one is refused for its name, and goes out again without it.
  expect(sent()).toEqual([insertion, insertion, completeFunction]);
});

describe("without group commit", () => {
  const off = { groupCommit: false };
  /** The statement that reserves in whatever state the record is, and the one that completes in whatever place. */
  const [reservation, completion] = ["plain reservation", "plain completion"];
  const named = (texts: readonly string[]) =>
    texts.map((text) =>
      text === statements.reserve ? reservation : text === statements.complete ? completion : kindOf(text),
    );

  function spiedStore(pool: pg.Pool) {
    const texts: string[] = [];
    const store = postgresStore(
      spied(pool, (text) => void texts.push(text)),
      off,
    );
    return { store, sent: () => named(texts.splice(0)) };
  }

  it("new keys are inserted and completed in their places, each call by itself", async () => {
    const { store, sent } = spiedStore(large.pool());
    for (let key = 0; key < 8; key += 1) await leaseOf(store, request());
    expect(sent()).toEqual(Array.from({ length: 8 }, () => reservation));
    const wanted = Array.from({ length: 5 }, () => request());
    const leases = await Promise.all(wanted.map((each) => leaseOf(store, each)));
    expect(sent()).toEqual(wanted.map(() => insertion));
    await Promise.all(leases.map((lease) => store.settle(lease, complete)));
    expect(sent()).toEqual(wanted.map(() => update));
    expect(await store.reserve(again(wanted[0] as ReserveRequest))).toMatchObject({
      kind: "replay",
      response: read,
    });
  });

  it("a key that is known after all is found by the statement that knows all states, and no function is called", async () => {
    const { store, sent } = spiedStore(large.pool());
    for (let key = 0; key < 8; key += 1) await leaseOf(store, request());
    const done = request();
    const lease = await leaseOf(store, done);
    await store.settle(lease, complete);
    sent();
    expect(await store.reserve(again(done))).toMatchObject({ kind: "replay", response: read });
    expect(sent()).toEqual([insertion, reservation]);
    expect(await store.reserve(again(done))).toMatchObject({ kind: "replay" });
    await leaseOf(store, request());
    expect(sent()).toEqual([reservation, reservation]);
    // It is not where it was reserved any more, and may say the same again.
    expect(await store.settle(lease, complete)).toMatchObject({ kind: "settled" });
    expect(sent().slice(0, 2)).toEqual([update, completion]);
  });

  it("an attempt after a failed one is none of a new key", async () => {
    const { store, sent } = spiedStore(large.pool());
    const failed = request({ onCrash: "retry", leaseMs: 0 });
    await leaseOf(store, failed);
    for (let attempt = 0; attempt < 9; attempt += 1) await leaseOf(store, again(failed));
    sent();
    await leaseOf(store, again(failed));
    expect(sent()[0]).toBe(reservation);
  });

  it("a small table's rows are not completed by their places", async () => {
    const { store, sent } = spiedStore(small.pool());
    await small.query("TRUNCATE latchkey_records");
    for (let key = 0; key < 8; key += 1) await leaseOf(store, request());
    const lease = await leaseOf(store, request());
    sent();
    await store.settle(lease, complete);
    expect(sent()).toEqual([completion]);
  });
});

describe("no plan that is kept goes through the table", () => {
  /** The plans of requests on a large table, on a connection that made them on the table that `prepare` leaves. */
  async function plansKept(prepare: readonly string[], seams: Seams = {}) {
    const { store, plansOf, query, end } = await explained(small.url, seams);
    onTestFinished(end);
    for (const statement of prepare) await query(statement, []);
    const requests = async () => {
      for (let key = 0; key < 20; key += 1) await store.settle(await leaseOf(store, request()), complete);
    };
    // Plans are kept from the sixth time on.
    const before = await plansOf(requests);
    await query(manyRecords, []);
    return { before, after: await plansOf(requests) };
  }
  const byPlace = "Tid Scan on latchkey_records";
  const otherwise = /Seq Scan|Bitmap|Index Scan/;

  it("from an empty one to a large one", async () => {
    const { before, after } = await plansKept([
      "TRUNCATE latchkey_records",
      "VACUUM ANALYZE latchkey_records",
    ]);
    expect(before).not.toContain(byPlace);
    expect(after).toContain(byPlace);
    expect(after).not.toMatch(otherwise);
  });

  it("after a night in which nearly everything was removed, and the index has stayed large", async () => {
    const { before, after } = await plansKept(
      [
        "TRUNCATE latchkey_records",
        manyRecords,
        "DELETE FROM latchkey_records WHERE ctid < '(300,1)' OR ctid > '(300,3)'",
        "VACUUM ANALYZE latchkey_records",
        "UPDATE latchkey_records SET key = 'left over ' || key",
      ],
      // New rows go to where there is room, which is anywhere.
      { callsOfNewMin: 0, pagesMin: 0 },
    );
    for (const plans of [before, after]) {
      expect(plans).toContain(byPlace);
      expect(plans).not.toMatch(otherwise);
    }
  });
});
