import { isPlainObject, layoutOf, sortNames } from "./canonical-json.ts";

/**
 * The canonical form (RFC 8785) of an ordinary JSON value as bytes, or `undefined` where anything in it is out of the
 * ordinary: then `canonicalizeValue` has to say what it is, or why it is refused.
 *
 * Whatever this answers is what `canonicalizeValue` would, in UTF-8. It takes half of the time, because a text would be
 * put together from hundreds of pieces first, and then be made into bytes to be hashed. The answer lies in memory that
 * the next call uses again.
 */
export function canonicalizeValueBytes(value: unknown): Uint8Array | undefined {
  return writer.write(value);
}

// Beyond this the memory that is kept for the next call is worth more than the time.
const bytesMax = 1024 * 1024;

// What is deeper is left to a writer that does not mind.
const depthMax = 64;

// Here and not in a module of their own: an imported constant is looked up at every use.
const space = 0x20;
const quote = 0x22;
const comma = 0x2c;
const zero = 0x30;
const colon = 0x3a;
const openBracket = 0x5b;
const backslash = 0x5c;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const asciiEnd = 0x80;
const twoBytesEnd = 0x800;
const surrogates = { from: 0xd800, to: 0xdfff } as const;

/** No UTF-16 code unit becomes more, and an escaped one only two. */
const unitBytesMax = 3;

/** More than a number, a literal or a punctuation mark takes. */
const smallBytesMax = 32;

/** Every method answers false where the value is not ordinary. */
class ValueWriter {
  #memory = new Uint8Array(8192);
  /** The bytes of the memory: asking it costs more than most of what is written. */
  #room = 8192;
  #end = 0;
  #isBusy = false;

  write(value: unknown): Uint8Array | undefined {
    // A member may be computed when it is read, by code that comes here again.
    if (this.#isBusy) return undefined;
    this.#isBusy = true;
    this.#end = 0;
    try {
      return this.#value(value, 0) ? this.#memory.subarray(0, this.#end) : undefined;
    } finally {
      this.#isBusy = false;
    }
  }

  #value(value: unknown, depth: number): boolean {
    switch (typeof value) {
      case "string":
        return this.#string(value);
      case "number":
        return this.#number(value);
      case "boolean":
        return this.#bytes(value ? literals.true : literals.false);
      case "object":
        if (value === null) return this.#bytes(literals.null);
        if (depth === depthMax) return false;
        if (Array.isArray(value)) return this.#array(value, depth + 1);
        return isPlainObject(value) && this.#object(value, depth + 1);
      default:
        return false;
    }
  }

  #array(items: readonly unknown[], depth: number): boolean {
    if (!this.#byte(openBracket)) return false;
    for (let i = 0; i < items.length; i++) {
      if (i > 0 && !this.#byte(comma)) return false;
      if (!this.#value(items[i], depth)) return false;
    }
    return this.#byte(closeBracket);
  }

  #object(members: Record<string, unknown>, depth: number): boolean {
    const names = Object.keys(members);
    const layout = layoutOf(names);
    const sorted = layout?.sorted ?? sortNames(names);
    const start = this.#end;
    for (let i = 0; i < sorted.length; i++) {
      const name = sorted[i] as string;
      const value = members[name];
      if (value === undefined) continue;
      const begun = this.#end;
      const isNamed =
        layout === undefined ? this.#name(name) : this.#bytes(layout.followingBytes[i] as Uint8Array);
      if (!isNamed) return false;
      // What was written before the name is a comma.
      if (begun === start) this.#memory[begun] = openBrace;
      if (!this.#value(value, depth)) return false;
    }
    if (this.#end === start && !this.#byte(openBrace)) return false;
    return this.#byte(closeBrace);
  }

  #name(name: string): boolean {
    return this.#byte(comma) && this.#string(name) && this.#byte(colon);
  }

  #string(text: string): boolean {
    const length = text.length;
    if (!this.#makeRoom(unitBytesMax * length + 2)) return false;
    const memory = this.#memory;
    let end = this.#end;
    memory[end++] = quote;
    for (let i = 0; i < length; i++) {
      const unit = text.charCodeAt(i);
      if (unit < asciiEnd) {
        if (unit === quote || unit === backslash) memory[end++] = backslash;
        else if (unit < space) return false;
        memory[end++] = unit;
      } else if (unit < twoBytesEnd) {
        memory[end++] = 0xc0 | (unit >> 6);
        memory[end++] = 0x80 | (unit & 0x3f);
      } else if (unit < surrogates.from || unit > surrogates.to) {
        memory[end++] = 0xe0 | (unit >> 12);
        memory[end++] = 0x80 | ((unit >> 6) & 0x3f);
        memory[end++] = 0x80 | (unit & 0x3f);
      } else return false;
    }
    memory[end++] = quote;
    this.#end = end;
    return true;
  }

  #number(value: number): boolean {
    if (!Number.isFinite(value) || !this.#makeRoom(smallBytesMax)) return false;
    const memory = this.#memory;
    let end = this.#end;
    if (value >= 0 && value < smallNumbersEnd && Number.isInteger(value)) {
      let digits = 1;
      for (let ten = 10; ten <= value; ten *= 10) digits++;
      end += digits;
      let rest = value | 0;
      for (let at = end - 1; digits > 0; digits--, at--) {
        const next = (rest / 10) | 0;
        memory[at] = zero + rest - 10 * next;
        rest = next;
      }
    } else {
      // ECMAScript's own number-to-string is what RFC 8785 prescribes.
      const text = String(value);
      for (let i = 0; i < text.length; i++) memory[end++] = text.charCodeAt(i);
    }
    this.#end = end;
    return true;
  }

  #bytes(bytes: Uint8Array): boolean {
    const { length } = bytes;
    if (!this.#makeRoom(length)) return false;
    const memory = this.#memory;
    const end = this.#end;
    for (let i = 0; i < length; i++) memory[end + i] = bytes[i] as number;
    this.#end = end + length;
    return true;
  }

  #byte(byte: number): boolean {
    if (!this.#makeRoom(1)) return false;
    this.#memory[this.#end++] = byte;
    return true;
  }

  #makeRoom(bytes: number): boolean {
    const needed = this.#end + bytes;
    return needed <= this.#room || this.#grow(needed);
  }

  #grow(needed: number): boolean {
    if (needed > bytesMax) return false;
    const memory = new Uint8Array(2 ** Math.ceil(Math.log2(needed)));
    memory.set(this.#memory.subarray(0, this.#end));
    this.#memory = memory;
    this.#room = memory.length;
    return true;
  }
}

/** Those whose digits are found with the arithmetic of small integers. */
const smallNumbersEnd = 1_000_000_000;

/** No Buffer: code that meets two kinds of arrays takes twice as long with either. */
const literals = {
  true: new Uint8Array(Buffer.from("true")),
  false: new Uint8Array(Buffer.from("false")),
  null: new Uint8Array(Buffer.from("null")),
} as const;

const writer = new ValueWriter();
