import type { Bodies } from "./bodies.ts";
import type { ItemEntry } from "./record-item.ts";
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
export function forgiving<E extends ItemEntry | undefined>(entry: E, { clockSkewMs }: Context): E {
  if (entry?.record.state !== "in_progress") return entry;
  const { record } = entry;
  return { ...entry, record: { ...record, leaseUntil: record.leaseUntil + clockSkewMs } };
}
