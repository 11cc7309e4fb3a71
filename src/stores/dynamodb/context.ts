import type { IdempotencyRecord } from "../../core/record.ts";
import type { Bodies } from "./bodies.ts";
import type { Records } from "./records.ts";

/** What every verb of the store works with. */
export interface Context {
  readonly records: Records;
  readonly bodies: Bodies;
  readonly now: () => number;
  /** By how much the clocks of two processes may differ. */
  readonly clockSkewMs: number;
}

/**
 * A record as this process may judge it: its clock may be ahead of the owner's, so that a lease counts as lapsed only
 * when it is over by the slowest clock.
 */
export function forgiving<R extends IdempotencyRecord>(record: R, clockSkewMs: number): R {
  return record.state === "in_progress" ? { ...record, leaseUntil: record.leaseUntil + clockSkewMs } : record;
}
