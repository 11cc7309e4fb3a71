import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import pg from "pg";
import type { Store } from "../../src/core/store.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { freshDatabase } from "./database.ts";

/** A store and the business table that lives in the same database, through the user's own client. */
export interface Business {
  readonly store: Store;
  /** Another process's view of the same records. */
  another(): Store;
  /** Books a ride within the transaction of a phase. */
  book(tx: unknown, id: string): unknown;
  /** Every ride that was booked, in order. */
  booked(): Promise<string[]>;
  close(): Promise<void>;
}

export async function sqliteBusiness(): Promise<Business> {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-business-"));
  const path = join(folder, "business.db");
  const database = new Database(path);
  const store = sqliteStore(database);
  database.exec("CREATE TABLE rides (n INTEGER PRIMARY KEY, id TEXT NOT NULL)");
  const others: Store[] = [];
  return {
    store,
    another() {
      const other = sqliteStore(path);
      others.push(other);
      return other;
    },
    book: (tx, id) => (tx as typeof database).prepare("INSERT INTO rides (id) VALUES (?)").run(id),
    booked: async () =>
      (database.prepare("SELECT id FROM rides ORDER BY n").all() as { id: string }[]).map(({ id }) => id),
    async close() {
      for (const other of others) await other.close();
      await store.close();
      database.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export async function postgresBusiness(): Promise<Business> {
  const database = await freshDatabase();
  const pool = new pg.Pool({ connectionString: database.url, max: 6 });
  await migrate(pool);
  await pool.query("CREATE TABLE rides (n serial PRIMARY KEY, id text NOT NULL)");
  const store = postgresStore(pool);
  return {
    store,
    another: () => postgresStore(pool),
    book: (tx, id) => (tx as pg.PoolClient).query("INSERT INTO rides (id) VALUES ($1)", [id]),
    booked: async () =>
      (await pool.query<{ id: string }>("SELECT id FROM rides ORDER BY n")).rows.map(({ id }) => id),
    async close() {
      await store.close();
      await pool.end();
      await database.drop();
    },
  };
}

/** Where atomic phases work, for `describe.each`. */
export const businesses = [
  ["SQLite", sqliteBusiness],
  ["Postgres", postgresBusiness],
] as const;
