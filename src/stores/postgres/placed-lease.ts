import type { Lease } from "../../core/store.ts";

/**
 * A lease that knows where its row was when it was reserved. Whoever makes a copy of it has a lease like any other, whose
 * row is looked for.
 */
export class PlacedLease implements Lease {
  readonly scope: string;
  readonly key: string;
  readonly fence: number;
  readonly owner: string;
  readonly #place: string;

  constructor({ scope, key, fence, owner }: Lease, place: string) {
    this.scope = scope;
    this.key = key;
    this.fence = fence;
    this.owner = owner;
    this.#place = place;
  }

  /** As Postgres writes it: `(page,number)`. */
  static placeOf(lease: Lease): string | undefined {
    return #place in lease ? lease.#place : undefined;
  }
}
