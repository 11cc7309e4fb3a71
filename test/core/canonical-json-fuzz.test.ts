import fc from "fast-check";
import { expect, test } from "vitest";
import { canonicalizeBytes } from "../../src/core/canonical-bytes.ts";
import { canonicalizeText, canonicalizeValue } from "../../src/core/canonical-json.ts";
import { canonicalizeValueBytes } from "../../src/core/canonical-value.ts";
import { respell } from "./canonical-json-spelling.ts";

/*
 * A second implementation, which follows the text of RFC 8785 and nothing else, and shares no line with the first: every
 * value is compared, in four ways, with what it makes of it.
 */

test("every value has the form that the RFC's own words give it", () => {
  const seen = { ordinary: 0, other: 0, ordinaryValue: 0, otherValue: 0 };
  fc.assert(
    fc.property(value, fc.nat(), (sample, seed) => {
      const expected = followingTheRfc(sample);
      const canonical = { kind: "canonical", text: expected };
      expect(canonicalizeValue(sample)).toEqual(canonical);
      const written = canonicalizeValueBytes(sample);
      if (written !== undefined) expect(Buffer.from(written).toString()).toBe(expected);
      seen[written === undefined ? "otherValue" : "ordinaryValue"] += 1;
      for (const text of [JSON.stringify(sample), respell(sample, choicesFrom(seed))]) {
        expect(canonicalizeText(text)).toEqual(canonical);
        const bytes = canonicalizeBytes(Buffer.from(text));
        if (bytes !== undefined) expect(Buffer.from(bytes).toString()).toBe(expected);
        seen[bytes === undefined ? "other" : "ordinary"] += 1;
      }
    }),
    { numRuns: 10_000, seed: 8785 },
  );
  // Both ways have been gone often enough to mean something.
  expect(seen.ordinary).toBeGreaterThan(3_000);
  expect(seen.other).toBeGreaterThan(3_000);
  expect(seen.ordinaryValue).toBeGreaterThan(3_000);
  expect(seen.otherValue).toBeGreaterThan(1_000);
}, 60_000);

test("every double has the form that the RFC's own words give it", () => {
  const bits = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
  fc.assert(
    fc.property(bits, (pattern) => {
      const sample = Buffer.alloc(8);
      sample.writeBigUInt64BE(pattern);
      const double = sample.readDoubleBE();
      if (!Number.isFinite(double)) return;
      const text = followingTheRfc(double);
      expect(Object.is(Number(text), double === 0 ? 0 : double)).toBe(true);
      expect(canonicalizeValue(double)).toEqual({ kind: "canonical", text });
      expect(canonicalizeText(text)).toEqual({ kind: "canonical", text });
      const decimal = double.toFixed(6);
      expect(canonicalizeText(decimal)).toEqual({
        kind: "canonical",
        text: followingTheRfc(Number(decimal)),
      });
    }),
    { numRuns: 10_000, seed: 8785 },
  );
});

/** Numbers from 0 to 7, the same ones for the same seed. */
function* choicesFrom(seed: number): Generator<number> {
  for (let state = seed; ; ) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    yield state >>> 29;
  }
}

type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** Section 3.2: serialise primitives as ECMAScript does, sort members by UTF-16 code units, write no whitespace. */
function followingTheRfc(value: Json): string {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (isList(value)) return `[${value.map(followingTheRfc).join(",")}]`;
  const members = Object.entries(value).sort(([a], [b]) => compareCodeUnits(a, b));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${followingTheRfc(member)}`).join(",")}}`;
}

/** Section 3.2.3: unsigned integers, independent of locale; a shorter name comes before one that it begins. */
function compareCodeUnits(a: string, b: string): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    if (a.charCodeAt(i) !== b.charCodeAt(i)) return a.charCodeAt(i) - b.charCodeAt(i);
  }
  return a.length - b.length;
}

function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}

const text = fc.oneof(
  { weight: 3, arbitrary: fc.string({ unit: "grapheme-ascii", maxLength: 8 }) },
  fc.string({ unit: "binary", maxLength: 6 }),
  // Names that differ late, or only in length, or that an engine would take for indexes.
  fc.constantFrom(
    "",
    "a",
    "aa",
    "ab",
    "a b",
    "a!",
    "1",
    "10",
    "9",
    "__proto__",
    "constructor",
    "\ufb33",
    "😀",
  ),
);

const number = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer(),
  fc.maxSafeInteger(),
  fc.integer({ min: -99_999, max: 99_999 }).map((cents) => cents / 100),
);

const scalar = fc.oneof(text, number, fc.boolean(), fc.constant(null));

const { value } = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", maxDepth: 3 },
    { weight: 2, arbitrary: scalar },
    { weight: 1, arbitrary: fc.array(tie("value"), { maxLength: 4 }) },
    { weight: 3, arbitrary: fc.dictionary(text, tie("value"), { maxKeys: 5 }) },
  ),
}));
