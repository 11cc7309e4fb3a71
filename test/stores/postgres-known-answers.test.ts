import fc from "fast-check";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { HeaderPair, StoredResponse } from "../../src/core/response.ts";
import type { Reservation, ReserveRequest, Store } from "../../src/core/store.ts";
import type { StoredRequest } from "../../src/core/stored-request.ts";
import { unpackAnswers } from "../../src/stores/postgres/packed-answers.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
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
async function answered(responses: readonly StoredResponse[], on = pool): Promise<ReserveRequest[]> {
  const store = postgresStore(on);
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

/** What a worker would execute. */
function keptRequest(index: number): StoredRequest {
  const body = Buffer.from(`body ${index}`);
  return { method: "POST", target: `/rides/${index}`, tenant: "acme", headers: [], body };
}

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

  it("leave to each of the others what is its own", async () => {
    const { store, texts } = await expectingKnown();
    const known = await answered(Array.from({ length: 7 }, (_, index) => full(`answer ${index}`)));
    const fresh = Array.from({ length: 5 }, (_, index) =>
      request({
        route: `route ${index % 3}`,
        owner: `owner ${index}`,
        onCrash: index % 2 === 0 ? "retry" : "resume",
        ...(index % 2 === 0 ? {} : { request: keptRequest(index) }),
      }),
    );
    // In turn, so that none of the new ones has the place that it would have among themselves.
    const all = known.flatMap((each, index) => [again(each), ...fresh.slice(index, index + 1)]);
    const answers = await Promise.all(all.map((each) => store.reserve(each)));
    expect(functionsIn(texts)).toEqual(["latchkey_reserve_known"]);
    const inTurn = known.flatMap((_, index) => [
      full(`answer ${index}`),
      ...fresh.slice(index, index + 1).map(() => "execute"),
    ]);
    expect(responsesOf(answers)).toEqual(inTurn);
    const leases = answers.flatMap((answer) => (answer.kind === "execute" ? [answer.lease] : []));
    expect(leases).toMatchObject(fresh.map(({ key, owner }) => ({ key, owner })));
    const rows = await database.query(
      `SELECT owner, route, on_crash, request_head::json->>'target' AS target, request_body FROM latchkey_records
        WHERE key = ANY($1) ORDER BY array_position($1, key)`,
      [fresh.map(({ key }) => key)],
    );
    expect(rows).toEqual(
      fresh.map(({ owner, route, onCrash: on_crash, request: kept }) => ({
        owner,
        route,
        on_crash,
        target: kept?.target ?? null,
        request_body: kept === undefined ? null : Buffer.from(kept.body),
      })),
    );
    for (const lease of leases)
      expect(await store.settle(lease, complete)).toMatchObject({ kind: "settled" });
  });

  it("leave to each of the others the session in whose name it is reserved", async () => {
    const texts: string[] = [];
    const watched = spied(database.pool({ max: 8 }), (text) => void texts.push(text));
    const store = postgresStore(watched, { lock: "advisory" });
    try {
      await replayed(store, await answered(Array.from({ length: 8 }, () => full("known"))));
      const wanted = await answered([full("one"), full("two"), full("three")]);
      const fresh = [request(), request()];
      const answers = await Promise.all(
        [...wanted.map((each) => again(each)), ...fresh].map((each) => store.reserve(each)),
      );
      expect(responsesOf(answers)).toEqual([full("one"), full("two"), full("three"), "execute", "execute"]);
      const owned = await database.query(
        "SELECT FROM latchkey_records WHERE key = ANY($1) AND owner_session IS NOT NULL",
        [fresh.map(({ key }) => key)],
      );
      expect(owned).toHaveLength(2);
      // On another server its lock would seem free: see "lends its name to no record on another server than its own".
      const known = texts.filter((text) => text.includes("latchkey_reserve_known"));
      expect(known[0]).toContain("pg_try_advisory_xact_lock_shared");
    } finally {
      await store.close();
    }
  });

  it("are told for as long as they are kept, and for ever if somebody says so", async () => {
    const { store, texts } = await expectingKnown();
    const wanted = await answered([full("kept"), full("for ever"), full("over"), full("as ever")]);
    const [kept, forEver, over] = wanted;
    const move = (set: string, key: string | undefined) =>
      database.query(`UPDATE latchkey_records SET ${set} WHERE key = $1`, [key]);
    await move("kept_until = now() + interval '1 hour', expires_at = now() - interval '1 hour'", kept?.key);
    await move("expires_at = 'infinity', kept_until = NULL", forEver?.key);
    await move("kept_until = now() - interval '1 hour', expires_at = now() + interval '1 hour'", over?.key);
    expect(responsesOf(await replayed(store, wanted))).toEqual([
      full("kept"),
      full("for ever"),
      "execute",
      full("as ever"),
    ]);
    expect(functionsIn(texts)[0]).toBe("latchkey_reserve_known");
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

describe.each(["SQL_ASCII", "LATIN1", "WIN1250"])(
  "answers that are known, in a database in %s",
  (encoding) => {
    const nameIn = () => `${new URL(database.url).pathname.slice(1)}_${encoding.toLowerCase()}`;
    let own: pg.Pool;

    beforeAll(async () => {
      await database.query(
        `CREATE DATABASE ${nameIn()} ENCODING '${encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`,
      );
      const url = new URL(database.url);
      url.pathname = `/${nameIn()}`;
      own = new pg.Pool({ connectionString: url.href, max: 8 });
      await migrate(own);
    });
    afterAll(async () => {
      await own.end();
      await database.query(`DROP DATABASE ${nameIn()} WITH (FORCE)`);
    });

    it("are each the one that was asked for, whatever letters are in their headers", async () => {
      const store = postgresStore(own);
      const letter = encoding === "WIN1250" ? "ł" : "é";
      const responses = Array.from({ length: 40 }, (_, index) =>
        full(`secret of tenant ${index}`, index % 10 === 3 ? [["content-disposition", letter]] : []),
      );
      const wanted = await answered(responses, own);
      // The first rounds find out that most are known.
      for (let round = 0; round < 4; round += 1) {
        expect(responsesOf(await replayed(store, wanted))).toEqual(responses);
      }
    });
  },
);

it("a server without the function refuses once, and answers those who come next", async () => {
  const { store } = await expectingKnown();
  const wanted = await answered([full("one"), full("two"), full("three")]);
  await database.query("ALTER FUNCTION latchkey_reserve_known RENAME TO latchkey_reserve_unknown");
  try {
    await expect(replayed(store, wanted)).rejects.toThrow(/migrate/);
    expect(responsesOf(await replayed(store, wanted))).toEqual([full("one"), full("two"), full("three")]);
  } finally {
    await database.query("ALTER FUNCTION latchkey_reserve_unknown RENAME TO latchkey_reserve_known");
  }
});

describe("the text that they come in", () => {
  it("may hold none", () => {
    expect(unpackAnswers("")).toEqual([]);
  });

  it.each(["1 200 5 3 3e{}abc\n", "1 200 5 2 2e{}abc\n", "1 200 5 2 3e{}abc", "1 200 5 2 4e{}abc\n"])(
    "is not read if it is not as long as it says: %j",
    (text) => {
      expect(() => unpackAnswers(text)).toThrow(/not as long as they say/);
    },
  );

  it("tells escapes of one answer from the next", () => {
    const text = `1 200 1700000000000 2 3e{}abc\n2 201 1700000000001 2 8e{}a\\\\b\\303\n3 202 5 2 4x{}00ff\n`;
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
