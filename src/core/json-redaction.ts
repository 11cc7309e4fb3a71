import { isUtf8 } from "node:buffer";
import { bufferOf } from "./bytes.ts";
import { afterColon, afterSpace, byte, endOfString, endOfValue, isAt, notJson } from "./json-scan.ts";

/** A place in JSON: the names of members, one after the other; `everyItem` for the items of an array. */
export type JsonPath = readonly string[];

const everyItem = "[*]";

/** Reads a path such as `card.number` or `items[*].secret`; undefined if it is none. */
export function parseJsonPath(text: unknown): JsonPath | undefined {
  if (typeof text !== "string" || !/^(?:[^.[\]]+|\[\*\])(?:\.[^.[\]]+|\[\*\])*$/.test(text)) return undefined;
  return text.match(/[^.[\]]+|\[\*\]/g) ?? undefined;
}

/** What is looked for from one place on: all paths at once, put in order when a route is made, not for each answer. */
export class Places {
  /** The value itself is one that is replaced. */
  readonly isHere: boolean;
  readonly members: readonly MemberPlaces[];
  /** A path that forgets an array is looked for in each of its items: too much is better than too little. */
  readonly items: Places;

  constructor(paths: readonly JsonPath[]) {
    const steps = new Set(paths.flatMap(([step]) => step ?? []));
    const below = (name: string) => paths.filter(([step]) => step === name).map((path) => path.slice(1));
    this.isHere = paths.some((path) => path.length === 0);
    this.members = Array.from(steps, (name) => ({
      name,
      bytes: Buffer.from(name),
      places: new Places(below(name)),
    }));
    const inItems = () => paths.map((path) => (path[0] === everyItem ? path.slice(1) : path));
    this.items = steps.has(everyItem) ? new Places(inItems()) : this;
  }
}

interface MemberPlaces {
  readonly name: string;
  /** The name as it is mostly written: without an escape. */
  readonly bytes: Uint8Array;
  readonly places: Places;
}

/**
 * The JSON with the values at these paths replaced, and every other byte as it was: a number that is read and written
 * again may be another one. Undefined if it is not JSON; the same bytes if there was nothing to replace.
 */
export function redactJson(json: Uint8Array, places: Places): Uint8Array | undefined {
  if (!isUtf8(json)) return undefined;
  const redacting = new Redacting(json);
  try {
    return redacting.run(places);
  } catch (error) {
    // Nested more deeply than can be walked: nothing may be thrown once the handler has answered.
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** The name that a string of JSON is; most of them escape nothing. */
function nameIn(quoted: string): string {
  return quoted.includes("\\") ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
}

const replacement = Buffer.from(JSON.stringify("[redacted]"));

/** Walks over the bytes once. It looks at names no further down than the paths go. */
class Redacting {
  readonly #json: Uint8Array;
  /** Whether any name may be written otherwise than it reads. */
  readonly #hasEscapes: boolean;
  /** Where each value that is replaced begins and ends, one after the other. */
  readonly #cuts: number[] = [];

  constructor(json: Uint8Array) {
    this.#json = json;
    this.#hasEscapes = json.includes(byte.backslash);
  }

  run(places: Places): Uint8Array | undefined {
    const json = this.#json;
    const end = this.#value(afterSpace(json, 0), places);
    if (end === notJson || afterSpace(json, end) !== json.length) return undefined;
    return this.#cuts.length === 0 ? json : this.#replaced();
  }

  #value(at: number, { isHere, members, items }: Places): number {
    const json = this.#json;
    if (isHere) {
      const end = endOfValue(json, at);
      this.#cuts.push(at, end);
      return end;
    }
    if (members.length > 0 && json[at] === byte.objectStart) return this.#object(at, members);
    if (members.length > 0 && json[at] === byte.arrayStart) return this.#array(at, items);
    return endOfValue(json, at);
  }

  #object(from: number, members: Places["members"]): number {
    const json = this.#json;
    let at = afterSpace(json, from + 1);
    if (json[at] === byte.objectEnd) return at + 1;
    for (;;) {
      const nameEnd = endOfString(json, at);
      const valueAt = afterColon(json, nameEnd);
      if (valueAt === notJson) return notJson;
      // A name that comes twice is redacted twice.
      const below = this.#placesOf(at + 1, nameEnd - 1, members);
      const end = below === undefined ? endOfValue(json, valueAt) : this.#value(valueAt, below);
      if (end === notJson) return notJson;
      at = afterSpace(json, end);
      if (json[at] === byte.objectEnd) return at + 1;
      if (json[at] !== byte.comma) return notJson;
      at = afterSpace(json, at + 1);
    }
  }

  #array(from: number, items: Places): number {
    const json = this.#json;
    let at = afterSpace(json, from + 1);
    if (json[at] === byte.arrayEnd) return at + 1;
    for (;;) {
      const end = this.#value(at, items);
      if (end === notJson) return notJson;
      at = afterSpace(json, end);
      if (json[at] === byte.arrayEnd) return at + 1;
      if (json[at] !== byte.comma) return notJson;
      at = afterSpace(json, at + 1);
    }
  }

  /** What is looked for below the member with the name that stands between these two. */
  #placesOf(from: number, end: number, members: Places["members"]): Places | undefined {
    const json = this.#json;
    if (!this.#hasEscapes) {
      for (const { bytes, places } of members) {
        if (bytes.length === end - from && isAt(json, from, bytes)) return places;
      }
      return undefined;
    }
    const written = nameIn(bufferOf(json).toString("utf8", from - 1, end + 1));
    return members.find(({ name }) => name === written)?.places;
  }

  #replaced(): Uint8Array {
    const json = this.#json;
    const cuts = this.#cuts;
    let length = json.length;
    for (let cut = 0; cut < cuts.length; cut += 2) {
      length += replacement.length - ((cuts[cut + 1] as number) - (cuts[cut] as number));
    }
    const redacted = Buffer.allocUnsafe(length);
    let to = 0;
    let from = 0;
    for (let cut = 0; cut < cuts.length; cut += 2) {
      const kept = json.subarray(from, cuts[cut]);
      redacted.set(kept, to);
      redacted.set(replacement, to + kept.length);
      to += kept.length + replacement.length;
      from = cuts[cut + 1] as number;
    }
    redacted.set(json.subarray(from), to);
    return redacted;
  }
}
