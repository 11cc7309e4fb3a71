import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fingerprintSelection } from "../../src/core/fingerprint.ts";
import { fingerprintOf, json, of } from "./fingerprint-sketch.ts";

describe("version 1", () => {
  // Stored fingerprints outlive a deployment: whoever changes one of these has to bump the version.
  test.each([
    [
      "JSON",
      { contentType: "application/json", body: '{"b":1,"a":"é"}' },
      ["0", "json", "application/json", '{"a":"é","b":1}'],
    ],
    ["a query", { query: "b=2&a=1" }, ["2", "a", "1", "b", "2", "empty"]],
    ["an undecodable query", { query: "a=%FF" }, ["raw", "a=%FF", "empty"]],
    [
      "a form",
      { contentType: "application/x-www-form-urlencoded", body: "b=2&a=é" },
      ["0", "form", "2", "a", "é", "b", "2"],
    ],
    ["bytes", { contentType: "text/plain", body: "é" }, ["0", "bytes", "text/plain", "", "é"]],
    [
      "compressed bytes",
      { contentType: "text/plain", contentEncoding: "GZIP", body: "x" },
      ["0", "bytes", "text/plain", "gzip", "x"],
    ],
    [
      "multipart",
      { contentType: "multipart/form-data; boundary=b", body: "--b\r\nA: 1\r\n\r\nx\r\n--b--" },
      ["0", "multipart", "multipart/form-data", "1", "1", "a", "1", "x"],
    ],
    [
      "a parsed form",
      {
        contentType: "application/x-www-form-urlencoded",
        body: { kind: "parsed" as const, value: { a: "1" } },
      },
      ["0", "form-parsed", "application/x-www-form-urlencoded", '{"a":"1"}'],
    ],
  ])("hashes the length and content of each field: %s", (_, input, fields) => {
    expect(of(input)).toBe(expectedV1(["1", "POST", "/rides", ...fields]));
  });

  test("hashes a selection in place of query and body", () => {
    const answer = fingerprintSelection({ method: "POST", path: "/rides", selection: { b: 1, a: 2 } });
    expect(fingerprintOf(answer)).toBe(
      expectedV1(["1", "POST", "/rides", "0", "selection", '{"a":2,"b":1}']),
    );
  });

  // Up to some size everything is hashed in one piece, and from then on piece by piece.
  test.each([1_000, 4_000, 6_000, 15_000, 40_000, 300_000])("hashes %i bytes like few of them", (length) => {
    const text = "é".repeat(length / 2);
    const beyond = [
      [
        { contentType: "application/json", body: `["${text}"]` },
        ["0", "json", "application/json", `["${text}"]`],
      ],
      [
        { contentType: "application/json", body: `["\\u0041${text}"]` },
        ["0", "json", "application/json", `["A${text}"]`],
      ],
      [
        { contentType: "application/json", body: { kind: "parsed", value: [text] } },
        ["0", "json", "application/json", `["${text}"]`],
      ],
      [{ contentType: "text/plain", body: text }, ["0", "bytes", "text/plain", "", text]],
      [
        { query: `a=${text}&b=2`, contentType: "text/plain", body: text },
        ["2", "a", text, "b", "2", "bytes", "text/plain", "", text],
      ],
    ] as const;
    for (const [input, fields] of beyond)
      expect(of(input)).toBe(expectedV1(["1", "POST", "/rides", ...fields]));
    const selected = fingerprintSelection({ method: "POST", path: "/rides", selection: [text] });
    expect(fingerprintOf(selected)).toBe(
      expectedV1(["1", "POST", "/rides", "0", "selection", `["${text}"]`]),
    );
  });

  test("does not depend on the requests that came before", () => {
    const word = fc.constantFrom("", "a", "é", "ab");
    const sketch = fc.record({
      method: fc.constantFrom("POST", "PUT"),
      path: fc.constantFrom("/rides", "/rides/1", "/é", `/${"x".repeat(2_000)}`),
      query: fc.constantFrom("", "a=1"),
      contentType: fc.constantFrom("application/json", "application/json; charset=utf-8", "a/b+json", ""),
      contentEncoding: fc.constantFrom(undefined, "", "identity"),
      value: fc.record({ a: word, b: word }),
      kind: fc.constantFrom("bytes", "parsed", "selection"),
    });
    fc.assert(
      fc.property(fc.array(sketch, { minLength: 2, maxLength: 8 }), (sketches) => {
        for (const one of sketches) {
          const { method, path, query, contentType, value, kind } = one;
          const body = JSON.stringify(value);
          if (kind === "selection") {
            const selected = fingerprintSelection({ method, path, selection: value });
            const fields = ["1", method, path, "0", "selection", body];
            expect(fingerprintOf(selected)).toBe(expectedV1(fields));
            continue;
          }
          const mediaType = contentType.replace(/;.*/, "");
          const other =
            kind === "parsed" ? ["parsed", "", body] : ["bytes", "", one.contentEncoding ?? "", body];
          const fields = mediaType === "" ? other : ["json", mediaType, body];
          const queried = query === "" ? ["0"] : ["1", "a", "1"];
          const sent = { ...one, body: kind === "parsed" ? ({ kind, value } as const) : body };
          expect(of(sent)).toBe(expectedV1(["1", method, path, ...queried, ...fields]));
        }
      }),
    );
  });

  test("is written in front of the digest", () => {
    expect(json('{"amount":100,"currency":"usd"}')).toBe("v1:A90A-EXPU4DyzppORg_Rvjscr31d24s9aaB-Z4alfgA");
  });
});

function expectedV1(fields: readonly string[]): string {
  const framed = fields.map((field) => `${Buffer.byteLength(field)}:${field}`).join("");
  return `v1:${createHash("sha256").update(framed).digest("base64url")}`;
}
