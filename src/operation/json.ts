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

/** All results of an operation are written with each of its phases. */
export const jsonLengthMax = 256 * 1024;
