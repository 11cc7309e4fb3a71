import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Places, parseJsonPath, redactJson } from "../../src/core/json-redaction.ts";

function redact(text: string, ...paths: string[]): string | undefined {
  return redactIn(text, new Places(paths.map((path) => parseJsonPath(path) ?? expect.fail(path))));
}

function redactIn(text: string, places: Places): string | undefined {
  const redacted = redactJson(Buffer.from(text), places);
  return redacted && Buffer.from(redacted).toString();
}

describe("redacting JSON", () => {
  it("replaces what is at a path, and leaves every other byte as it was", () => {
    const text = '{ "id" : 12345678901234567890, "card":{"number" : "4111" ,"exp":1e400 }, "é":"\\u00e9" }';
    expect(redact(text, "card.number")).toBe(
      '{ "id" : 12345678901234567890, "card":{"number" : "[redacted]" ,"exp":1e400 }, "é":"\\u00e9" }',
    );
  });

  it.each([
    [
      '{"items":[{"secret":1,"a":[1]},{"secret":{"deep":["]"]}},7]}',
      "items[*].secret",
      '{"items":[{"secret":R,"a":[1]},{"secret":R},7]}',
    ],
    ['{"items":[{"secret":1}]}', "items.secret", '{"items":[{"secret":R}]}'],
    ['[{"a":1},{"a":2}]', "[*].a", '[{"a":R},{"a":R}]'],
    ["[1,[2,3]]", "[*]", "[R,R]"],
    ["[[1],[2,3]]", "[*][*]", "[[R],[R,R]]"],
    ['{"a":{"b":1},"a":{"b":2}}', "a.b", '{"a":{"b":R},"a":{"b":R}}'],
    ['{"c\\u0061rd":"4111"}', "card", '{"c\\u0061rd":R}'],
    ['{"a":"\\"}],{[","b":1}', "b", '{"a":"\\"}],{[","b":R}'],
    ['{"a":[],"b":{},"c":null}', "c", '{"a":[],"b":{},"c":R}'],
    ['{"a":{"b":1}}', "a", '{"a":R}'],
    ['{"a":{"b":1}}', "a.b.c", '{"a":{"b":1}}'],
    ['{"a":1}', "b", '{"a":1}'],
    ['"text"', "a", '"text"'],
    ["  7 ", "a", "  7 "],
  ])("%s at %s is %s", (text, path, expected) => {
    expect(redact(text, path)).toBe(expected.replaceAll("R", '"[redacted]"'));
  });

  it("takes several paths, one of them within the other", () => {
    expect(redact('{"a":{"b":1},"c":2}', "a.b", "a", "c")).toBe('{"a":"[redacted]","c":"[redacted]"}');
  });

  it("does not take for JSON what is none", () => {
    for (const text of ["", "{", "not json", '{"a":1}x', "\ufeff{}"])
      expect(redact(text, "a")).toBeUndefined();
  });

  it("takes for JSON what JSON.parse takes, and nothing else, however little of it is changed", () => {
    const isJson = (text: string) => {
      try {
        JSON.parse(text);
        return true;
      } catch {
        return false;
      }
    };
    const alphabet = ' \t\n{}[]":,\\\\u0aF19.-+eEtruefalsn/b\u0000\u0001\u001f\u007f\u00a0é\u2028😀';
    const piece = fc.constantFrom(
      ...alphabet,
      ...[
        '"a"',
        "null",
        "true",
        "false",
        "1e5",
        "-0.5",
        '{"a":',
        "\\ud83d",
        '"\\u00eF"',
        '"\\u00g0"',
        '"\\u1"',
      ],
    );
    const scraps = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(""));
    const spoiled = fc
      .tuple(fc.json(), fc.nat(), fc.nat({ max: 2 }), fc.oneof(fc.constant(""), piece))
      .map(([json, at, gone, added]) => {
        const from = at % (json.length + 1);
        return json.slice(0, from) + added + json.slice(from + gone);
      });
    fc.assert(
      fc.property(fc.oneof(scraps, spoiled), fc.constantFrom("a", "[*]", "b.a"), (text, path) => {
        // Half of a surrogate pair is nothing that bytes could say.
        const sent = Buffer.from(text).toString();
        expect(redact(sent, path) !== undefined).toBe(isJson(sent));
      }),
      { numRuns: 20_000 },
    );
  });

  it("does not take for text what is not UTF-8", () => {
    const places = new Places([["a"]]);
    for (const bytes of [[0xff], [0xc0, 0xaf], [0xed, 0xa0, 0x80]]) {
      expect(redactJson(Buffer.from([0x22, ...bytes, 0x22]), places)).toBeUndefined();
    }
  });

  it("answers with the same bytes where there is nothing to replace", () => {
    const json = Buffer.from('{"b":1}');
    expect(redactJson(json, new Places([["a"]]))).toBe(json);
  });

  it("goes through what is nested as deeply as it likes", () => {
    const deep = `${"[".repeat(5_000)}1${"]".repeat(5_000)}`;
    expect(redact(`{"x":${deep},"a":1}`, "a")).toBe(`{"x":${deep},"a":"[redacted]"}`);
  });

  it("does what reading, changing and writing would do, for any JSON", () => {
    const names = fc.constantFrom("a", "b", 'q"', "é");
    const value = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        fc.oneof(fc.string(), fc.integer(), fc.boolean(), fc.constant(null)),
        fc.array(tie("value"), { maxLength: 3 }),
        fc.dictionary(names, tie("value"), { maxKeys: 3, noNullPrototype: true }),
      ),
    })).value;
    const changed = (json: unknown, [step, ...rest]: string[]): unknown => {
      if (step === undefined) return "[redacted]";
      if (Array.isArray(json))
        return json.map((item) => changed(item, step === "[*]" ? rest : [step, ...rest]));
      if (json === null || typeof json !== "object" || !Object.hasOwn(json, step)) return json;
      return { ...json, [step]: changed((json as Record<string, unknown>)[step], rest) };
    };
    const path = fc.array(fc.oneof(names, fc.constant("[*]")), { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(value, path, fc.constantFrom(undefined, 2), (json, steps, indent) => {
        const text = JSON.stringify(json, null, indent);
        return (
          JSON.stringify(JSON.parse(redactIn(text, new Places([steps])) ?? "0")) ===
          JSON.stringify(changed(json, steps))
        );
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("a path", () => {
  it.each(["", ".", "a.", ".a", "a..b", "a[0]", "a[]", "a[*", "a*]", "[*]a", 7])("is not %s", (text) => {
    expect(parseJsonPath(text)).toBeUndefined();
  });
});
