import type { RecordId } from "./record.ts";

/** What is in such a table, and in one at a time. The table sets these, and nobody else. */
export interface BriefEntry<Entry> extends RecordId {
  hash: number;
  nextInBucket: Entry | undefined;
}

/**
 * What comes and goes with every request, by scope and key.
 *
 * A `Map` answers that with new tables all the time, each of which is pointed at by the one before and keeps its names alive
 * until a full collection of garbage. This is one table that stays, through the entries themselves: it needs neither a name
 * that is put together for every request nor anything else of its own.
 */
export class BriefTable<Entry extends BriefEntry<Entry>> {
  #buckets: (Entry | undefined)[] = emptyBuckets(bucketsMin);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(id: RecordId): Entry | undefined {
    const hash = hashOfName(id);
    for (let each = this.#buckets[this.#place(hash)]; each !== undefined; each = each.nextInBucket) {
      if (each.hash === hash && each.key === id.key && each.scope === id.scope) return each;
    }
    return undefined;
  }

  /** Whoever adds one has seen that there is none of its name. */
  add(entry: Entry): void {
    if (this.#size >= this.#buckets.length) this.#grow();
    entry.hash = hashOfName(entry);
    this.#put(entry);
    this.#size += 1;
  }

  /** By identity: the name may be another request's by now. */
  delete(entry: Entry): void {
    const place = this.#place(entry.hash);
    let before: Entry | undefined;
    for (let each = this.#buckets[place]; each !== undefined; each = each.nextInBucket) {
      if (each === entry) {
        if (before === undefined) this.#buckets[place] = entry.nextInBucket;
        else before.nextInBucket = entry.nextInBucket;
        entry.nextInBucket = undefined;
        this.#size -= 1;
        return;
      }
      before = each;
    }
  }

  #put(entry: Entry): void {
    const place = this.#place(entry.hash);
    entry.nextInBucket = this.#buckets[place];
    this.#buckets[place] = entry;
  }

  #place(hash: number): number {
    return hash & (this.#buckets.length - 1);
  }

  #grow(): void {
    const full = this.#buckets;
    this.#buckets = emptyBuckets(2 * full.length);
    for (let each of full) {
      while (each !== undefined) {
        const next: Entry | undefined = each.nextInBucket;
        this.#put(each);
        each = next;
      }
    }
  }
}

/** More than most processes ever have under way. */
const bucketsMin = 1024;

function emptyBuckets(count: number): undefined[] {
  return new Array<undefined>(count).fill(undefined);
}

/** Another one in each process, so that keys which all fall into one bucket are not found by trying them out at home. */
const seed = Math.floor(Math.random() * 2 ** 32) | 0;

/** Mostly the next request has the same scope. */
let lastScope = "";
let hashOfLastScope = hashOf(lastScope, seed);

/** Each request is looked for and then added, in one table after the other. */
let lastKey = "";
let hashOfLastName = hashOf(lastKey, hashOfLastScope);

function hashOfName({ scope, key }: RecordId): number {
  if (lastScope !== scope) {
    lastScope = scope;
    hashOfLastScope = hashOf(scope, seed);
  } else if (lastKey === key) return hashOfLastName;
  lastKey = key;
  hashOfLastName = hashOf(key, hashOfLastScope);
  return hashOfLastName;
}

/** One-at-a-time, by Bob Jenkins: what the engine of JavaScript itself takes for the names in a `Map`. */
function hashOf(text: string, from: number): number {
  let hash = from;
  for (let i = 0; i < text.length; i++) {
    hash = (hash + text.charCodeAt(i)) | 0;
    hash = (hash + (hash << 10)) | 0;
    hash ^= hash >>> 6;
  }
  hash = (hash + (hash << 3)) | 0;
  hash ^= hash >>> 11;
  return (hash + (hash << 15)) | 0;
}
