import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalizeText, canonicalizeValue } from "../../src/core/canonical-json.ts";
import { respell, respellString } from "./canonical-json-spelling.ts";

describe("for every JSON value", () => {
  const json = fc.jsonValue({ stringUnit: "binary", maxDepth: 4 });

  test("the canonical form is its own canonical form", () => {
    fc.assert(
      fc.property(json, (value) => {
        const text = canonicalOf(JSON.stringify(value));
        expect(canonicalOf(text)).toBe(text);
      }),
    );
  });

  test("the canonical form means the same", () => {
    fc.assert(
      fc.property(json, (value) => {
        const text = JSON.stringify(value);
        expect(JSON.parse(canonicalOf(text))).toEqual(JSON.parse(text));
      }),
    );
  });

  test("member order, whitespace and escapes make no difference", () => {
    fc.assert(
      fc.property(json, fc.infiniteStream(fc.nat(7)), (value, choices) => {
        expect(canonicalOf(respell(value, choices))).toBe(canonicalOf(JSON.stringify(value)));
      }),
    );
  });

  test("a text and its parsed value have one canonical form", () => {
    fc.assert(
      fc.property(json, (value) => {
        const text = JSON.stringify(value);
        expect(canonicalizeValue(JSON.parse(text))).toEqual(canonicalizeText(text));
      }),
    );
  });

  test("two values share a canonical form only if they are equal", () => {
    // Few and small values, so that equal pairs do occur.
    const small = fc.jsonValue({ maxDepth: 2, depthSize: "xsmall" });
    fc.assert(
      fc.property(small, small, (a, b) => {
        const equal = isDeepEqual(a, b);
        expect(canonicalOf(JSON.stringify(a)) === canonicalOf(JSON.stringify(b))).toBe(equal);
      }),
      { numRuns: 2_000 },
    );
  });

  test("a member given twice is refused wherever it hides", () => {
    const surroundings = fc.tuple(json, json, fc.string({ unit: "binary" }), fc.infiniteStream(fc.nat(7)));
    fc.assert(
      fc.property(surroundings, ([first, second, name, choices]) => {
        const once = `${respellString(name, choices)} :${respell(first, choices)}`;
        const again = `${respellString(name, choices)}:${respell(second, choices)}`;
        const text = `[{"list":[{${once},${again}}]}]`;
        expect(canonicalizeText(text)).toEqual(refused("duplicate-member"));
      }),
    );
  });
});

describe("more members than an insertion sort is good for", () => {
  test("are sorted all the same", () => {
    const names = Array.from({ length: 1_000 }, (_, i) => `name-${(i * 7_919) % 1_000}`);
    const text = canonicalOf(JSON.stringify(Object.fromEntries(names.map((name) => [name, 0]))));
    expect(Object.keys(JSON.parse(text))).toEqual([...names].sort());
  });
});

describe("objects that look like others before them", () => {
  // Few names and many objects, so that most have the first name and the number of members of another one.
  const names = fc.uniqueArray(fc.constantFrom("a", "b", "c", "é", '"', "1", "x".repeat(100)), {
    maxLength: 5,
  });

  test("are written by their own names and in their own order", () => {
    fc.assert(
      fc.property(fc.array(names, { minLength: 2, maxLength: 20 }), (objects) => {
        const value = objects.map((own) => Object.fromEntries(own.map((name, index) => [name, index])));
        const expected = value.map((members) => JSON.stringify(members, Object.keys(members).sort()));
        expect(canonicalizeValue(value)).toEqual({ kind: "canonical", text: `[${expected.join(",")}]` });
      }),
      { numRuns: 500 },
    );
  });

  test("may lack what the others have", () => {
    const value = [
      { b: 1, a: 2, c: 3 },
      { b: 1, a: undefined, c: 3 },
      { b: undefined, a: undefined, c: undefined },
    ];
    const text = '[{"a":2,"b":1,"c":3},{"b":1,"c":3},{}]';
    expect(canonicalizeValue(value)).toEqual({ kind: "canonical", text });
  });

  test("may have any number of different first names", () => {
    const value = Array.from({ length: 500 }, (_, index) => ({ [`n${index}`]: 1, a: 2 }));
    const text = value.map((_, index) => `{"a":2,"n${index}":1}`).join(",");
    for (let time = 0; time < 2; time += 1) {
      expect(canonicalizeValue(value)).toEqual({ kind: "canonical", text: `[${text}]` });
    }
  });
});

describe("a text that is not JSON", () => {
  test.each(["", " ", "{", "{'a':1}", "[1,]", "01", "NaN", "undefined", '"\t"', "\ufeff{}"])("%j", (text) => {
    expect(canonicalizeText(text)).toEqual({ kind: "notJson" });
  });
});

describe("a member given twice is refused", () => {
  test.each([
    ["plainly", '{"a":1,"a":1}'],
    ["behind an escape", '{"a":1,"\\u0061":2}'],
    ["deep inside", '{"a":[{"b":{"c":1,"d":2,"c":3}}]}'],
    ["with whitespace before the colons", '{"a" :1,"a"\n\t\r :2}'],
    ["as __proto__", '{"__proto__":1,"__proto__":2}'],
    ["as the empty name", '{"":1,"":2}'],
    ["with members inside the one that is dropped", '{"a":{"x":1,"y":2},"a":0}'],
    ["next to strings full of colons and quotes", String.raw`{"a":":\":\\","a":"\\\":"}`],
  ])("%s", (_, text) => {
    expect(canonicalizeText(text)).toEqual(refused("duplicate-member"));
  });

  test.each([
    ["colons within strings", '{"a":"b:c","url":"https://example.com:8080"}'],
    ["quotes and colons within strings", String.raw`{"a":"\":\":","b":": :","c\":":"\\"}`],
    ["one name at two levels", '{"a":{"a":{"a":1}}}'],
    ["one name in two items", '[{"a":1},{"a":1}]'],
    ["names that differ only in case", '{"a":1,"A":1}'],
    ["names that differ only in normalisation", '{"\u00e9":1,"e\u0301":1}'],
  ])("but not %s", (_, text) => {
    expect(canonicalizeText(text).kind).toBe("canonical");
  });
});

describe("a lone surrogate is refused", () => {
  test.each([
    ["in a string", '"\\ud800"'],
    ["in a name", '{"\\udc00":1}'],
    ["raw", '"\ud800"'],
    ["in the wrong order", '["\\ude00\\ud83d"]'],
    ["after a whole pair", '"\\ud83d\\ude00\\ud83d"'],
  ])("%s", (_, text) => {
    expect(canonicalizeText(text)).toEqual(refused("lone-surrogate"));
  });

  test("but a whole pair is a character", () => {
    expect(canonicalOf('"\\ud83d\\ude00"')).toBe('"😀"');
  });
});

describe("a number that overflows is refused", () => {
  test.each(["1e999", "-1e999", '{"a":[1e309]}'])("%s", (text) => {
    expect(canonicalizeText(text)).toEqual(refused("number-out-of-range"));
  });
});

describe("hostile nesting", () => {
  test("ends at 512 levels", () => {
    expect(canonicalizeText(nested(512)).kind).toBe("canonical");
    expect(canonicalizeText(nested(513))).toEqual(refused("too-deep"));
    expect(canonicalizeText(`${'{"a":'.repeat(512)}1${"}".repeat(512)}`).kind).toBe("canonical");
    expect(canonicalizeText(`${'{"a":'.repeat(513)}1${"}".repeat(513)}`)).toEqual(refused("too-deep"));
  });

  test("does not overflow the stack with a mebibyte of brackets", () => {
    expect(canonicalizeText("[".repeat(1_048_576))).toEqual({ kind: "notJson" });
    expect(canonicalizeText('{"a":'.repeat(209_715))).toEqual({ kind: "notJson" });
    expect(canonicalizeText(nested(524_288))).toEqual(refused("too-deep"));
  });

  test("does not overflow the stack in a parsed value", () => {
    let value: unknown = 1;
    for (let i = 0; i < 1_000_000; i++) value = [value];
    expect(canonicalizeValue(value)).toEqual(refused("too-deep"));
  });

  test("ends for a value that contains itself", () => {
    const value: Record<string, unknown> = {};
    value.self = { again: [value], andAgain: value };
    expect(canonicalizeValue(value)).toEqual(refused("too-deep"));
  });
});

describe("the name __proto__", () => {
  test("is a member like any other", () => {
    const text = '{"__proto__":{"admin":true},"a":1}';
    expect(canonicalOf(text)).toBe(text);
    expect(canonicalizeValue(JSON.parse(text))).toEqual({ kind: "canonical", text });
  });
});

describe("a parsed value", () => {
  test("may come from another realm or have no prototype", () => {
    const foreign = runInNewContext("({ b: [1], a: {} })");
    expect(canonicalizeValue(foreign)).toEqual({ kind: "canonical", text: '{"a":{},"b":[1]}' });
    const bare = Object.assign(Object.create(null), { b: 1, a: Object.create(null) });
    expect(canonicalizeValue(bare)).toEqual({ kind: "canonical", text: '{"a":{},"b":1}' });
    // What querystring.parse makes: the prototype is not Object.prototype, but inherits nothing.
    const querystring = Object.assign(Object.create(Object.create(null)), { a: "1" });
    expect(canonicalizeValue(querystring)).toEqual({ kind: "canonical", text: '{"a":"1"}' });
  });

  test("loses the members that are undefined, as in JSON.stringify", () => {
    expect(canonicalizeValue({ a: undefined, b: null, c: [{ d: undefined }] })).toEqual({
      kind: "canonical",
      text: '{"b":null,"c":[{}]}',
    });
  });

  test.each([
    ["undefined", undefined],
    ["undefined in an array", [undefined]],
    ["a hole in an array", new Array(1)],
    ["a function", () => 1],
    ["a member that is a function", { toJSON: () => 1 }],
    ["a symbol", Symbol("a")],
    ["a bigint", 1n],
    ["NaN", Number.NaN],
    ["a Date", new Date(0)],
    ["a Map", new Map([["a", 1]])],
    ["a byte array", new Uint8Array(1)],
    ["a boxed string", Object("a")],
    ["an instance of a class", new (class Money {})()],
  ])("is refused when it is %s", (_, value) => {
    expect(canonicalizeValue(value)).toEqual(refused("not-a-json-value"));
    expect(canonicalizeValue({ a: [value] })).toEqual(refused("not-a-json-value"));
  });
});

function canonicalOf(text: string): string {
  const answer = canonicalizeText(text);
  if (answer.kind !== "canonical") throw new Error(`${JSON.stringify(answer)} for ${text}`);
  return answer.text;
}

function refused(reason: string): { kind: "refused"; reason: string } {
  return { kind: "refused", reason };
}

function nested(levels: number): string {
  return "[".repeat(levels) + "]".repeat(levels);
}

function isDeepEqual(a: unknown, b: unknown): boolean {
  try {
    // JSON has one zero only, so both sides go through it once.
    expect(JSON.parse(JSON.stringify(a))).toStrictEqual(JSON.parse(JSON.stringify(b)));
    return true;
  } catch {
    return false;
  }
}
