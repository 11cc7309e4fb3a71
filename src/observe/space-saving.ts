/** A name, and how often it was counted: at least `count - error` times, and at most `count` times. */
export interface Counted {
  readonly name: string;
  readonly count: number;
  readonly error: number;
}

interface Entry {
  name: string;
  count: number;
  error: number;
  /** Its place in the heap. */
  at: number;
}

/**
 * The most frequent of any number of names, in memory for `capacity` of them (the Space-Saving algorithm of Metwally,
 * Agrawal and El Abbadi). A name that comes new takes the place of the rarest and inherits its count as its error: so
 * whatever came more often than one in `capacity` is always among them.
 */
export class SpaceSaving {
  readonly #capacity: number;
  readonly #byName = new Map<string, Entry>();
  /** The rarest first: a binary heap. */
  readonly #heap: Entry[] = [];

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  add(name: string, times: number): void {
    const known = this.#byName.get(name);
    if (known !== undefined) {
      known.count += times;
      this.#sink(known);
      return;
    }
    if (this.#heap.length < this.#capacity) {
      const entry: Entry = { name, count: times, error: 0, at: this.#heap.length };
      this.#byName.set(name, entry);
      this.#heap.push(entry);
      this.#rise(entry);
      return;
    }
    const rarest = this.#heap[0] as Entry;
    this.#byName.delete(rarest.name);
    rarest.name = name;
    rarest.error = rarest.count;
    rarest.count += times;
    this.#byName.set(name, rarest);
    this.#sink(rarest);
  }

  /** In no particular order. */
  entries(): Iterable<Counted> {
    return this.#heap;
  }

  clear(): void {
    this.#byName.clear();
    this.#heap.length = 0;
  }

  #rise(entry: Entry): void {
    while (entry.at > 0) {
      const parent = this.#heap[(entry.at - 1) >> 1] as Entry;
      if (parent.count <= entry.count) return;
      this.#swap(parent, entry);
    }
  }

  #sink(entry: Entry): void {
    for (;;) {
      const left = this.#heap[2 * entry.at + 1];
      if (left === undefined) return;
      const right = this.#heap[2 * entry.at + 2];
      const child = right !== undefined && right.count < left.count ? right : left;
      if (entry.count <= child.count) return;
      this.#swap(entry, child);
    }
  }

  #swap(upper: Entry, lower: Entry): void {
    const { at } = upper;
    upper.at = lower.at;
    lower.at = at;
    this.#heap[upper.at] = upper;
    this.#heap[lower.at] = lower;
  }
}
