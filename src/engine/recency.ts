/** What can be put in order by when it was last used. */
export interface Used<T> {
  older: T | undefined;
  newer: T | undefined;
}

/**
 * The order in which things were last used, as a list through the things themselves. The order of a `Map` would do, but
 * what was deleted at its front is walked over again by whoever looks for the oldest, which was measured to cost ten
 * times as much as everything else that a full cache does.
 */
export class Recency<T extends Used<T>> {
  #oldest: T | undefined;
  #newest: T | undefined;

  get oldest(): T | undefined {
    return this.#oldest;
  }

  add(item: T): void {
    item.older = this.#newest;
    item.newer = undefined;
    if (this.#newest === undefined) this.#oldest = item;
    else this.#newest.newer = item;
    this.#newest = item;
  }

  delete(item: T): void {
    if (item.older === undefined) this.#oldest = item.newer;
    else item.older.newer = item.newer;
    if (item.newer === undefined) this.#newest = item.older;
    else item.newer.older = item.older;
    item.older = undefined;
    item.newer = undefined;
  }

  use(item: T): void {
    if (item === this.#newest) return;
    this.delete(item);
    this.add(item);
  }

  clear(): void {
    this.#oldest = undefined;
    this.#newest = undefined;
  }
}
