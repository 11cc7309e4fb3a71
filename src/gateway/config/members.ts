import * as v from "valibot";
import { timerMsMax } from "../../engine/runtime.ts";
import { bytesOf, durationPattern, millisecondsOf, sizePattern } from "./units.ts";

/**
 * What members of the configuration are made of. Each says in its message what it must be, as the end of the sentence
 * "port is 70000 and …". Where a text may hold `${NAME}`, a check is used in place of a pattern, so that the published
 * JSON Schema does not refuse in an editor what is good once the variable is put in.
 */

const durationRule = 'must be whole milliseconds, or a duration such as "30s", "5m" or "24h"';
const sizeRule = 'must be bytes, or a size such as "64KiB" or "1MiB"';

/** What the gateway waits for: no longer than a timer can run. */
export function duration(description: string, options: { readonly above0?: boolean } = {}) {
  const [least, bounds] = options.above0 ? [1, ", above 0 and at most 24d"] : [0, ", at most 24d"];
  return span(description, { least, most: timerMsMax, bounds });
}

/** What times are compared by, however far apart they are. */
export function period(description: string, options: { readonly above0?: boolean } = {}) {
  const [least, bounds] = options.above0 ? [1, ", above 0"] : [0, ""];
  return span(description, { least, most: Number.MAX_SAFE_INTEGER, bounds });
}

/** Milliseconds from the least to the most; `bounds` says so at the end of the rule. */
export function span(
  description: string,
  { least, most, bounds }: { readonly least: number; readonly most: number; readonly bounds: string },
) {
  const rule = `${durationRule}${bounds}`;
  // Of what was written, and not of what it comes to: a complaint shows it.
  const isWithin = (text: string) => millisecondsOf(text) >= least && millisecondsOf(text) <= most;
  return v.pipe(
    v.union(
      [
        v.pipe(v.number(), v.integer(rule), v.minValue(least, rule), v.maxValue(most, rule)),
        v.pipe(v.string(), v.regex(durationPattern, rule), v.check(isWithin, rule)),
      ],
      rule,
    ),
    v.description(`${description} Milliseconds, or a text such as "30s".`),
    v.transform(millisecondsOf),
  );
}

export function size(description: string) {
  return v.pipe(
    v.union(
      [
        v.pipe(
          v.number(),
          v.integer(sizeRule),
          v.minValue(1, sizeRule),
          v.maxValue(Number.MAX_SAFE_INTEGER, sizeRule),
        ),
        v.pipe(
          v.string(),
          v.regex(sizePattern, sizeRule),
          v.check((text) => bytesOf(text) >= 1 && Number.isSafeInteger(bytesOf(text)), sizeRule),
        ),
      ],
      sizeRule,
    ),
    v.description(`${description} Bytes, or a text such as "1MiB".`),
    v.transform(bytesOf),
  );
}

export function flag(description: string) {
  return v.pipe(v.boolean("must be true or false"), v.description(description));
}

export function text(description: string, rule = "must be a text") {
  return v.pipe(
    v.string(rule),
    v.nonEmpty("is empty: write it, or leave the member out"),
    v.description(description),
  );
}

export function count(description: string, min = 1, max = Number.MAX_SAFE_INTEGER) {
  const isBounded = max < Number.MAX_SAFE_INTEGER;
  const rule = `must be a whole number${isBounded ? ` from ${min} to ${max}` : `, ${min} or more`}`;
  return v.pipe(
    v.number(rule),
    v.integer(rule),
    v.minValue(min, rule),
    v.maxValue(max, rule),
    v.description(description),
  );
}

export function share(description: string) {
  const rule = "must be a number above 0 and at most 1";
  return v.pipe(v.number(rule), v.gtValue(0, rule), v.maxValue(1, rule), v.description(description));
}

export function port(description: string) {
  const rule = "must be a whole number from 0 to 65535; 0 takes any port that is free";
  return v.pipe(
    v.number(rule),
    v.integer(rule),
    v.minValue(0, rule),
    v.maxValue(65_535, rule),
    v.description(description),
  );
}

export function choice<const Choices extends readonly (string | number)[]>(
  choices: Choices,
  description: string,
) {
  const shown = choices.map((one) => (typeof one === "string" ? `"${one}"` : String(one)));
  return v.pipe(v.picklist(choices, `must be one of ${shown.join(", ")}`), v.description(description));
}

export function list<Item extends v.GenericSchema>(item: Item, description: string, rule = "must be a list") {
  return v.pipe(v.array(item, rule), v.description(description));
}

const headerNamePattern = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

export function headerName(description: string) {
  const rule = 'must be the name of a header, such as "X-Account"';
  return v.pipe(v.string(rule), v.regex(headerNamePattern, rule), v.description(description));
}

export function httpUrl(description: string) {
  const rule = "must be an http:// or https:// URL";
  return v.pipe(v.string(rule), v.check(isHttpUrl, rule), v.description(description));
}

export function isHttpUrl(value: string): boolean {
  return URL.canParse(value) && /^https?:$/.test(new URL(value).protocol);
}

/** A path of this server that is the gateway's own. */
export function ownPath(description: string) {
  const rule = 'must be a path such as "/-/latchkey/metrics", without a slash at its end';
  return v.pipe(v.string(rule), v.regex(/^\/[\w.~/-]*[\w.~-]$/, rule), v.description(description));
}

export function members<const Entries extends v.ObjectEntries>(entries: Entries, description: string) {
  return v.pipe(v.strictObject(entries, "must be a map of members"), v.description(description));
}
