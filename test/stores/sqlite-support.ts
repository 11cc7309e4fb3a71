import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect } from "vitest";
import type { NewMessage, Outbox } from "../../src/core/outbox.ts";
import type { StoredResponse } from "../../src/core/response.ts";
import type {
  Lease,
  PhaseCommit,
  ReserveRequest,
  Settlement,
  Store,
  TransactAnswer,
} from "../../src/core/store.ts";
import type { StoredRequest } from "../../src/core/stored-request.ts";
import { type SqliteDatabase, sqliteStore } from "../../src/stores/sqlite/store.ts";
import { manualClock, type StoreHarness } from "../../src/testing/index.ts";

/** A folder of its own for each test, with the path of a database that is not there yet. */
export function useFolder() {
  const place = { folder: "", path: "" };
  beforeEach(() => {
    place.folder = mkdtempSync(join(tmpdir(), "latchkey-sqlite-"));
    place.path = join(place.folder, "records.db");
  });
  afterEach(() => rmSync(place.folder, { recursive: true, force: true }));
  return place;
}

/** What the published contract is run against; the table `rides` stands for an application's own. */
export function harness(
  database: string | SqliteDatabase,
  beside: SqliteDatabase,
): StoreHarness<SqliteDatabase> {
  const clock = manualClock();
  const options = { clock: clock.now };
  const store =
    typeof database === "string" ? sqliteStore(database, options) : sqliteStore(database, options);
  createRides(beside);
  return {
    store,
    passTime: clock.advance,
    business: { insert: insertRide, ids: async () => rides(beside) },
    async close() {
      await store.close();
      if (typeof database !== "string") database.close();
      beside.close();
    },
  };
}

export function createRides(database: SqliteDatabase): void {
  database.exec("CREATE TABLE rides (id TEXT PRIMARY KEY)");
}

export function insertRide(database: SqliteDatabase, id: string): void {
  database.prepare("INSERT INTO rides VALUES (?)").run(id);
}

export function rides(database: SqliteDatabase): string[] {
  return database
    .prepare("SELECT id FROM rides ORDER BY id")
    .all()
    .map((row) => (row as { id: string }).id);
}

export { request } from "../support/reserve-request.ts";

export const everyByte = Uint8Array.from({ length: 256 }, (_, index) => index);

export const kept: StoredRequest = {
  method: "POST",
  target: "/rides",
  tenant: "tenant",
  headers: [["content-type", "application/octet-stream"]],
  body: everyByte,
};

export function complete(body: Uint8Array = everyByte): Extract<Settlement, { kind: "complete" }> {
  const response: StoredResponse = {
    kind: "full",
    status: 201,
    headers: [["content-type", "application/octet-stream"]],
    body,
  };
  return { kind: "complete", response, retentionMs: 60_000 };
}
export const release = { kind: "release", reason: "nothing was sent", retentionMs: 60_000 } as const;
export const suspend = { kind: "suspend", reason: "no answer came", reconcileAfterMs: 60_000 } as const;

export const unclaimed: StoredResponse = { kind: "full", status: 408, headers: [], body: new Uint8Array() };

export const claimAll = { limit: 10, attemptsMax: 10, backoff: { baseMs: 60_000, capMs: 60_000 } };

export async function lease(store: Store, asked: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(asked);
  if (reservation.kind !== "execute") expect.fail(`expected to execute, got ${reservation.kind}`);
  return reservation.lease;
}

export function pragma(database: SqliteDatabase, name: string): unknown {
  return Object.values(database.prepare(`PRAGMA ${name}`).get() as object)[0];
}

/** How SQLite would carry out a statement. */
export function planOf(database: SqliteDatabase, sql: string): string {
  return database
    .prepare(`EXPLAIN QUERY PLAN ${sql}`)
    .all()
    .map((row) => (row as { detail: string }).detail)
    .join("\n");
}

/** A phase that writes nothing but what is given. */
export async function transact<T>(
  store: Store<SqliteDatabase>,
  held: Lease,
  work: (tx: SqliteDatabase) => T | Promise<T> = () => undefined as T,
  commit: Partial<PhaseCommit> = {},
): Promise<TransactAnswer<T>> {
  if (store.transact === undefined) expect.fail("the store has no transactions");
  return store.transact(held, work, () => ({ progress: [], onCrash: "retry", messages: [], ...commit }));
}

export function outboxOf(store: Store<SqliteDatabase>): Outbox {
  return store.outbox ?? expect.fail("the store has no outbox");
}

let messages = 0;

export function message(overrides: Partial<NewMessage> = {}): NewMessage {
  const key = `message-${++messages}`;
  return {
    topic: "rides",
    payload: "{}",
    partition: null,
    key,
    correlationId: key,
    scope: "tenant",
    traceparent: null,
    delayMs: 0,
    ...overrides,
  };
}
