import { type RecordId, recordIdText } from "../../core/record.ts";

export interface NamesOptions {
  readonly keyPrefix: string;
  readonly prefix: string;
  readonly buckets: number;
}

/**
 * What everything is called on the server. Each record is in one of a fixed number of buckets, and all keys of a bucket
 * begin with its tag, whose braces put them into one slot of a cluster. Records are named by their full id, so that two
 * of them can never be taken for each other.
 */
export class Names {
  /** The beginning of all keys of each bucket; all of the same length. */
  readonly tags: readonly string[];
  readonly tagBytes: number;
  /** Matches, as a server matches its keys, those of records and of their requests. */
  readonly recordPattern: string;
  /** Holds the number of buckets that the data was written with. */
  readonly bucketsKey: string;
  readonly #tagSet: ReadonlySet<string>;

  constructor({ keyPrefix, prefix, buckets }: NamesOptions) {
    const digits = String(buckets - 1).length;
    const start = `${keyPrefix}{${prefix}:`;
    this.tags = Array.from(
      { length: buckets },
      (_, bucket) => `${start}${String(bucket).padStart(digits, "0")}}`,
    );
    this.recordPattern = `${start.replaceAll(globCharacters, "\\$&")}*}[0-9${odd}q]*`;
    this.tagBytes = Buffer.byteLength(this.tags[0] ?? "");
    this.#tagSet = new Set(this.tags);
    this.bucketsKey = `${keyPrefix}${prefix}:buckets`;
  }

  keyOf(id: RecordId): string {
    return this.tagOf(id) + nameOf(id);
  }

  /** The tag and the name in the key of a record, or of its request; undefined if it is another store's. */
  splitKey(
    key: string,
  ): { readonly tag: string; readonly name: string; readonly isRequest: boolean } | undefined {
    const tag = key.slice(0, this.tags[0]?.length);
    if (!this.#tagSet.has(tag)) return undefined;
    const name = key.slice(tag.length);
    const isRequest = name.startsWith("q");
    return { tag, name: isRequest ? name.slice(1) : name, isRequest };
  }

  tagOf(id: RecordId): string {
    return this.tags[this.bucketOf(id)] ?? "";
  }

  bucketOf(id: RecordId): number {
    return this.tags.length === 1 ? 0 : this.#bucketOfName(nameOf(id));
  }

  /** Notes are spread over the buckets as records are, beside them. */
  noteKeyOf(name: string): string {
    return `${this.tags[this.#bucketOfName(name)]}n${name}`;
  }

  #bucketOfName(name: string): number {
    return hashOf(name) % this.tags.length;
  }
}

/** The part of a record's key behind the tag. */
export function nameOf(id: RecordId): string {
  const text = recordIdText(id);
  // Half of a surrogate pair has no UTF-8 of its own, and two different ones would become the same.
  return halfSurrogate.test(text) ? odd + Buffer.from(text, "utf16le").toString("base64") : text;
}

export function idOf(name: string): RecordId {
  const text = name.startsWith(odd)
    ? Buffer.from(name.slice(odd.length), "base64").toString("utf16le")
    : name;
  const colon = text.indexOf(":");
  const keyEnd = colon + 1 + Number(text.slice(0, colon));
  return { key: text.slice(colon + 1, keyEnd), scope: text.slice(keyEnd) };
}

const halfSurrogate = /\p{Surrogate}/u;
const globCharacters = /[\\*?[\]^-]/g;
/** What no other name begins with: they begin with a digit. */
const odd = "*";

/** FNV-1a: the same in every process and for ever, because it says where a record is. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  // Its low bits alone would tell similar names apart badly.
  return (hash ^ (hash >>> 15)) >>> 0;
}
