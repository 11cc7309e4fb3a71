import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { type SqliteStoreOptions, sqliteStore } from "latchkey/sqlite";
import Database from "libsql";
import { type Books, type Receipt, type Ride, receiptColumns, rideColumns } from "./books.ts";

const tables = `
  CREATE TABLE IF NOT EXISTS rides (
    id TEXT PRIMARY KEY,
    user_name TEXT NOT NULL,
    origin TEXT NOT NULL,
    target TEXT NOT NULL,
    fare_cents INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'created',
    charge_id TEXT
  ) STRICT;
  CREATE TABLE IF NOT EXISTS audit_records (
    id INTEGER PRIMARY KEY,
    ride_id TEXT NOT NULL REFERENCES rides (id),
    action TEXT NOT NULL
  ) STRICT;
  CREATE TABLE IF NOT EXISTS receipts (
    id INTEGER PRIMARY KEY,
    ride_id TEXT NOT NULL REFERENCES rides (id),
    charge_id TEXT NOT NULL
  ) STRICT;
`;

/** Everything in one file. Its driver is synchronous, so a phase never waits for anything but the disk. */
export function sqliteBooks(path: string, options?: SqliteStoreOptions): Books<Database.Database> {
  mkdirSync(dirname(path), { recursive: true });
  const database = new Database(path);
  // The store goes first: it decides how the file is locked and when it is synced.
  const store = sqliteStore(database, options);
  database.exec(tables);
  const audit = (tx: Database.Database, rideId: string, action: string) =>
    tx.prepare("INSERT INTO audit_records (ride_id, action) VALUES (?, ?)").run(rideId, action);

  return {
    store,
    insertRide(tx, { id, user, from, to, fareCents }) {
      tx.prepare("INSERT INTO rides (id, user_name, origin, target, fare_cents) VALUES (?, ?, ?, ?, ?)").run(
        id,
        user,
        from,
        to,
        fareCents,
      );
      audit(tx, id, "created");
    },
    settleRide(tx, { id, state, chargeId }) {
      tx.prepare("UPDATE rides SET state = ?, charge_id = ? WHERE id = ?").run(state, chargeId, id);
      audit(tx, id, state);
    },
    insertReceipt(tx, { ride, charge }) {
      tx.prepare("INSERT INTO receipts (ride_id, charge_id) VALUES (?, ?)").run(ride, charge);
    },
    async ride(id) {
      return database.prepare(`SELECT ${rideColumns} FROM rides WHERE id = ?`).get(id) as Ride | undefined;
    },
    async rides() {
      return database.prepare(`SELECT ${rideColumns} FROM rides`).all() as Ride[];
    },
    async receipts() {
      const all = database.prepare(`SELECT ${receiptColumns} FROM receipts`).all();
      return all as Receipt[];
    },
    async actions(rideId) {
      const rows = database
        .prepare("SELECT action FROM audit_records WHERE ride_id = ? ORDER BY id")
        .all(rideId) as { action: string }[];
      return rows.map(({ action }) => action);
    },
    async close() {
      database.close();
    },
  };
}
