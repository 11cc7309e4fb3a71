import { migrate, postgresStore } from "latchkey/postgres";
import pg from "pg";
import { type Books, type Receipt, type Ride, receiptColumns, rideColumns } from "./books.ts";

const tables = `
  CREATE TABLE IF NOT EXISTS rides (
    id text PRIMARY KEY,
    user_name text NOT NULL,
    origin text NOT NULL,
    target text NOT NULL,
    fare_cents integer NOT NULL,
    state text NOT NULL DEFAULT 'created',
    charge_id text
  );
  CREATE TABLE IF NOT EXISTS audit_records (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ride_id text NOT NULL REFERENCES rides (id),
    action text NOT NULL
  );
  CREATE TABLE IF NOT EXISTS receipts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ride_id text NOT NULL REFERENCES rides (id),
    charge_id text NOT NULL
  );
`;

/** Makes the tables, Latchkey's and ours, where they are missing: once, before the first process of a deployment. */
export async function preparePostgres(url: string): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  try {
    await migrate(pool);
    await pool.query(tables);
  } finally {
    await pool.end();
  }
}

/** Everything in one Postgres database, through the service's own pool. */
export function postgresBooks(
  url: string,
  options: { readonly connections?: number } = {},
): Books<pg.PoolClient> {
  const pool = new pg.Pool({ connectionString: url, max: options.connections ?? 10 });
  const rows = async <Row>(sql: string, parameters: readonly string[] = []): Promise<readonly Row[]> =>
    (await pool.query(sql, [...parameters])).rows as Row[];

  return {
    store: postgresStore(pool),
    async insertRide(tx, { id, user, from, to, fareCents }) {
      await tx.query(
        "INSERT INTO rides (id, user_name, origin, target, fare_cents) VALUES ($1, $2, $3, $4, $5)",
        [id, user, from, to, fareCents],
      );
      await tx.query("INSERT INTO audit_records (ride_id, action) VALUES ($1, 'created')", [id]);
    },
    async settleRide(tx, { id, state, chargeId }) {
      await tx.query("UPDATE rides SET state = $1, charge_id = $2 WHERE id = $3", [state, chargeId, id]);
      await tx.query("INSERT INTO audit_records (ride_id, action) VALUES ($1, $2)", [id, state]);
    },
    async insertReceipt(tx, { ride, charge }) {
      await tx.query("INSERT INTO receipts (ride_id, charge_id) VALUES ($1, $2)", [ride, charge]);
    },
    async ride(id) {
      const [ride] = await rows<Ride>(`SELECT ${rideColumns} FROM rides WHERE id = $1`, [id]);
      return ride;
    },
    rides: () => rows<Ride>(`SELECT ${rideColumns} FROM rides`),
    receipts: () => rows<Receipt>(`SELECT ${receiptColumns} FROM receipts`),
    async actions(rideId) {
      const sql = "SELECT action FROM audit_records WHERE ride_id = $1 ORDER BY id";
      return (await rows<{ action: string }>(sql, [rideId])).map(({ action }) => action);
    },
    close: () => pool.end(),
  };
}
