import { describe, expect, test } from "vitest";
import { canonicalizeValue } from "../../src/core/canonical-json.ts";
import { canonicalizeValueBytes } from "../../src/core/canonical-value.ts";

describe("an ordinary value is written as bytes at once", () => {
  test.each([
    ["literals", [true, false, null], "[true,false,null]"],
    ["nothing in it", { b: [], a: {} }, '{"a":{},"b":[]}'],
    [
      "members out of order",
      { b: { d: 1, c: 2 }, a: [{ z: 1, y: 2 }] },
      '{"a":[{"y":2,"z":1}],"b":{"c":2,"d":1}}',
    ],
    ["members that are not there", { b: undefined, a: { c: undefined }, d: 1 }, '{"a":{},"d":1}'],
    ["names that look like indexes", { 10: 1, 9: 2, 1: 3 }, '{"1":3,"10":1,"9":2}'],
    ["names that have to be escaped", { 'say "a"': 1, "\\": 2 }, String.raw`{"\\":2,"say \"a\"":1}`],
    ["texts that have to be escaped", ['say "a"', "\\"], String.raw`["say \"a\"","\\"]`],
    ["text beyond ASCII", ["\u007f Größe \u07ff\u0800 \u20ac \ud7ff\ue000\uffff"], undefined],
    ["small numbers", [0, -0, 9, 10, 99, 100, 999_999_999, 1_000_000_000, 1_000_000_001], undefined],
    [
      "other numbers",
      [-1, 2 ** 31, 2 ** 32, 12.5, 0.1, 1e21, 1e-7, 2 ** 53, Number.MAX_VALUE, Number.MIN_VALUE],
      undefined,
    ],
    ["no prototype", Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
    ["a number alone", 42, "42"],
    ["a text alone", "a", '"a"'],
  ])("with %s", (_, value: unknown, text = JSON.stringify(value)) => {
    expect(writtenOf(value)).toBe(text);
    expect(canonicalizeValue(value)).toEqual({ kind: "canonical", text });
  });

  test("with more members than a layout has", () => {
    const value = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`n${100 - i}`, i]));
    expect({ kind: "canonical", text: writtenOf(value) }).toEqual(canonicalizeValue(value));
  });

  test("of a size that none had before, whatever it is that has no room any more, and then again of a smaller one", () => {
    const parts = ["x".repeat(90), 123_456_789, true, null, [], {}, { name: "é".repeat(30) }, [[["deep"]]]];
    for (const part of parts) {
      const large = { b: Array.from({ length: 9_000 }, () => part), a: 1 };
      expect({ kind: "canonical", text: writtenOf(large) }).toEqual(canonicalizeValue(large));
      expect(writtenOf({ b: 1, a: 2 })).toBe('{"a":2,"b":1}');
    }
  });
});

describe("what is out of the ordinary is left to a closer look", () => {
  const cycle: unknown[] = [];
  cycle.push(cycle);
  test.each([
    ["nothing", undefined],
    ["nothing in a list", [undefined]],
    ["no number", [Number.NaN]],
    ["an endless number", [Number.POSITIVE_INFINITY]],
    ["a large integer", [1n]],
    ["a function", { a: () => 1 }],
    ["a date", { a: new Date(0) }],
    ["a map", { a: new Map() }],
    ["bytes", new Uint8Array(2)],
    ["an instance of a class", new (class Money {})()],
    ["a control character", ["\u0001"]],
    ["a control character in a name", { "\n": 1 }],
    ["half of a surrogate pair", ["\ud800"]],
    ["half of a surrogate pair in a name", { "\udc00": 1 }],
    ["a surrogate pair", ["😀"]],
    ["a cycle", cycle],
    ["more than a mebibyte", ["x".repeat(1024 * 1024)]],
  ])("%s", (_, value) => {
    expect(canonicalizeValueBytes(value)).toBeUndefined();
  });

  test("a value whose members are computed by somebody who comes here as well", () => {
    let inner: Uint8Array | undefined = new Uint8Array();
    const value = {
      a: 1,
      get b() {
        inner = canonicalizeValueBytes({ another: "value" });
        return 2;
      },
    };
    expect(writtenOf(value)).toBe('{"a":1,"b":2}');
    expect(inner).toBeUndefined();
  });

  test("and a value that throws when it is read does not stand in the way of the next", () => {
    const value = {
      get a(): never {
        throw new Error("not today");
      },
    };
    expect(() => canonicalizeValueBytes(value)).toThrow("not today");
    expect(writtenOf([1])).toBe("[1]");
  });
});

function writtenOf(value: unknown): string {
  const bytes = canonicalizeValueBytes(value);
  if (bytes === undefined) expect.fail("it was left to a closer look");
  return Buffer.from(bytes).toString();
}
