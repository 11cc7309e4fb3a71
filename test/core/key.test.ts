import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type KeyFormat, keyLengthMax, keyTimeMs, parseKey } from "../../src/core/key.ts";

const formats: KeyFormat[] = ["any", "structured", "bare", "uuid"];
const uuidV4 = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6";
const uuidV7 = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"; // The example of RFC 9562, appendix A.6.

describe("a request without the header", () => {
  test.each(formats)("has no key (%s)", (format) => {
    expect(parseKey([], format)).toEqual({ kind: "missing" });
  });
});

describe("the quoted and the bare spelling", () => {
  test("are one key", () => {
    expect(parseKey(['"abc"'], "any")).toEqual(key("abc"));
    expect(parseKey(["abc"], "any")).toEqual(key("abc"));
  });

  test("may have spaces and tabs around them", () => {
    expect(parseKey([' \t"abc"\t '], "any")).toEqual(key("abc"));
    expect(parseKey([" \tabc\t "], "any")).toEqual(key("abc"));
  });

  test("are told apart where a route takes only one of them", () => {
    expect(parseKey(['"abc"'], "structured")).toEqual(key("abc"));
    expect(reasonOf(["abc"], "structured")).toContain("within double quotes");
    expect(parseKey(["abc"], "bare")).toEqual(key("abc"));
    expect(reasonOf(['"abc"'], "bare")).toContain("without the double quotes");
  });

  test("agree on every key that can be bare", () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[!#-+\--:<-[\]-~]{1,255}$/), (text) => {
        expect(parseKey([text], "any")).toEqual(key(text));
        expect(parseKey([`"${text}"`], "any")).toEqual(key(text));
      }),
    );
  });

  test("a quoted key is exactly the text that was quoted", () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[ -~]{1,255}$/), (text) => {
        expect(parseKey([`"${text.replaceAll(/["\\]/g, "\\$&")}"`], "any")).toEqual(key(text));
      }),
    );
  });

  test("letter case is part of a key", () => {
    expect(parseKey(["AbC"], "any")).toEqual(key("AbC"));
  });
});

describe("a header sent more than once is refused", () => {
  test.each([
    ["as two fields", ["a", "b"]],
    ["as two equal fields", ["a", "a"]],
    ["as two empty fields", ["", ""]],
    ["joined by the runtime", ["a, b"]],
    ["joined by the runtime, without a space", ["a,a"]],
    ["joined by the runtime, quoted", ['"a", "b"']],
  ])("%s", (_, fieldValues) => {
    expect(reasonOf(fieldValues, "any")).toContain("send it exactly once");
  });

  test("but a comma within quotes is part of the key", () => {
    expect(parseKey(['"a, b; c"'], "any")).toEqual(key("a, b; c"));
  });
});

describe("a malformed key is refused", () => {
  test.each([
    ["empty", "", "is empty"],
    ["only whitespace", " \t ", "is empty"],
    ["an empty string", '""', "is empty"],
    ["parameters after a bare key", "abc;v=1", "carries parameters"],
    ["parameters after a quoted key", '"abc";v=1', "carries parameters"],
    ["no closing quote", '"abc', "no closing quote"],
    ["a lone quote", '"', "no closing quote"],
    ["an escaped closing quote", '"abc\\"', "no closing quote"],
    ["an unknown escape", '"a\\nc"', "escapes nothing"],
    ["an escape of nothing", '"abc\\', "escapes nothing"],
    ["text after the closing quote", '"abc"d', "after the closing quote"],
    ["a second string", '"abc" "d"', "after the closing quote"],
    ["a control character, bare", "a\u0001b", "printable ASCII"],
    ["a control character, quoted", '"a\u007fb"', "printable ASCII"],
    ["a line break", "a\r\nSet-Cookie: x", "printable ASCII"],
    ["a tab inside", "a\tb", "printable ASCII"],
    ["a NUL", '"a\0"', "printable ASCII"],
    ["non-ASCII, bare", "clé", "printable ASCII"],
    ["non-ASCII, quoted", '"clé"', "printable ASCII"],
    ["an emoji", "😀", "printable ASCII"],
    ["a lone surrogate", "\ud800", "printable ASCII"],
    ["a no-break space around it", "\u00a0abc", "printable ASCII"],
    ["a space inside a bare key", "a b", "within double quotes"],
    ["a quote inside a bare key", 'a"b', "within double quotes"],
    ["a backslash in a bare key", "a\\b", "within double quotes"],
  ])("%s", (_, fieldValue, says) => {
    expect(reasonOf([fieldValue], "any")).toContain(says);
  });

  test("when it is longer than 255 characters, not counting quotes and escapes", () => {
    expect(parseKey(["a".repeat(keyLengthMax)], "any")).toEqual(key("a".repeat(255)));
    expect(parseKey([`"${"a".repeat(254)}\\""`], "any")).toEqual(key(`${"a".repeat(254)}"`));
    expect(reasonOf(["a".repeat(256)], "any")).toContain("at most 255");
    expect(reasonOf([`"${"\\\\".repeat(256)}"`], "any")).toContain("at most 255");
  });

  test("with one full sentence that never repeats what was sent", () => {
    // The letters are ones that no sentence contains, so that any echo is seen.
    const value = fc.string({ unit: fc.constantFrom("Ж", "Ω", "\u0007", '"', "\\", ";", ",", " ", "7") });
    fc.assert(
      fc.property(value, fc.constantFrom(...formats), (text, format) => {
        const answer = parseKey([text], format);
        if (answer.kind !== "invalid") return;
        expect(answer.reason).toMatch(/^[A-Z][ -~]+\.$/);
        expect(answer.reason).not.toMatch(/[ЖΩ\\"7]/);
      }),
    );
  });

  test("without throwing, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.constantFrom(...formats), (text, format) => {
        const answer = parseKey([text], format);
        if (answer.kind === "key") expect(answer.key).toMatch(/^[ -~]{1,255}$/);
      }),
    );
  });

  test("at once, however long it is", () => {
    const startedMs = performance.now();
    expect(reasonOf([`${" ".repeat(1_000_000)}a${" ".repeat(1_000_000)}b`], "any")).toContain("a space");
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });
});

describe("the uuid format", () => {
  test("takes either spelling, and letter case is no part of the key", () => {
    expect(parseKey([uuidV4], "uuid")).toEqual(key(uuidV4));
    expect(parseKey([`"${uuidV4.toUpperCase()}"`], "uuid")).toEqual(key(uuidV4));
  });

  test("takes every kind of UUID", () => {
    fc.assert(
      fc.property(fc.uuid(), (uuid) => {
        expect(parseKey([uuid], "uuid")).toEqual(key(uuid));
      }),
    );
    expect(parseKey(["00000000-0000-0000-0000-000000000000"], "uuid").kind).toBe("key");
    expect(parseKey(["FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"], "uuid").kind).toBe("key");
  });

  test.each([
    "abc",
    uuidV4.replaceAll("-", ""),
    `{${uuidV4}}`,
    `urn:uuid:${uuidV4}`,
    `${uuidV4}0`,
    ` "${uuidV4} "`,
    "f81d4fae-7dec-91d0-a765-00a0c91e6bf6",
    "f81d4fae-7dec-41d0-c765-00a0c91e6bf6",
    "g81d4fae-7dec-41d0-a765-00a0c91e6bf6",
  ])("refuses %s", (value) => {
    expect(reasonOf([value], "uuid")).toContain("not a UUID");
  });
});

describe("the time within a key", () => {
  test("is that of a UUIDv7, in either case", () => {
    const timeMs = Date.parse("2022-02-22T19:22:22Z");
    expect(keyTimeMs(uuidV7)).toBe(timeMs);
    expect(keyTimeMs(uuidV7.toUpperCase())).toBe(timeMs);
  });

  test("is read back from every UUIDv7", () => {
    fc.assert(
      fc.property(fc.nat({ max: 2 ** 48 - 1 }), fc.uuid({ version: 7 }), (timeMs, uuid) => {
        const hex = timeMs.toString(16).padStart(12, "0");
        expect(keyTimeMs(`${hex.slice(0, 8)}-${hex.slice(8)}${uuid.slice(13)}`)).toBe(timeMs);
      }),
    );
  });

  test.each([uuidV4, "abc", "", `${uuidV7}0`, ` ${uuidV7}`, "ffffffff-ffff-ffff-ffff-ffffffffffff"])(
    "is not in %j",
    (text) => {
      expect(keyTimeMs(text)).toBeUndefined();
    },
  );
});

function key(text: string): { kind: "key"; key: string } {
  return { kind: "key", key: text };
}

function reasonOf(fieldValues: readonly string[], format: KeyFormat): string {
  const answer = parseKey(fieldValues, format);
  if (answer.kind !== "invalid") throw new Error(`Expected a refusal, got ${JSON.stringify(answer)}.`);
  return answer.reason;
}
