import { describe, expect, test } from "vitest";
import { canonicalizeBytes } from "../../src/core/canonical-bytes.ts";
import { canonicalizeText, canonicalizeValue } from "../../src/core/canonical-json.ts";

describe("the vectors of RFC 8785", () => {
  const primitives = String.raw`{
    "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
    "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
    "literals": [null, true, false]
  }`;

  test("section 3.2.2: primitive values", () => {
    expect(canonicalOf(primitives)).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],' +
        String.raw`"string":"€$\u000f\nA'B\"\\\\\"/"}`,
    );
  });

  test("section 3.2.4: the same in UTF-8", () => {
    expect(Buffer.from(canonicalOf(primitives)).toString("hex")).toBe(
      "7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a5b3333333333333333332e" +
        "333333333333332c31652b33302c342e352c302e3030322c31652d32375d2c22737472696e67223a22e282ac245c7530303066" +
        "5c6e4127425c225c5c5c5c5c222f227d",
    );
  });

  test("section 3.2.3: members are sorted by UTF-16 code units", () => {
    const text = String.raw`{
      "\u20ac": "Euro Sign",
      "\r": "Carriage Return",
      "\ufb33": "Hebrew Letter Dalet With Dagesh",
      "1": "One",
      "\ud83d\ude00": "Emoji: Grinning Face",
      "\u0080": "Control",
      "\u00f6": "Latin Small Letter O With Diaeresis"
    }`;
    expect(canonicalOf(text)).toBe(
      '{"\\r":"Carriage Return","1":"One","\u0080":"Control","ö":"Latin Small Letter O With Diaeresis",' +
        '"€":"Euro Sign","😀":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}',
    );
  });

  test.each([
    ["0000000000000000", "0"],
    ["8000000000000000", "0"],
    ["0000000000000001", "5e-324"],
    ["8000000000000001", "-5e-324"],
    ["7fefffffffffffff", "1.7976931348623157e+308"],
    ["ffefffffffffffff", "-1.7976931348623157e+308"],
    ["4340000000000000", "9007199254740992"],
    ["c340000000000000", "-9007199254740992"],
    ["4430000000000000", "295147905179352830000"],
    ["44b52d02c7e14af5", "9.999999999999997e+22"],
    ["44b52d02c7e14af6", "1e+23"],
    ["44b52d02c7e14af7", "1.0000000000000001e+23"],
    ["444b1ae4d6e2ef4e", "999999999999999700000"],
    ["444b1ae4d6e2ef4f", "999999999999999900000"],
    ["444b1ae4d6e2ef50", "1e+21"],
    ["3eb0c6f7a0b5ed8c", "9.999999999999997e-7"],
    ["3eb0c6f7a0b5ed8d", "0.000001"],
    ["41b3de4355555553", "333333333.3333332"],
    ["41b3de4355555554", "333333333.33333325"],
    ["41b3de4355555555", "333333333.3333333"],
    ["41b3de4355555556", "333333333.3333334"],
    ["41b3de4355555557", "333333333.33333343"],
    ["becbf647612f3696", "-0.0000033333333333333333"],
    ["43143ff3c1cb0959", "1424953923781206.2"],
  ])("appendix B: the double %s is %s", (ieee754, text) => {
    expect(canonicalizeValue(double(ieee754))).toEqual({ kind: "canonical", text });
  });

  test("appendix B: NaN and Infinity have no form", () => {
    expect(canonicalizeValue(double("7fffffffffffffff"))).toEqual(refused("not-a-json-value"));
    expect(canonicalizeValue(double("7ff0000000000000"))).toEqual(refused("number-out-of-range"));
    expect(canonicalizeValue(double("fff0000000000000"))).toEqual(refused("number-out-of-range"));
  });
});

describe("the samples that the authors of RFC 8785 publish beside it", () => {
  test.each([
    [
      "arrays",
      '[\n  56,\n  {\n    "d": true,\n    "10": null,\n    "1": [ ]\n  }\n]',
      '[56,{"1":[],"10":null,"d":true}]',
    ],
    [
      "no locale",
      '{"peach": "This sorting order", "péché": "is wrong according to French",' +
        ' "pêche": "but canonicalization MUST", "sin": "ignore locale"}',
      '{"peach":"This sorting order","péché":"is wrong according to French",' +
        '"pêche":"but canonicalization MUST","sin":"ignore locale"}',
    ],
    [
      "structures",
      '{"1": {"f": {"f": "hi","F": 5} ,"\\n": 56.0}, "10": { }, "": "empty", "a": { },' +
        ' "111": [ {"e": "yes","E": "no" } ], "A": { }}',
      '{"":"empty","1":{"\\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}',
    ],
    ["no normalisation", '{"Unnormalized Unicode":"A\\u030a"}', '{"Unnormalized Unicode":"A\u030a"}'],
    [
      "weird names",
      String.raw`{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\u000a": "Newline", "1": "One",
        "\u0080": "Control\u007f", "\ud83d\ude02": "Smiley", "\u00f6": "Latin Small Letter O With Diaeresis",
        "\ufb33": "Hebrew Letter Dalet With Dagesh", "</script>": "Browser Challenge"}`,
      '{"\\n":"Newline","\\r":"Carriage Return","1":"One","</script>":"Browser Challenge",' +
        '"\u0080":"Control\u007f","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😂":"Smiley",' +
        '"\ufb33":"Hebrew Letter Dalet With Dagesh"}',
    ],
  ])("%s", (_, text, canonical) => {
    expect(canonicalOf(text)).toBe(canonical);
  });
});

describe("numbers at the edges of their notation", () => {
  test.each([
    ["-0", "0"],
    ["-0.0", "0"],
    ["0e5", "0"],
    ["1.0", "1"],
    ["10.10", "10.1"],
    ["-1e0", "-1"],
    ["1E+2", "100"],
    ["0.1", "0.1"],
    ["0.30000000000000004", "0.30000000000000004"],
    ["0.000001", "0.000001"],
    ["0.0000001", "1e-7"],
    ["-0.00000012", "-1.2e-7"],
    ["1e-6", "0.000001"],
    ["1e-7", "1e-7"],
    ["999999999999999", "999999999999999"],
    ["9007199254740991", "9007199254740991"],
    ["9007199254740992", "9007199254740992"],
    // What a double cannot hold is rounded, as every reader of the RFC's number model rounds it.
    ["9007199254740993", "9007199254740992"],
    ["12345678901234567890", "12345678901234567000"],
    ["100000000000000000000", "100000000000000000000"],
    ["1000000000000000000000", "1e+21"],
    ["123456789012345.6789", "123456789012345.67"],
    ["1.7976931348623157e308", "1.7976931348623157e+308"],
    ["2.2250738585072014e-308", "2.2250738585072014e-308"],
    ["5e-324", "5e-324"],
    ["2e-324", "0"],
    [`0.${"0".repeat(400)}1`, "0"],
    ["1".repeat(100), "1.111111111111111e+99"],
  ])("%s is %s", (text, canonical) => {
    expect(canonicalOf(text)).toBe(canonical);
    expect(canonicalOf(`{"n":[${text} , ${text}]}`)).toBe(`{"n":[${canonical},${canonical}]}`);
  });
});

/** By every way there is to it, and all must agree. */
function canonicalOf(text: string): string {
  const answer = canonicalizeText(text);
  if (answer.kind !== "canonical") return expect.fail(`${JSON.stringify(answer)} for ${text}`);
  expect(canonicalizeValue(JSON.parse(text))).toEqual(answer);
  const bytes = canonicalizeBytes(Buffer.from(text));
  if (bytes !== undefined) expect(Buffer.from(bytes).toString()).toBe(answer.text);
  return answer.text;
}

function double(ieee754: string): number {
  return Buffer.from(ieee754, "hex").readDoubleBE();
}

function refused(reason: string): { kind: "refused"; reason: string } {
  return { kind: "refused", reason };
}
