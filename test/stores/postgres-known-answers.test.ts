import fc from "fast-check";
import type pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { HeaderPair, StoredResponse } from "../../src/core/response.ts";
import type { Reservation, ReserveRequest, Store } from "../../src/core/store.ts";
import { unpackAnswers } from "../../src/stores/postgres/packed-answers.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { again, complete, functionsIn, leaseOf, request, spied, useDatabase } from "./postgres-support.ts";

const database = useDatabase();
let pool: pg.Pool;

beforeAll(() => {
  pool = database.pool({ max: 20 });
});

/** A store that has replayed for a while, and what it sends from then on. */
async function expectingKnown(): Promise<{ store: Store; texts: string[] }> {
  const texts: string[] = [];
  const store = postgresStore(spied(pool, (text) => void texts.push(text)));
  await replayed(store, await answered(Array.from({ length: 8 }, () => full("known"))));
  texts.length = 0;
  return { store, texts };
}

function full(body: string | Uint8Array, headers: readonly HeaderPair[] = []): StoredResponse {
  return { kind: "full", status: 200, headers, body: Buffer.from(body) };
}

/** Requests that have these answers. */
async function answered(responses: readonly StoredResponse[]): Promise<ReserveRequest[]> {
  const store = postgresStore(pool);
  return Promise.all(
    responses.map(async (response) => {
      const wanted = request();
      await store.settle(await leaseOf(store, wanted), { ...complete, response });
      return wanted;
    }),
  );
}

const replayed = (store: Store, wanted: readonly ReserveRequest[]) =>
  Promise.all(wanted.map((each) => store.reserve(again(each))));

/** As they come out of the store, whichever class their bytes are of. */
function responsesOf(reservations: readonly Reservation[]): unknown[] {
  return reservations.map((reservation) => {
    if (reservation.kind !== "replay") return reservation.kind;
    const { response } = reservation;
    return response.kind === "full" ? { ...response, body: Buffer.from(response.body) } : response;
  });
}

describe("answers that are known, of a batch", () => {
  it("come in one statement and one row", async () => {
    const { store, texts } = await expectingKnown();
    const wanted = await answered([full("one"), full("two"), full("three")]);
    expect(responsesOf(await replayed(store, wanted))).toEqual([full("one"), full("two"), full("three")]);
    expect(functionsIn(texts)).toEqual(["latchkey_reserve_known"]);
    const names = [wanted.map(({ scope }) => scope), wanted.map(({ key }) => key)];
    const prints = wanted.map(({ fingerprint }) => fingerprint);
    const rows = await database.query(
      `SELECT * FROM latchkey_reserve_known($1, $2, $3, $3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`,
      [...names, prints],
    );
    expect(rows).toHaveLength(1);
  });

  it("are the bytes that were stored, whatever they are", async () => {
    const { store, texts } = await expectingKnown();
    const headers = fc.array(
      fc.tuple(fc.constantFrom("etag", "link", "x-é"), fc.string({ unit: "binary" })),
      {
        maxLength: 3,
      },
    );
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 300 }).map((each) => Buffer.from(each)),
      fc.string({ unit: "binary", maxLength: 200 }).map((each) => Buffer.from(each)),
      fc.json().map((each) => Buffer.from(each)),
      fc.stringMatching(/^[\\0-9"]*$/).map((each) => Buffer.from(each)),
    );
    const responses = fc.array(
      fc
        .tuple(bytes, headers, fc.integer({ min: 100, max: 599 }))
        .map(([body, pairs, status]): StoredResponse => ({ kind: "full", status, headers: pairs, body })),
      { minLength: 2, maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(responses, async (made) => {
        // Postgres's text has no zero, and what has one is not stored in the first place.
        const storable = made.map((each) =>
          JSON.parse(JSON.stringify(each).replaceAll("\\u0000", "0"), bufferIn),
        );
        const wanted = await answered(storable);
        expect(responsesOf(await replayed(store, wanted))).toEqual(storable);
      }),
      { numRuns: 60 },
    );
    expect(new Set(functionsIn(texts))).toContain("latchkey_reserve_known");
  });

  it("are told beside everything else that a batch finds", async () => {
    const { store, texts } = await expectingKnown();
    const responses: StoredResponse[] = [
      full("one"),
      full("two"),
      full("three"),
      full("four"),
      { kind: "omitted", status: 201, bodyBytes: 5 },
      full(""),
      // These two are not in the text of the others.
      full(Buffer.alloc(20_000, 7)),
      full("é", [["x-é", "ü"]]),
    ];
    const known = await answered(responses);
    const running = request();
    await leaseOf(store, running);
    const [expired, unreadable, misused] = await answered([full("late"), full("unread"), full("not yours")]);
    if (!expired || !unreadable || !misused) throw new Error("three were asked for");
    const fresh = request();
    await database.query(
      "UPDATE latchkey_records SET expires_at = now() - interval '1 hour', kept_until = NULL WHERE key = $1",
      [expired.key],
    );
    await database.query(`UPDATE latchkey_records SET response_head = '{"v":2}' WHERE key = $1`, [
      unreadable.key,
    ]);
    texts.length = 0;
    const others = [again(misused, { fingerprint: "v1:other" }), running, expired, fresh];
    const [answers, unread] = await Promise.all([
      Promise.all([...known, ...others].map((each) => store.reserve(again(each)))),
      store.reserve(again(unreadable)).catch((error: Error) => error.message),
    ]);
    expect(texts[0]).toContain("latchkey_reserve_known");
    expect(unread).toMatch(/encoding version 2/);
    expect(responsesOf(answers)).toEqual([...responses, "mismatch", "inFlight", "execute", "execute"]);
    const lasts = answers.slice(0, 2).map((answer) => answer.kind === "replay" && answer.remainingMs);
    for (const last of lasts) expect(last).toBeGreaterThan(0);
    expect(answers.at(-1)).toMatchObject({ after: "absent", lease: { key: fresh.key, fence: 1 } });
    expect(answers.at(-2)).toMatchObject({ after: "expired", lease: { key: expired.key, fence: 2 } });
  });

  it("do not wait for one that is large, which has a statement of its own", async () => {
    const { store, texts } = await expectingKnown();
    const wanted = await answered([full("one"), full(Buffer.alloc(20_000, 7)), full("three")]);
    await replayed(store, wanted);
    expect(functionsIn(texts)[0]).toBe("latchkey_reserve_known");
    expect(texts).toHaveLength(2);
  });

  it("expire when they do alone", async () => {
    const { store } = await expectingKnown();
    const wanted = await answered([full("one"), full("two")]);
    const alone = postgresStore(pool, { groupCommit: false });
    const moments = async (from: Store) =>
      (await replayed(from, wanted)).map((answer) => answer.kind === "replay" && answer.expiresAt);
    expect(await moments(store)).toEqual(await moments(alone));
  });

  describe("over postgres.js", () => {
    let client: postgres.Sql;

    beforeAll(() => {
      client = postgres(database.url, { max: 4 });
    });
    afterAll(() => client.end());

    it("are the same", async () => {
      const store = postgresStore(client);
      await replayed(store, await answered(Array.from({ length: 8 }, () => full("known"))));
      const responses = [full("one\\two"), full(Buffer.from([0, 255, 92, 65])), full("")];
      expect(responsesOf(await replayed(store, await answered(responses)))).toEqual(responses);
    });
  });
});

describe("the text that they come in", () => {
  it("may hold none", () => {
    expect(unpackAnswers("")).toEqual([]);
  });

  it("tells escapes of one answer from the next", () => {
    const text = `1 200 1700000000000 2 3e{}abc2 201 1700000000001 2 8e{}a\\\\b\\3033 202 5 2 4x{}00ff`;
    expect(unpackAnswers(text)).toEqual([
      { place: 1, status: 200, expires: 1_700_000_000_000, head: "{}", body: Buffer.from("abc") },
      {
        place: 2,
        status: 201,
        expires: 1_700_000_000_001,
        head: "{}",
        body: Buffer.from([97, 92, 98, 0o303]),
      },
      { place: 3, status: 202, expires: 5, head: "{}", body: Buffer.from([0, 255]) },
    ]);
  });
});

/** What JSON has made of a buffer, as a buffer again. */
function bufferIn(_name: string, value: unknown): unknown {
  const { type, data } = (value ?? {}) as { type?: unknown; data?: number[] };
  return type === "Buffer" && data !== undefined ? Buffer.from(data) : value;
}
