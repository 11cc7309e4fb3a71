import type { Lease } from "../core/store.ts";

/**
 * A lease that knows where its record was when it was reserved, as the store tells places. It is only where to look first:
 * whoever makes a copy of it has a lease like any other, whose record is looked for by its name.
 */
export class PlacedLease implements Lease {
  readonly scope: string;
  readonly key: string;
  readonly fence: number;
  readonly owner: string;
  readonly #place: unknown;

  constructor({ scope, key, fence, owner }: Lease, place: unknown) {
    this.scope = scope;
    this.key = key;
    this.fence = fence;
    this.owner = owner;
    this.#place = place;
  }

  /** Every lease of a store has a place of one kind, or none. */
  static placeOf<Place>(lease: Lease): Place | undefined {
    return #place in lease ? (lease.#place as Place) : undefined;
  }
}
