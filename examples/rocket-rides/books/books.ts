import type { Store } from "latchkey";

export interface Ride {
  readonly id: string;
  readonly user: string;
  readonly from: string;
  readonly to: string;
  readonly fareCents: number;
  readonly state: "created" | "paid" | "declined";
  readonly chargeId: string | null;
}

export interface Receipt {
  readonly ride: string;
  readonly charge: string;
}

/**
 * The service's own tables. They live in the database of the store, so that what is written through `tx` commits with
 * the recovery point or not at all.
 */
export interface Books<Tx> {
  readonly store: Store<Tx>;
  /** A new ride, and an audit record that says so. */
  insertRide(tx: Tx, ride: Pick<Ride, "id" | "user" | "from" | "to" | "fareCents">): void | Promise<void>;
  /** How the payment of a ride ended, and an audit record that says so. */
  settleRide(
    tx: Tx,
    ride: { readonly id: string; readonly state: "paid" | "declined"; readonly chargeId: string },
  ): void | Promise<void>;
  insertReceipt(tx: Tx, receipt: Receipt): void | Promise<void>;
  ride(id: string): Promise<Ride | undefined>;
  rides(): Promise<readonly Ride[]>;
  receipts(): Promise<readonly Receipt[]>;
  /** What the audit records say, the oldest first. */
  actions(rideId: string): Promise<readonly string[]>;
  /** After the store has been closed. */
  close(): Promise<void>;
}

/** A row as the type above; the names are quoted because `from` and `to` mean something in SQL. */
export const rideColumns = `
  id, user_name AS "user", origin AS "from", target AS "to", fare_cents AS "fareCents", state, charge_id AS "chargeId"
`;

export const receiptColumns = 'ride_id AS "ride", charge_id AS "charge"';
