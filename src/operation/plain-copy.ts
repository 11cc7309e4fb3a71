import { type Jsonified, jsonLengthMax } from "./json.ts";

/**
 * What is read back of a value that is plain data through and through, or `undefined` where anything of it would not come back
 * as it is: then it has to be written and read. It takes a quarter of the time that reading takes, on the path of every
 * operation. Each member is looked at once, so that the copy is what is to be written: a member may be computed.
 */
export function plainCopy<T>(value: T): Jsonified<T> | undefined {
  try {
    return copyOf(value, { parts: partsMax }, 0) as Jsonified<T> | undefined;
  } catch {
    // Whoever writes it meets the same, and says what it is.
    return undefined;
  }
}

function copyOf(value: unknown, left: Left, depth: number): unknown {
  const copy = typeof value === "object" && value !== null ? copyOfObject(value, left, depth) : value;
  return isPlain(copy) ? copy : undefined;
}

function isPlain(value: unknown): boolean {
  switch (typeof value) {
    case "string":
    case "boolean":
      return true;
    case "number":
      return Number.isFinite(value) && !Object.is(value, -0);
    default:
      // What is an object has been copied.
      return typeof value === "object";
  }
}

function copyOfObject(value: object, left: Left, depth: number): object | undefined {
  if (depth === depthMax || (value as { toJSON?: unknown }).toJSON !== undefined) return undefined;
  if (Array.isArray(value)) return copyOfArray(value, left, depth);
  if (Object.getPrototypeOf(value) !== Object.prototype) return undefined;
  const members: Record<string, unknown> = { ...value };
  if (Object.getOwnPropertySymbols(members).length > 0) return undefined;
  const names = Object.keys(members);
  if (!isRoomFor(names.length, left)) return undefined;
  for (const name of names) {
    const member = members[name];
    const kept = copyOf(member, left, depth + 1);
    if (kept === undefined) return undefined;
    if (kept !== member) members[name] = kept;
  }
  return members;
}

function copyOfArray(value: readonly unknown[], left: Left, depth: number): unknown[] | undefined {
  const { length } = value;
  if (Object.getPrototypeOf(value) !== Array.prototype || !isRoomFor(length, left)) return undefined;
  const items: unknown[] = [];
  for (let at = 0; at < length; at += 1) {
    const item = copyOf(value[at], left, depth + 1);
    if (item === undefined) return undefined;
    items.push(item);
  }
  return items;
}

function isRoomFor(parts: number, left: Left): boolean {
  left.parts -= parts + 1;
  return left.parts >= 0;
}

/** How much may still be copied: a value of a few objects can have millions of places in which they are seen. */
interface Left {
  parts: number;
}

/** Each takes two characters at least, so that what has more of them is not stored anyway. */
const partsMax = jsonLengthMax / 2;

/** What is deeper, or goes round in circles, is left to the one who writes. */
const depthMax = 32;
