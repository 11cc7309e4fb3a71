/*
 * Walks over the bytes of JSON without making anything of them. Each function is told where something begins and answers
 * with where it ends, or with `notJson`. Together they take exactly what `JSON.parse` takes, but for bytes that are not
 * UTF-8: those have to be looked for apart.
 */

/** The bytes are not JSON, from here on or before. */
export const notJson = -1;

export const byte = {
  quote: 0x22,
  comma: 0x2c,
  colon: 0x3a,
  arrayStart: 0x5b,
  backslash: 0x5c,
  arrayEnd: 0x5d,
  objectStart: 0x7b,
  objectEnd: 0x7d,
} as const;

const plus = 0x2b;
const minus = 0x2d;
const dot = 0x2e;
const zero = 0x30;
const nine = 0x39;
const letterE = 0x65;
const letterU = 0x75;

export function afterSpace(bytes: Uint8Array, from: number): number {
  let at = from;
  while (isSpace(bytes[at])) at += 1;
  return at;
}

function isSpace(code: number | undefined): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}

/** Any value, however deeply it is nested: what is open is kept in a list, and not on the stack. */
export function endOfValue(bytes: Uint8Array, from: number): number {
  let at = from;
  /** What closes each of them, the outermost first. */
  let open: number[] | undefined;
  for (;;) {
    const code = bytes[at];
    if (code === byte.objectStart || code === byte.arrayStart) {
      const end = code === byte.objectStart ? byte.objectEnd : byte.arrayEnd;
      at = afterSpace(bytes, at + 1);
      if (bytes[at] !== end) {
        if (end === byte.objectEnd) at = valueOfMember(bytes, at);
        if (at === notJson) return notJson;
        open ??= [];
        open.push(end);
        continue;
      }
      at += 1;
    } else {
      at = endOfScalar(bytes, at);
      if (at === notJson) return notJson;
    }
    if (open === undefined) return at;
    // A value has ended, and with it whatever it was the last of.
    for (;;) {
      const end = open.at(-1);
      if (end === undefined) return at;
      at = afterSpace(bytes, at);
      if (bytes[at] === byte.comma) {
        at = afterSpace(bytes, at + 1);
        if (end === byte.objectEnd) at = valueOfMember(bytes, at);
        if (at === notJson) return notJson;
        break;
      }
      if (bytes[at] !== end) return notJson;
      open.pop();
      at += 1;
    }
  }
}

/** From the name of a member to its value. */
function valueOfMember(bytes: Uint8Array, nameAt: number): number {
  return afterColon(bytes, endOfString(bytes, nameAt));
}

/** From the end of a name to the value that it names. */
export function afterColon(bytes: Uint8Array, nameEnd: number): number {
  if (nameEnd === notJson) return notJson;
  const colonAt = afterSpace(bytes, nameEnd);
  return bytes[colonAt] === byte.colon ? afterSpace(bytes, colonAt + 1) : notJson;
}

function endOfScalar(bytes: Uint8Array, from: number): number {
  switch (bytes[from]) {
    case byte.quote:
      return endOfString(bytes, from);
    case words.true[0]:
      return endOfWord(bytes, from, words.true);
    case words.false[0]:
      return endOfWord(bytes, from, words.false);
    case words.null[0]:
      return endOfWord(bytes, from, words.null);
    default:
      return endOfNumber(bytes, from);
  }
}

/** Behind the closing quote. */
export function endOfString(bytes: Uint8Array, from: number): number {
  if (bytes[from] !== byte.quote) return notJson;
  for (let at = from + 1; at < bytes.length; at += 1) {
    const code = bytes[at] as number;
    if (code === byte.quote) return at + 1;
    if (code < 0x20) return notJson;
    if (code !== byte.backslash) continue;
    at += 1;
    if (bytes[at] === letterU) {
      for (let digit = 0; digit < 4; digit += 1) {
        at += 1;
        if (!isHexDigit(bytes[at])) return notJson;
      }
    } else if (!escapes.has(bytes[at] ?? 0)) return notJson;
  }
  return notJson;
}

function endOfNumber(bytes: Uint8Array, from: number): number {
  let at = bytes[from] === minus ? from + 1 : from;
  // A number that begins with a zero has no other digit before its point.
  at = bytes[at] === zero ? at + 1 : endOfDigits(bytes, at);
  if (at !== notJson && bytes[at] === dot) at = endOfDigits(bytes, at + 1);
  if (at === notJson || ((bytes[at] ?? 0) | 0x20) !== letterE) return at;
  const signed = bytes[at + 1] === plus || bytes[at + 1] === minus;
  return endOfDigits(bytes, signed ? at + 2 : at + 1);
}

/** At least one. */
function endOfDigits(bytes: Uint8Array, from: number): number {
  let at = from;
  while (isDigit(bytes[at])) at += 1;
  return at === from ? notJson : at;
}

function endOfWord(bytes: Uint8Array, from: number, word: Uint8Array): number {
  return isAt(bytes, from, word) ? from + word.length : notJson;
}

/** Whether these bytes are there. */
export function isAt(bytes: Uint8Array, from: number, expected: Uint8Array): boolean {
  for (let at = 0; at < expected.length; at += 1) if (bytes[from + at] !== expected[at]) return false;
  return true;
}

function isDigit(code: number | undefined): boolean {
  return code !== undefined && code >= zero && code <= nine;
}

function isHexDigit(code: number | undefined): boolean {
  if (code === undefined || isDigit(code)) return code !== undefined;
  const lower = code | 0x20;
  return lower >= 0x61 && lower <= 0x66;
}

const words = { true: Buffer.from("true"), false: Buffer.from("false"), null: Buffer.from("null") };

/** What may stand behind a backslash, besides the number of a character. */
const escapes: ReadonlySet<number> = new Set(Buffer.from('"\\/bfnrt'));
