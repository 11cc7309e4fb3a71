import type { IdempotencyRecord, RecordId } from "../../core/record.ts";
import type { StoredRequest } from "../../core/stored-request.ts";

export interface Entry {
  record: IdempotencyRecord;
  /** Who holds or held the latest lease. Left out where somebody else has moved the record on. */
  readonly lastOwner: string | undefined;
  /** Kept until the outcome is known. */
  request: StoredRequest | undefined;
}

/**
 * What is kept, by scope and then by key. A name of both would have to be put together and hashed for every question, and to be
 * kept; a scope mostly is the one of the question before, and a key stays the same string from its request to its settlement.
 */
export class Entries {
  readonly #scopes = new Map<string, Map<string, Entry>>();

  get({ scope, key }: RecordId): Entry | undefined {
    return this.#scopes.get(scope)?.get(key);
  }

  set({ scope, key }: RecordId, entry: Entry): void {
    const keys = this.#scopes.get(scope);
    if (keys === undefined) this.#scopes.set(scope, new Map([[key, entry]]));
    else keys.set(key, entry);
  }

  delete({ scope, key }: RecordId): void {
    const keys = this.#scopes.get(scope);
    keys?.delete(key);
    if (keys?.size === 0) this.#scopes.delete(scope);
  }

  /** Scope by scope. Whoever stops half-way through one is shown the others first the next time: none comes too short. */
  *[Symbol.iterator](): Iterator<Entry> {
    for (const [scope, keys] of this.#scopes) {
      let isThrough = false;
      try {
        yield* keys.values();
        isThrough = true;
      } finally {
        if (!isThrough && this.#scopes.delete(scope)) this.#scopes.set(scope, keys);
      }
    }
  }
}
