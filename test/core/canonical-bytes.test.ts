import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalizeBytes } from "../../src/core/canonical-bytes.ts";
import { canonicalizeText } from "../../src/core/canonical-json.ts";

describe("an ordinary document is made canonical without being parsed", () => {
  test.each([
    ["literals", "[true,false,null]", "[true,false,null]"],
    ["whitespace", ' {\t"a" :\r\n[ 1 , 2 ] } ', '{"a":[1,2]}'],
    ["nothing in it", '{"a":{},"b":[ ]}', '{"a":{},"b":[]}'],
    [
      "members out of order",
      '{"b":{"d":1,"c":2},"a":[{"z":1,"y":2}]}',
      '{"a":[{"y":2,"z":1}],"b":{"c":2,"d":1}}',
    ],
    ["names that begin alike", '{"ab":1,"a":2,"a b":3,"a!":4}', '{"a":2,"a b":3,"a!":4,"ab":1}'],
    ["names that look like indexes", '{"10":1,"9":2,"1":3}', '{"1":3,"10":1,"9":2}'],
    [
      "long members",
      `{"b":"${"x".repeat(200)}","a":"${"y".repeat(200)}"}`,
      `{"a":"${"y".repeat(200)}","b":"${"x".repeat(200)}"}`,
    ],
    ["escapes that are canonical", String.raw`["\"\\\b\f\n\r\t"]`, String.raw`["\"\\\b\f\n\r\t"]`],
    ["text beyond ASCII", '["Größe 😀"]', '["Größe 😀"]'],
    [
      "numbers",
      "[0,-1,12.5,0.5,-0,4.50,0.05,1234567890123456]",
      "[0,-1,12.5,0.5,0,4.5,0.05,1234567890123456]",
    ],
    ["a number alone", "42", "42"],
    ["a string alone", '"a"', '"a"'],
  ])("with %s", (_, text, canonical) => {
    expect(canonicalOf(Buffer.from(text))).toBe(canonical);
    expect(canonicalizeText(text)).toEqual({ kind: "canonical", text: canonical });
  });

  test("of a size that none had before, and then again of a smaller one", () => {
    const small = Buffer.from('{"b":1,"a":2}');
    const large = JSON.stringify({ b: "x".repeat(300_000), a: ["y".repeat(300_000)] });
    expect(canonicalOf(small)).toBe('{"a":2,"b":1}');
    expect({ kind: "canonical", text: canonicalOf(Buffer.from(large)) }).toEqual(canonicalizeText(large));
    expect(canonicalOf(small)).toBe('{"a":2,"b":1}');
  });

  test("and the bytes that were given stay as they were", () => {
    const bytes = Buffer.from('{ "b": 1.0, "a": 2 }');
    canonicalizeBytes(bytes);
    expect(bytes.toString()).toBe('{ "b": 1.0, "a": 2 }');
  });
});

describe("what is out of the ordinary is left to a closer look", () => {
  test.each([
    ["nothing", ""],
    ["only whitespace", " \n"],
    ["a byte order mark", "\ufeff{}"],
    ["a name given twice", '{"a":1,"a":2}'],
    ["a name given twice, apart", '{"b":1,"a":2,"b":3}'],
    ["a name given twice, out of order", '{"c":1,"b":1,"a":2,"c":3}'],
    ["an escaped name", String.raw`{"\n":1}`],
    ["a name beyond ASCII", '{"é":1}'],
    ["an escape by number", String.raw`["\u0041"]`],
    ["an escape that is not needed", String.raw`["\/"]`],
    ["a control character", '["\u0001"]'],
    ["an exponent", "[1e5]"],
    ["an endless number", `[${"1".repeat(400)}]`],
    ["hostile nesting", "[".repeat(100_000)],
    ["very many members out of order", `{${Array.from({ length: 500 }, (_, i) => `"n${500 - i}":1`)}}`],
    [
      "more members than are kept in mind",
      `{${Array.from({ length: 5_000 }, (_, i) => `"n${10_000 + i}":1`)}}`,
    ],
    ["more than a mebibyte", `["${"x".repeat(1024 * 1024)}"]`],
  ])("%s", (_, text) => {
    expect(canonicalizeBytes(Buffer.from(text))).toBeUndefined();
  });

  test.each([
    "[1,]",
    "[,1]",
    "[1 2]",
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    "{a:1}",
    "{1:1}",
    '"a',
    '"\\',
    '"\\"',
    "01",
    "-",
    "1.",
    ".5",
    "-.5",
    "+1",
    "1e",
    "nul",
    "truee",
    "[true",
    '{"a":1',
    "[1]]",
    "1 1",
    "NaN",
    "'a'",
    '["\t"]',
  ])("what is not JSON: %s", (text) => {
    expect(canonicalizeText(text)).toEqual({ kind: "notJson" });
    // Whatever an earlier document has left behind in the memory must not complete this one.
    canonicalizeBytes(Buffer.from(`${text}ue,"l":[1.5e5]}]}]"`.padEnd(64, '1]}"')));
    expect(canonicalizeBytes(Buffer.from(text))).toBeUndefined();
  });

  test.each([
    ["a cut-off character", [0x5b, 0x22, 0xc3, 0x22, 0x5d]],
    ["an overlong one", [0x5b, 0x22, 0xc0, 0xaf, 0x22, 0x5d]],
    ["half a surrogate pair", [0x5b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x5d]],
  ])("what is not UTF-8: %s", (_, bytes) => {
    expect(canonicalizeBytes(Uint8Array.from(bytes))).toBeUndefined();
  });
});

describe("whatever it answers is what the closer look says", () => {
  const alphabet = ['"', '"', "a", "b", "\\", "n", "u", ":", ":", ",", ",", "{", "}", "[", "]", " ", "\n"];
  const more = ["0", "1", "5", "-", ".", "e", "true", "null", "é", "😀", '"a":', '"b":', "\u0000", "\ufeff"];

  test("for texts that are hardly ever JSON", () => {
    const text = fc
      .array(fc.constantFrom(...alphabet, ...more), { maxLength: 12 })
      .map((parts) => parts.join(""));
    fc.assert(fc.property(text, agrees), { numRuns: 20_000, seed: 8785 });
  });

  test("for JSON with one byte changed", () => {
    const json = fc.json({ maxDepth: 3 });
    const change = fc.tuple(fc.nat(), fc.constantFrom(...alphabet, ...more, ""));
    const damaged = fc.tuple(json, change).map(([text, [where, what]]) => {
      const at = where % (text.length + 1);
      return text.slice(0, at) + what + text.slice(at + 1);
    });
    fc.assert(fc.property(damaged, agrees), { numRuns: 10_000, seed: 8785 });
  });

  test("for numbers of every spelling", () => {
    const digits = fc.stringMatching(/^[0-9]{1,24}$/);
    const number = fc
      .tuple(fc.constantFrom("", "-"), digits, fc.option(digits), fc.constantFrom("", "", "", "e5", "E-7"))
      .map(
        ([sign, whole, fraction, exponent]) =>
          sign + whole + (fraction === null ? "" : `.${fraction}`) + exponent,
      );
    fc.assert(
      fc.property(number, (text) => agrees(`[${text}]`)),
      { numRuns: 10_000, seed: 8785 },
    );
  });
});

function agrees(text: string): void {
  const bytes = canonicalizeBytes(Buffer.from(text));
  if (bytes !== undefined)
    expect(canonicalizeText(text)).toEqual({ kind: "canonical", text: Buffer.from(bytes).toString() });
}

function canonicalOf(bytes: Uint8Array): string {
  return Buffer.from(canonicalizeBytes(bytes) ?? expect.fail("it was left to a closer look")).toString();
}
