import Database from "libsql";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Lease, ReserveRequest, Store } from "../../src/core/store.ts";
import { completeLeases, insertReservations } from "../../src/stores/sqlite/statements.ts";
import { type SqliteDatabase, sqliteStore } from "../../src/stores/sqlite/store.ts";
import { again, request } from "../support/reserve-request.ts";
import { complete, kept, lease, planOf, suspend, useFolder } from "./sqlite-support.ts";

const place = useFolder();

/** A statement of each size, and some that are left over. */
const callers = 64 + 16 + 8 + 3;

let database: Database.Database;
let store: Store<SqliteDatabase>;

beforeEach(() => {
  database = new Database(place.path);
  store = sqliteStore(database);
});

afterEach(() => {
  database.close();
});

describe("many reservations in one statement", () => {
  it("each get their own answer where some of the records are there already", async () => {
    const completed = request();
    await store.settle(await lease(store, completed), complete());
    const inFlight = request();
    await lease(store, inFlight);
    const unknown = request();
    await store.settle(await lease(store, unknown), suspend);
    const expired = request({ retentionMs: 0 });
    await store.settle(await lease(store, expired), { ...complete(), retentionMs: 0 });
    const otherwise = request();
    await store.settle(await lease(store, otherwise), complete());
    const asked = fresh();
    asked[3] = again(completed);
    asked[5] = again(inFlight);
    asked[17] = again(unknown);
    asked[18] = again(otherwise, { fingerprint: "v1:other" });
    asked[20] = again(expired);

    const answers = await reserveAll(asked);

    const others = { 3: "replay", 5: "inFlight", 17: "unknown", 18: "mismatch" } as const;
    for (const [index, answer] of answers.entries()) {
      expect(answer.kind, `request ${index}`).toBe(others[index as keyof typeof others] ?? "execute");
      if (answer.kind !== "execute") continue;
      const { scope, key, owner } = asked[index] ?? expect.fail();
      expect(answer.lease).toEqual({ scope, key, owner, fence: index === 20 ? 2 : 1 });
      expect((await store.read({ scope, key })).record).toMatchObject({ state: "in_progress", owner });
    }
  });

  it("execute nothing that is all there already", async () => {
    const asked = fresh();
    await reserveAll(asked);
    // With a new one in front there will be a transaction, so that nothing is looked for before it.
    const answers = await reserveAll([request({ route: "other" }), ...asked.map((first) => again(first))]);
    expect(answers.map(({ kind }) => kind)).toEqual(["execute", ...asked.map(() => "inFlight")]);
  });

  it("keep the terms of each: no two kinds of request are mixed", async () => {
    // More of each kind than one statement takes, so that those left over could be mixed.
    const kinds = [
      {},
      { route: "refunds" },
      { leaseMs: 9_000 },
      { retentionMs: 9_000 },
      { onCrash: "retry" },
      { reconcileAfterMs: 9_000 },
    ] as const;
    const asked = kinds.flatMap((own) => Array.from({ length: 10 }, () => request(own)));
    await reserveAll(asked);
    for (const { scope, key, route, leaseMs, retentionMs, onCrash, reconcileAfterMs } of asked) {
      const { record } = await store.read({ scope, key });
      if (record?.state !== "in_progress") expect.fail(record?.state);
      expect(record).toMatchObject({ route, onCrash, reconcileAfterMs });
      expect(record.leaseUntil - record.createdAt).toBe(leaseMs);
      expect(record.expiresAt - record.createdAt).toBe(retentionMs);
    }
  });

  it("take one key in two scopes for two records", async () => {
    const asked = fresh().map((one, index) => ({ ...one, key: "one", scope: `tenant-${index}` }));
    const answers = await reserveAll(asked);
    expect(new Set(answers.map(({ kind }) => kind))).toEqual(new Set(["execute"]));
  });
});

describe("many completions in one statement", () => {
  it("each keep their own answer", async () => {
    const leases = await leasesOf(fresh());
    const bodies = leases.map((_, index) => Buffer.from(`answer ${index}`));
    await Promise.all(leases.map((held, index) => store.settle(held, complete(bodies[index]))));
    for (const [index, held] of leases.entries()) expect(await bodyOf(held)).toEqual(bodies[index]);
  });

  it("keep the outcome of each: no two kinds of answer are mixed", async () => {
    const usual = complete();
    const { response } = usual;
    if (response.kind !== "full") expect.fail(response.kind);
    const kinds = [
      usual,
      { ...usual, response: { ...response, status: 402 } },
      { ...usual, response: { ...response, headers: [["location", "/rides/1"]] as const } },
      { ...usual, response: { kind: "omitted", status: response.status, bodyBytes: 9 } as const },
      { ...usual, retentionMs: 9_000 },
    ];
    const settlements = kinds.flatMap((kind) => Array.from({ length: 10 }, () => kind));
    const leases = await leasesOf(settlements.map(() => request()));
    await Promise.all(
      settlements.map((settlement, index) => store.settle(leases[index] as Lease, settlement)),
    );
    for (const [index, settlement] of settlements.entries()) {
      const { record } = await store.read(leases[index] as Lease);
      if (record?.state !== "completed") expect.fail(record?.state);
      expect(record.response).toEqual(settlement.response);
      expect(record.expiresAt - record.completedAt).toBe(settlement.retentionMs);
    }
  });

  it("tell only those who have lost their lease that they have, and leave their records as they are", async () => {
    const asked = fresh().map((one) => ({ ...one, onCrash: "retry" as const, leaseMs: 0 }));
    const leases = await leasesOf(asked);
    const takenOver = await lease(store, again(asked[7] ?? expect.fail()));
    const answers = await Promise.all(leases.map((held) => store.settle(held, complete())));
    for (const [index, { kind }] of answers.entries()) expect(kind).toBe(index === 7 ? "lost" : "settled");
    expect((await store.read(takenOver)).record).toMatchObject({ state: "in_progress", fence: 2 });
  });

  it("may be said twice, also at the same time", async () => {
    const leases = await leasesOf(fresh());
    for (let time = 0; time < 2; time += 1) {
      const answers = await Promise.all([...leases, ...leases].map((held) => store.settle(held, complete())));
      expect(new Set(answers.map(({ kind }) => kind))).toEqual(new Set(["settled"]));
    }
  });

  it("forget the requests that were kept, and keep bodies of any size", async () => {
    const asked = fresh().map((one, index) => ({ ...one, request: index % 2 === 0 ? kept : undefined }));
    const leases = await leasesOf(asked);
    const bodies = leases.map((_, index) => Buffer.alloc(index * 1_000, index));
    await Promise.all(leases.map((held, index) => store.settle(held, complete(bodies[index]))));
    for (const [index, held] of leases.entries()) {
      expect((await bodyOf(held)).equals(bodies[index] ?? expect.fail()), `body ${index}`).toBe(true);
    }
    const { left } = database.prepare("SELECT count(*) AS left FROM latchkey_request_bodies").get() as {
      left: number;
    };
    expect(left).toBe(0);
  });

  it("find each record by its key, however many there are", () => {
    for (const count of [2, 8, 16, 64, 200]) {
      const plan = planOf(database, completeLeases(count));
      expect(plan).toContain("SEARCH latchkey_records USING INTEGER PRIMARY KEY (rowid=?)");
      expect(plan).toMatch(/SEARCH found USING COVERING INDEX \w+ \(scope=\? AND key=\?\)/);
      expect(plan).not.toMatch(/SCAN (latchkey_records|found)/);
    }
  });
});

describe("one write that cannot be done", () => {
  it("fails alone among many in one statement", async () => {
    const asked = fresh();
    // The table refuses it, and with it the whole statement.
    asked[4] = { ...(asked[4] ?? expect.fail()), fingerprint: null as unknown as string };
    const outcomes = await Promise.allSettled(asked.map((one) => store.reserve(one)));
    for (const [index, outcome] of outcomes.entries()) {
      expect(outcome.status, `request ${index}`).toBe(index === 4 ? "rejected" : "fulfilled");
      if (outcome.status === "fulfilled") expect(outcome.value.kind).toBe("execute");
    }
  });

  it("takes the whole transaction back, so that no page is copied before it is changed", () => {
    const terms = [1, "reconcile", 1, 2, 3, null, 4];
    const statement = database.prepare(insertReservations(2));
    database.exec("BEGIN IMMEDIATE");
    statement.run(...terms, "tenant", "one", "v1:first", "owner", "tenant", "two", "v1:first", "owner");
    expect(() =>
      statement.run(...terms, "tenant", "three", "v1:first", "owner", "tenant", "four", null, "owner"),
    ).toThrow(/NOT NULL/);
    expect(database.inTransaction).toBe(false);
    expect(database.prepare("SELECT count(*) AS count FROM latchkey_records").get()).toMatchObject({
      count: 0,
    });
  });

  it("takes the outcomes beside it back as well, and they are written down after all", async () => {
    const leases = await leasesOf(fresh());
    const usual = complete();
    const refused = { ...usual, response: { ...usual.response, status: null as unknown as number } };
    const isRefused = (index: number) => index < 10; // Enough for a statement of their own.
    const outcomes = await Promise.allSettled(
      leases.map((held, index) => store.settle(held, isRefused(index) ? refused : usual)),
    );
    for (const [index, { status }] of outcomes.entries()) {
      expect(status, `request ${index}`).toBe(isRefused(index) ? "rejected" : "fulfilled");
      const { record } = await store.read(leases[index] as Lease);
      expect(record?.state).toBe(isRefused(index) ? "in_progress" : "completed");
    }
  });
});

function fresh(): ReserveRequest[] {
  return Array.from({ length: callers }, () => request());
}

function reserveAll(asked: readonly ReserveRequest[]) {
  return Promise.all(asked.map((one) => store.reserve(one)));
}

function leasesOf(asked: readonly ReserveRequest[]): Promise<Lease[]> {
  return Promise.all(asked.map((one) => lease(store, one)));
}

async function bodyOf(held: Lease): Promise<Buffer> {
  const { record } = await store.read(held);
  if (record?.state !== "completed" || record.response.kind !== "full") expect.fail(record?.state);
  return Buffer.from(record.response.body);
}
