import { timerMsMax } from "../engine/runtime.ts";
import { usage } from "./failure.ts";

/** One option of a command: what parsing, `--help`, completion and the documentation know of it. */
export interface Option<T = unknown> {
  readonly description: string;
  /** What stands for its value in a synopsis; undefined if it takes none. */
  readonly placeholder: string | undefined;
  readonly short?: string;
  /** Every value that it can have, where these can be listed. */
  readonly choices?: readonly string[];
  readonly isFile?: boolean;
  readonly isRepeatable?: boolean;
  /** What is taken if it is left out, as it is shown. */
  readonly byDefault?: string;
  /** What was given, in order; nothing if it was left out. `name` is for complaints. */
  read(given: readonly string[], name: string): T;
}

export type Options = Readonly<Record<string, Option>>;

/** What a command gets of its options. */
export type ValuesOf<O extends Options> = {
  readonly [Name in keyof O]: O[Name] extends Option<infer T> ? T : never;
};

interface ValueSpec {
  readonly description: string;
  readonly placeholder: string;
  readonly short?: string;
  readonly choices?: readonly string[];
  readonly isFile?: boolean;
  /** Said in place of a default where what is taken depends on something else. */
  readonly byDefault?: string;
}

export function flag(description: string, short?: string): Option<boolean> {
  return {
    description,
    placeholder: undefined,
    ...(short === undefined ? {} : { short }),
    read: (given) => given.length > 0,
  };
}

export function text(spec: ValueSpec): Option<string | undefined> {
  return value(spec, (given) => given);
}

/** May be given any number of times. */
export function texts(spec: ValueSpec): Option<readonly string[]> {
  return { ...spec, isRepeatable: true, read: (given) => given };
}

export function choice<const Choice extends string>(
  choices: readonly Choice[],
  spec: Omit<ValueSpec, "choices">,
): Option<Choice | undefined> {
  return value({ ...spec, choices }, (given, name) => oneOf(choices, given, name));
}

/** A list of choices, separated by commas. */
export function choicesOf<const Choice extends string>(
  choices: readonly Choice[],
  spec: Omit<ValueSpec, "choices">,
): Option<readonly Choice[] | undefined> {
  return value({ ...spec, choices }, (given, name) =>
    given.split(",").map((one) => oneOf(choices, one.trim(), name)),
  );
}

export function wholeNumber(
  spec: ValueSpec & { readonly min: number; readonly max: number },
): Option<number | undefined> {
  const { min, max, ...rest } = spec;
  return value(rest, (given, name) => {
    const number = /^\d{1,15}$/.test(given) ? Number(given) : Number.NaN;
    if (number >= min && number <= max) return number;
    throw usage(`${name} is "${given}" and must be a whole number from ${min} to ${max}`);
  });
}

/** Milliseconds, written as `500ms`, `30s`, `15m`, `2h` or `7d`. */
export function duration(spec: ValueSpec): Option<number | undefined> {
  return value(spec, (given, name) => {
    const ms = durationMs(given);
    if (ms === undefined) {
      throw usage(`${name} is "${given}" and must be a length of time such as 500ms, 30s, 15m, 2h or 7d`);
    }
    if (ms <= timerMsMax) return ms;
    throw usage(`${name} is "${given}" and must be at most 24d`);
  });
}

/** Milliseconds since 1970, written as a date and time, or as a length of time before now. */
export function moment(spec: ValueSpec): Option<number | undefined> {
  return value(spec, (given, name) => {
    const ms = durationMs(given);
    const at = ms === undefined ? Date.parse(given) : Date.now() - ms;
    if (/\d/.test(given) && Number.isFinite(at)) return at;
    throw usage(
      `${name} is "${given}" and must be a time such as 2026-11-16T09:00Z, or how long ago it was, such as 2h`,
    );
  });
}

/** The same option with a value if it is left out. */
export function withDefault<T>(option: Option<T | undefined>, byDefault: string): Option<T> {
  return {
    ...option,
    byDefault,
    read: (given, name) => option.read(given.length === 0 ? [byDefault] : given, name) as T,
  };
}

function value<T>(spec: ValueSpec, parse: (given: string, name: string) => T): Option<T | undefined> {
  return {
    ...spec,
    read([given], name) {
      return given === undefined ? undefined : parse(given, name);
    },
  };
}

function oneOf<Choice extends string>(choices: readonly Choice[], given: string, name: string): Choice {
  const found = choices.find((known) => known === given);
  if (found !== undefined) return found;
  throw usage(`${name} is "${given}" and must be one of: ${choices.join(", ")}`);
}

const unitsMs: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

function durationMs(given: string): number | undefined {
  const [, count, unit] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(given) ?? [];
  const unitMs = unit === undefined ? undefined : unitsMs[unit];
  return unitMs === undefined ? undefined : Number(count) * unitMs;
}
