/** The outcome of bringing JSON into the one form that RFC 8785 (JCS) gives it. */
export type CanonicalJson =
  | { kind: "canonical"; text: string }
  | { kind: "notJson" }
  | { kind: "refused"; reason: CanonicalRefusal };

/**
 * Why a JSON document has no canonical form. In each case two readers could understand the same bytes
 * differently, and a fingerprint over a guess would let two different requests share a key.
 */
export type CanonicalRefusal =
  | "duplicate-member"
  | "lone-surrogate"
  | "number-out-of-range"
  | "too-deep"
  | "not-a-json-value";

/**
 * The canonical form (RFC 8785) of a JSON text: members sorted, whitespace gone, one spelling for each number
 * and string.
 *
 * @example
 * canonicalizeText('{ "b": 1.0, "a": "\\u0041" }'); // { kind: "canonical", text: '{"a":"A","b":1}' }
 */
export function canonicalizeText(text: string): CanonicalJson {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { kind: "notJson" };
  }
  const writing = newWriting({ isPlain: !escapeOrSurrogate.test(text) });
  const canonical = write(value, 0, writing);
  if (canonical === undefined) return { kind: "refused", reason: writing.refusal };
  // JSON.parse silently keeps the last of several equal names, however they were escaped. A missing member
  // gives that away without a second parser.
  if (hasMoreMembers(text, writing.membersWritten)) return { kind: "refused", reason: "duplicate-member" };
  return { kind: "canonical", text: canonical };
}

/**
 * The canonical form of a value that somebody else parsed, such as what a body parser left behind.
 *
 * Only plain JSON values have one. A member that is `undefined` is absent, as in `JSON.stringify`, but nothing
 * is converted: a `Date`, a `Map` or a class instance is refused, because which of its fields carry the
 * request's meaning is the caller's knowledge.
 */
export function canonicalizeValue(value: unknown): Exclude<CanonicalJson, { kind: "notJson" }> {
  const writing = newWriting({ isPlain: false });
  const canonical = write(value, 0, writing);
  if (canonical === undefined) return { kind: "refused", reason: writing.refusal };
  return { kind: "canonical", text: canonical };
}

// Far deeper than any API's documents, and far shallower than the stack of any runtime.
const depthMax = 512;

/** What one pass over a document knows and gathers. `refusal` counts only once the pass was given up. */
interface Writing {
  /** Every string of the document stands for itself, so that none of them has to be looked at. */
  readonly isPlain: boolean;
  membersWritten: number;
  refusal: CanonicalRefusal;
}

function newWriting({ isPlain }: { isPlain: boolean }): Writing {
  return { isPlain, membersWritten: 0, refusal: "not-a-json-value" };
}

/** Answers `undefined` as soon as anything is refused; the reason is then in `writing`. */
function write(value: unknown, depth: number, writing: Writing): string | undefined {
  switch (typeof value) {
    case "string":
      return writeString(value, writing);
    case "number":
      // ECMAScript's own number-to-string is what RFC 8785 prescribes, including "0" for -0.
      if (Number.isFinite(value)) return String(value);
      return refuse(writing, Number.isNaN(value) ? "not-a-json-value" : "number-out-of-range");
    case "boolean":
      return value ? "true" : "false";
    case "object":
      if (value === null) return "null";
      // A cyclic structure ends here as well.
      if (depth === depthMax) return refuse(writing, "too-deep");
      if (Array.isArray(value)) return writeArray(value, depth + 1, writing);
      if (isPlainObject(value)) return writeObject(value, depth + 1, writing);
      return refuse(writing, "not-a-json-value");
    default:
      return refuse(writing, "not-a-json-value");
  }
}

function writeArray(items: readonly unknown[], depth: number, writing: Writing): string | undefined {
  let text = "[";
  for (let i = 0; i < items.length; i++) {
    const item = write(items[i], depth, writing);
    if (item === undefined) return undefined;
    text += i === 0 ? item : `,${item}`;
  }
  return `${text}]`;
}

function writeObject(members: Record<string, unknown>, depth: number, writing: Writing): string | undefined {
  const names = Object.keys(members);
  const layout = layoutOf(names);
  if (layout === undefined) return writeMembers(members, sortNames(names), depth, writing);
  const { sorted, openings, followings } = layout;
  let text = "";
  for (let i = 0; i < sorted.length; i++) {
    const value = members[sorted[i] as string];
    if (value === undefined) continue;
    const valueText = write(value, depth, writing);
    if (valueText === undefined) return undefined;
    writing.membersWritten++;
    text += (text === "" ? openings : followings)[i] as string;
    text += valueText;
  }
  return text === "" ? "{}" : `${text}}`;
}

/** For objects of any size and with any names. */
function writeMembers(
  members: Record<string, unknown>,
  sorted: readonly string[],
  depth: number,
  writing: Writing,
): string | undefined {
  let text = "{";
  for (const name of sorted) {
    const value = members[name];
    if (value === undefined) continue;
    const nameText = writeString(name, writing);
    if (nameText === undefined) return undefined;
    const valueText = write(value, depth, writing);
    if (valueText === undefined) return undefined;
    writing.membersWritten++;
    text += text === "{" ? `${nameText}:${valueText}` : `,${nameText}:${valueText}`;
  }
  return `${text}}`;
}

/** How objects are written whose members have these names, in this order. */
interface Layout {
  readonly names: readonly string[];
  readonly sorted: readonly string[];
  /** What comes before each value, in the order of `sorted`, if it is the first: `{"name":`. */
  readonly openings: readonly string[];
  /** And if it is not: `,"name":`. */
  readonly followings: readonly string[];
  /** The same in UTF-8, for whoever writes bytes. */
  readonly followingBytes: readonly Uint8Array[];
}

/**
 * An API sees the same objects again and again: sorting and quoting the same names took nearly half of the time.
 * One layout for each first name and number of members; another object's takes its place.
 */
const layouts = new Map<string, (Layout | undefined)[]>();

// What clients may send must not fill the memory: at most some megabytes are kept, and a few kilobytes in practice.
const layoutsMax = 64;
const layoutNameLengthMax = 64;
const layoutNamesMax = 16;

/** Undefined where names need a closer look, or there are too many to be kept. */
export function layoutOf(names: readonly string[]): Layout | undefined {
  const [first] = names;
  if (first === undefined || names.length > layoutNamesMax) return undefined;
  let alike = layouts.get(first);
  const known = alike?.[names.length];
  if (known !== undefined && areEqual(known.names, names)) return known;
  for (const name of names) if (name.length > layoutNameLengthMax || needsCare.test(name)) return undefined;
  if (alike === undefined) {
    if (layouts.size >= layoutsMax) layouts.clear();
    alike = new Array<Layout | undefined>(layoutNamesMax + 1).fill(undefined);
    layouts.set(first, alike);
  }
  const sorted = sortNames([...names]);
  const followings = sorted.map((name) => `,"${name}":`);
  const layout = {
    names,
    sorted,
    openings: sorted.map((name) => `{"${name}":`),
    followings,
    followingBytes: followings.map((text) => new Uint8Array(Buffer.from(text))),
  };
  alike[names.length] = layout;
  return layout;
}

function areEqual(one: readonly string[], other: readonly string[]): boolean {
  for (let i = 0; i < one.length; i++) if (one[i] !== other[i]) return false;
  return true;
}

// Everything but quotes, backslashes, control characters and surrogates stands for itself in a string. Without a
// backslash, JSON text has no way to bring the first three into one.
const needsCare = /[^ !#-[\]-\ud7ff\ue000-\uffff]/;
const escapeOrSurrogate = /[\\\ud800-\udfff]/;
const loneSurrogate = /\p{Surrogate}/u;

function writeString(value: string, writing: Writing): string | undefined {
  if (writing.isPlain || !needsCare.test(value)) return `"${value}"`;
  // UTF-8 cannot carry half a character, so every one of them would be hashed as the same replacement.
  if (loneSurrogate.test(value)) return refuse(writing, "lone-surrogate");
  return JSON.stringify(value);
}

// Most objects have few members. For those an insertion sort takes a quarter to a half of the time of Array.sort;
// from about thirty on it is the slower one.
const insertionSortMax = 16;

/** Sorts by UTF-16 code units, in place: RFC 8785 asks for that order, and it is the one of JavaScript's `<`. */
export function sortNames(names: string[]): string[] {
  if (names.length > insertionSortMax) return names.sort();
  for (let i = 1; i < names.length; i++) {
    const name = names[i] as string;
    let j = i;
    for (; j > 0 && (names[j - 1] as string) > name; j--) names[j] = names[j - 1] as string;
    names[j] = name;
  }
  return names;
}

/**
 * Accepts the objects of another realm and those without a prototype (body parsers make both), so it looks for
 * a prototype that is itself a root, where it is not this realm's `Object.prototype`.
 */
export function isPlainObject(value: object): value is Record<string, unknown> {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

const quote = 0x22;
const space = 0x20;
const backslash = 0x5c;
const colon = 0x3a;

/**
 * Whether a text that is known to be JSON holds more than so many members.
 *
 * The colon of a member follows a quote or whitespace. Counting all colons that do gives an upper bound without
 * looking at anything else, and it is nearly always exact.
 */
function hasMoreMembers(json: string, members: number): boolean {
  let candidates = 0;
  for (let i = json.indexOf(":"); i >= 0; i = json.indexOf(":", i + 1)) {
    const before = json.charCodeAt(i - 1);
    if (before === quote || before <= space) candidates++;
  }
  return candidates > members && membersIn(json) > members;
}

/** Counts exactly, by skipping the strings: each member has one colon outside of them. */
function membersIn(json: string): number {
  let members = 0;
  for (let i = 0; i < json.length; i++) {
    const unit = json.charCodeAt(i);
    if (unit === colon) members++;
    else if (unit === quote) i = closingQuote(json, i);
  }
  return members;
}

function closingQuote(json: string, openingQuote: number): number {
  let i = openingQuote + 1;
  for (let unit = json.charCodeAt(i); unit !== quote; unit = json.charCodeAt(i)) {
    i += unit === backslash ? 2 : 1;
  }
  return i;
}

function refuse(writing: Writing, reason: CanonicalRefusal): undefined {
  writing.refusal = reason;
}
