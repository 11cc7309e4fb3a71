import { PhaseError } from "../core/errors.ts";
import type { JsonText } from "../core/phase.ts";

/**
 * What comes back when a value was stored as JSON: a `Date` is a string, a `Map` is an empty object. Results have this
 * type from the first attempt on, so that a handler cannot come to rely on what a resumed one would not get.
 */
export type Jsonified<T> = T extends { toJSON(): infer J }
  ? Jsonified<J>
  : T extends string | number | boolean | null | undefined
    ? T
    : T extends bigint | symbol | ((...args: never[]) => unknown)
      ? never
      : T extends object
        ? { [Name in keyof T]: Jsonified<T[Name]> }
        : T;

/** The text under which a result is stored. Nothing at all is stored as `null`. */
export function toJsonText(value: unknown, what: string): JsonText {
  let text: string | undefined;
  try {
    text = JSON.stringify(value) ?? (value === undefined ? "null" : undefined);
  } catch (cause) {
    throw new PhaseError(`${what} cannot be stored as JSON: return plain data`, { cause });
  }
  if (text === undefined)
    throw new PhaseError(`${what} is a ${typeof value}, which is not JSON: return plain data`);
  if (text.length > jsonLengthMax) {
    throw new PhaseError(
      `${what} has ${text.length} characters, and ${jsonLengthMax} can be stored: return the ids of things, not the things`,
    );
  }
  return text;
}

export function fromJsonText<T>(text: JsonText): Jsonified<T> {
  return JSON.parse(text) as Jsonified<T>;
}

/**
 * What is read back of a value that is plain data through and through, or `undefined` where anything of it would not come back
 * as it is: then it has to be written and read. It takes a quarter of the time that reading takes, on the path of every
 * operation. Each member is looked at once, so that the copy is what is to be written: a member may be computed.
 */
export function plainCopy<T>(value: T): Jsonified<T> | undefined {
  try {
    return copyOf(value, 0) as Jsonified<T> | undefined;
  } catch {
    // Whoever writes it meets the same, and says what it is.
    return undefined;
  }
}

function copyOf(value: unknown, depth: number): unknown {
  const copy = typeof value === "object" && value !== null ? copyOfObject(value, depth) : value;
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

function copyOfObject(value: object, depth: number): object | undefined {
  if (depth === depthMax || "toJSON" in value) return undefined;
  if (Array.isArray(value)) {
    if (Object.getPrototypeOf(value) !== Array.prototype) return undefined;
    const items: unknown[] = [];
    for (let at = 0; at < value.length; at += 1) {
      const item = copyOf(value[at], depth + 1);
      if (item === undefined) return undefined;
      items.push(item);
    }
    return items;
  }
  if (Object.getPrototypeOf(value) !== Object.prototype) return undefined;
  const members: Record<string, unknown> = { ...value };
  if (Object.getOwnPropertySymbols(members).length > 0) return undefined;
  for (const name in members) {
    const member = members[name];
    const kept = copyOf(member, depth + 1);
    if (kept === undefined) return undefined;
    if (kept !== member) members[name] = kept;
  }
  return members;
}

/** What is deeper, or goes round in circles, is left to the one who writes. */
const depthMax = 32;

/** All results of an operation are written with each of its phases. */
const jsonLengthMax = 256 * 1024;
