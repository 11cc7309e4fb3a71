import type { Lease } from "../../core/store.ts";
import { type ArrayParameter, int4, text } from "./arrays.ts";

/*
 * What the calls of a batch have in common, as the arrays that functions take.
 */

/** Undefined where a call has to be made alone. */
export type Answers<Answer> = readonly (Answer | undefined)[];

interface Kinds<T> {
  readonly numbers: readonly number[];
  /** The first of each kind. */
  readonly samples: readonly T[];
}

/**
 * Which calls a function tells of. NULL stands for all of them. No answer at all stands for none: nothing is promised that the
 * database has not said.
 */
export function toldOf(positions: string | null | undefined): (index: number) => boolean {
  if (positions === null) return () => true;
  const set = new Set(positions?.split(","));
  return (index) => set.has(String(index + 1));
}

/** A batch sends what many calls have in common once, and for each call only the number of its kind, from 1. */
export function kindsOf<T>(
  items: readonly T[],
  isSame: (a: T, b: T) => boolean,
  nameOf: (item: T) => string,
): Kinds<T> {
  const known = new Map<string, number>();
  const samples: T[] = [];
  let last: { readonly item: T; readonly number: number } | undefined;
  const numbers = items.map((item) => {
    // Mostly all are alike, and names need not be made to see it.
    if (last !== undefined && isSame(last.item, item)) return last.number;
    const name = nameOf(item);
    let number = known.get(name);
    if (number === undefined) {
      number = samples.push(item);
      known.set(name, number);
    }
    last = { item, number };
    return number;
  });
  return { numbers, samples };
}

/** What a lease is held by, as the first four parameters of a function. */
export function held(leases: readonly Lease[]): ArrayParameter[] {
  return [
    text(leases, (lease) => lease.scope),
    text(leases, (lease) => lease.key),
    int4(leases, (lease) => lease.fence),
    text(leases, (lease) => lease.owner),
  ];
}
