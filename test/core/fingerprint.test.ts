import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fingerprintRequest, fingerprintSelection } from "../../src/core/fingerprint.ts";
import { fingerprintOf, json, of, parsed, request } from "./fingerprint-sketch.ts";

describe("the request line", () => {
  test("the method is part of the request", () => {
    expect(of({ method: "POST" })).not.toBe(of({ method: "PATCH" }));
  });

  test("the path is part of the request", () => {
    expect(of({ path: "/rides" })).not.toBe(of({ path: "/rides/" }));
  });

  test("the query is part of the request", () => {
    expect(of({ query: "dry=1" })).not.toBe(of({ query: "" }));
    expect(of({ query: "dry=1" })).not.toBe(of({ query: "dry=2" }));
  });

  test("reordered query parameters are the same request", () => {
    expect(of({ query: "a=1&b=2" })).toBe(of({ query: "b=2&a=1" }));
    expect(of({ query: "a=1&b=x&a=2" })).toBe(of({ query: "b=x&a=1&a=2" }));
  });

  test("the order of one parameter's values matters", () => {
    expect(of({ query: "a=1&a=2" })).not.toBe(of({ query: "a=2&a=1" }));
  });

  test("differently encoded query parameters are the same request", () => {
    expect(of({ query: "name=a%20b&caf%c3%a9" })).toBe(of({ query: "%6Eame=a+b&caf%C3%A9=" }));
  });

  test("an encoded separator is not a separator", () => {
    expect(of({ query: "a=1%26b=2" })).not.toBe(of({ query: "a=1&b=2" }));
    expect(of({ query: "a%3D1=2" })).not.toBe(of({ query: "a=1%3D2" }));
  });

  test("a second question mark is part of the first name", () => {
    expect(of({ query: "?a=1" })).not.toBe(of({ query: "a=1" }));
  });

  test("a query that does not decode is compared as it was sent", () => {
    expect(of({ query: "a=%FF" })).not.toBe(of({ query: "a=%FE" }));
    expect(of({ query: "a=%FF" })).toBe(of({ query: "a=%FF" }));
    expect(of({ query: "a=%FF" })).not.toBe(of({ query: "a=%EF%BF%BD" }));
  });
});

describe("a JSON body", () => {
  test("reordered members are the same request", () => {
    expect(json('{"a":1,"b":{"c":2,"d":3}}')).toBe(json('{ "b": {"d":3, "c":2},\n "a": 1 }'));
  });

  test("another spelling of a number or string is the same request", () => {
    expect(json('[1.0,"\\u0041",1e3]')).toBe(json('[1,"A",1000]'));
  });

  test.each([
    ["1", '"1"', '1 and "1"'],
    ['{"a":null}', "{}", "null and absent"],
    ["[1,2]", "[2,1]", "reordered items"],
    ['{"a":1}', '{"A":1}', "names in another case"],
    ["{}", "[]", "an object and an array"],
    ['"é"', '"e\\u0301"', "another Unicode normalisation"],
    ["0", "false", "zero and false"],
    ["[[1],2]", "[1,[2]]", "another nesting"],
  ])("%s and %s are different requests (%s)", (a, b) => {
    expect(json(a)).not.toBe(json(b));
  });

  test("is the same request whether it arrives as bytes or already parsed", () => {
    const text = '{"b":[1,{"z":"é","a":null}],"a":1.50}';
    expect(parsed(JSON.parse(text), "application/json")).toBe(json(text));
    expect(parsed(text, "application/json")).toBe(json(text));
    expect(parsed(Buffer.from(text), "application/json")).toBe(json(text));
  });

  test("any content type that ends in +json counts as JSON, parameters and case do not", () => {
    const spelled = ['{"a":1,"b":2}', '{"b":2,"a":1}'];
    for (const contentType of [
      "APPLICATION/JSON",
      "application/json ;charset=utf-8",
      "application/vnd.api+json",
    ]) {
      const [a, b] = spelled.map((text) => of({ contentType, body: text }));
      expect(a).toBe(b);
    }
    expect(of({ contentType: "Application/JSON; charset=utf-8", body: "{}" })).toBe(json("{}"));
  });

  test("another JSON content type is another request", () => {
    expect(of({ contentType: "application/merge-patch+json", body: "{}" })).not.toBe(json("{}"));
  });

  test("a type that merely mentions JSON is not JSON", () => {
    for (const contentType of [
      "application/jsonl",
      "application/json-seq",
      "text/plain; x=application/json",
    ]) {
      expect(of({ contentType, body: "[1, 2]" })).not.toBe(of({ contentType, body: "[1,2]" }));
    }
  });

  test("a byte order mark makes no difference", () => {
    expect(json('\ufeff{"a":1}')).toBe(json('{"a":1}'));
  });

  test("that is no valid JSON is compared byte by byte", () => {
    expect(json('{"a":1')).toBe(json('{"a":1'));
    expect(json('{"a":1')).not.toBe(json('{"a": 1'));
  });

  test("that is no valid UTF-8 is compared byte by byte", () => {
    const body = (byte: number) => Buffer.from([0x22, byte, 0x22]);
    expect(of({ contentType: "application/json", body: body(0xff) })).not.toBe(
      of({ contentType: "application/json", body: body(0xfe) }),
    );
    // A failed decoding must leave nothing behind for the next request.
    expect(json('"é"')).toBe(json('"\\u00e9"'));
  });

  test.each([
    ["duplicate-member", '{"a":1,"\\u0061":2}'],
    ["lone-surrogate", '{"\\ud800":1}'],
    ["number-out-of-range", "[1e999]"],
    ["too-deep", "[".repeat(600) + "]".repeat(600)],
  ])("is refused when it is ambiguous: %s", (reason, body) => {
    expect(fingerprintRequest(request({ contentType: "application/json", body }))).toEqual({
      kind: "refused",
      reason,
    });
  });

  test("of a mebibyte of brackets is compared byte by byte", () => {
    expect(json("[".repeat(1_048_576))).not.toBe(json("["));
  });

  test("cannot reach a prototype", () => {
    expect(json('{"__proto__":{"a":1}}')).not.toBe(json('{"__proto__":{"a":2}}'));
    expect(json('{"__proto__":{"a":1}}')).not.toBe(json("{}"));
  });
});

describe("a form body", () => {
  const contentType = "application/x-www-form-urlencoded";
  const form = (body: string | Uint8Array) => of({ contentType: `${contentType};charset=UTF-8`, body });

  test("reordered or differently encoded fields are the same request", () => {
    expect(form("a=1&b=x+y")).toBe(form("b=x%20y&a=1"));
  });

  test("the order of one field's values matters", () => {
    expect(form("a=1&a=2")).not.toBe(form("a=2&a=1"));
  });

  test("a leading question mark or byte order mark is part of the first name", () => {
    expect(form("?a=1")).not.toBe(form("a=1"));
    expect(form("\ufeffa=1")).not.toBe(form("a=1"));
  });

  test("that does not decode is compared byte by byte", () => {
    expect(form("a=%FF&b=1")).not.toBe(form("a=%FE&b=1"));
    expect(form(Buffer.from([0x61, 0x3d, 0xff]))).not.toBe(form(Buffer.from([0x61, 0x3d, 0xfe])));
  });

  test("is not the same as that text in the query", () => {
    expect(form("a=1")).not.toBe(of({ contentType, query: "a=1" }));
  });

  test("already parsed, is the same whatever the order of its fields", () => {
    expect(parsed({ a: "1", b: ["2", "3"] }, contentType)).toBe(
      parsed({ b: ["2", "3"], a: "1" }, contentType),
    );
    expect(parsed({ b: ["2", "3"] }, contentType)).not.toBe(parsed({ b: ["3", "2"] }, contentType));
    expect(parsed({ a: "1" }, contentType)).not.toBe(parsed({ a: "1" }, "application/json"));
  });

  test("of more pairs than a function takes arguments is no trouble", () => {
    expect(form("a&".repeat(200_000))).not.toBe(form("a"));
  });
});

describe("a multipart body", () => {
  const part = 'Content-Disposition: form-data; name="a"\r\n\r\n1\r\n';
  const file =
    'Content-Disposition: form-data; name="f"; filename="x"\r\nContent-Type: text/plain\r\n\r\nhi\r\n';
  const multipart = (parts: string[], boundary = "b", subtype = "form-data") =>
    of({
      contentType: `multipart/${subtype}; boundary=${boundary}`,
      body: `${parts.map((text) => `--${boundary}\r\n${text}`).join("")}--${boundary}--\r\n`,
    });

  test("is the same under another boundary", () => {
    expect(multipart([part, file], "one")).toBe(multipart([part, file], "----two"));
  });

  test("is the same with the headers of a part reordered", () => {
    const reordered =
      'content-type: text/plain\r\nContent-Disposition:form-data; name="f"; filename="x"\r\n\r\nhi\r\n';
    expect(multipart([part, file])).toBe(multipart([part, reordered]));
  });

  test.each([
    ["another order of parts", [file, part]],
    ["another content", [part, file.replace("hi", "ho")]],
    ["another file name", [part, file.replace('"x"', '"y"')]],
    ["another content type", [part, file.replace("plain", "html")]],
    ["a part more", [part, file, part]],
    ["a part less", [part]],
  ])("is another request with %s", (_, parts) => {
    expect(multipart(parts)).not.toBe(multipart([part, file]));
  });

  test("of another subtype is another request", () => {
    expect(multipart([part], "b", "mixed")).not.toBe(multipart([part], "b"));
  });

  test("that is malformed is compared byte by byte", () => {
    const body = (boundary: string) => ({
      contentType: `multipart/form-data; boundary=${boundary}`,
      body: `--${boundary}\r\n${part}`,
    });
    expect(of(body("one"))).toBe(of(body("one")));
    expect(of(body("one"))).not.toBe(of(body("two")));
  });

  test("cannot move a byte from a header into the content", () => {
    expect(multipart(["a: 1\r\n\r\n23\r\n"])).not.toBe(multipart(["a: 12\r\n\r\n3\r\n"]));
    expect(multipart(["\r\nx\r\n", "\r\n\r\n"])).not.toBe(multipart(["\r\n\r\n", "\r\nx\r\n"]));
  });

  test("of ten thousand headers is no trouble", () => {
    const headers = (n: number) => `${"x: 1\r\n".repeat(n)}\r\n1\r\n`;
    expect(multipart([headers(10_000)])).not.toBe(multipart([headers(9_999)]));
  });

  test("already parsed is refused, because its files cannot be seen", () => {
    const answer = fingerprintRequest(
      request({
        contentType: "multipart/form-data; boundary=b",
        body: { kind: "parsed", value: { a: "1" } },
      }),
    );
    expect(answer).toEqual({ kind: "refused", reason: "not-a-json-value" });
  });
});

describe("any other body", () => {
  test("is compared byte by byte", () => {
    expect(of({ contentType: "text/plain", body: "a b" })).not.toBe(
      of({ contentType: "text/plain", body: "a  b" }),
    );
    expect(of({ contentType: undefined, body: "{}" })).not.toBe(of({ contentType: undefined, body: "{ }" }));
  });

  test("is another request under another media type", () => {
    const types = ["text/plain", "application/octet-stream", "application/json", undefined];
    const fingerprints = types.map((contentType) => of({ contentType, body: "not json" }));
    expect(new Set(fingerprints).size).toBe(types.length);
    expect(of({ contentType: "Text/Plain; charset=utf-8", body: "x" })).toBe(
      of({ contentType: "text/plain", body: "x" }),
    );
  });

  test("that is compressed is compared byte by byte, whatever is inside", () => {
    const gzip = (body: string) => of({ contentType: "application/json", contentEncoding: "gzip", body });
    expect(gzip('{"a":1,"b":2}')).not.toBe(gzip('{"b":2,"a":1}'));
    expect(of({ contentType: "application/json", contentEncoding: "br", body: "{}" })).not.toBe(gzip("{}"));
    expect(of({ contentType: "application/json", contentEncoding: " Identity ", body: "{ }" })).toBe(
      json("{}"),
    );
    expect(of({ contentType: "application/json", contentEncoding: "", body: "{ }" })).toBe(json("{}"));
  });

  test("that is empty is one and the same, whatever its content type", () => {
    const empty = of({ contentType: undefined });
    expect(of({ contentType: "application/json" })).toBe(empty);
    expect(of({ contentType: "multipart/form-data; boundary=b", contentEncoding: "gzip" })).toBe(empty);
    expect(parsed(undefined, "application/json")).toBe(empty);
    expect(parsed("", "text/plain")).toBe(empty);
    expect(json('""')).not.toBe(empty);
    expect(json("null")).not.toBe(empty);
  });

  test("that a parser left as text or bytes counts as those bytes", () => {
    const bytes = of({ contentType: "text/plain", body: "héllo" });
    expect(parsed("héllo", "text/plain")).toBe(bytes);
    expect(parsed(Buffer.from("héllo"), "text/plain")).toBe(bytes);
    expect(parsed(new Uint8Array(Buffer.from("xhéllox")).subarray(1, -1), "text/plain")).toBe(bytes);
  });

  test("that a parser left as a value counts as that value", () => {
    expect(parsed({ a: 1, b: 2 }, "application/xml")).toBe(parsed({ b: 2, a: 1 }, "application/xml"));
    expect(parsed({ a: 1 }, "application/xml")).not.toBe(parsed({ a: 1 }, "application/json"));
  });

  test.each([
    ["text with half a character", "a\ud800", "lone-surrogate"],
    ["a class instance", new Date(0), "not-a-json-value"],
    ["a function", () => 1, "not-a-json-value"],
  ])("that a parser left as %s is refused", (_, value, reason) => {
    const answer = fingerprintRequest(
      request({ contentType: "text/plain", body: { kind: "parsed", value } }),
    );
    expect(answer).toEqual({ kind: "refused", reason });
  });
});

describe("no field can pose as another", () => {
  test("when a byte moves across the boundary between two of them", () => {
    expect(of({ method: "POST", path: "/a" })).not.toBe(of({ method: "POST/", path: "a" }));
    expect(of({ path: "/a", query: "b" })).not.toBe(of({ path: "/ab", query: "" }));
    expect(of({ query: "a=b&c=" })).not.toBe(of({ query: "a=&bc=" }));
  });

  test("when a client writes the framing itself", () => {
    const framed = "/a1:15:empty";
    expect(of({ path: framed })).not.toBe(of({ path: "/a" }));
    expect(of({ contentType: "text/plain", body: "json16:application/json2:{}" })).not.toBe(json("{}"));
    expect(of({ contentType: "text/plain0:", body: "x" })).not.toBe(
      of({ contentType: "text/plain", body: "0:x" }),
    );
  });

  test("whatever the fields are", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "1", ":", "0", "/", "é"), maxLength: 6 });
    const input = fc.record({ method: text, path: text, query: text, body: text });
    fc.assert(
      fc.property(input, input, (a, b) => {
        // "a" and "a=" are one query, so the comparison is by pairs.
        const isSame =
          JSON.stringify({ ...a, query: pairsOf(a.query) }) ===
          JSON.stringify({ ...b, query: pairsOf(b.query) });
        const [first, second] = [a, b].map((fields) => of({ ...fields, contentType: "text/plain" }));
        expect(first === second).toBe(isSame);
      }),
      { numRuns: 3_000 },
    );
  });
});

describe("a route that selects its own parameters", () => {
  const select = (selection: unknown, path = "/rides") =>
    fingerprintOf(fingerprintSelection({ method: "POST", path, selection }));

  test("is fingerprinted by these alone", () => {
    expect(select({ amount: 1, to: "a" })).toBe(select({ to: "a", amount: 1 }));
    expect(select({ amount: 1 })).not.toBe(select({ amount: "1" }));
    expect(select({ amount: 1 })).not.toBe(select({ amount: 1 }, "/refunds"));
    expect(fingerprintSelection({ method: "PUT", path: "/rides", selection: 1 })).not.toEqual(
      fingerprintSelection({ method: "POST", path: "/rides", selection: 1 }),
    );
  });

  test("never matches a whole request with the same content", () => {
    expect(select({ amount: 1 })).not.toBe(json('{"amount":1}'));
  });

  test.each([
    ["nothing", undefined, "not-a-json-value"],
    ["a date", { at: new Date(0) }, "not-a-json-value"],
    ["an endless number", { amount: Number.POSITIVE_INFINITY }, "number-out-of-range"],
  ])("is refused when it selects %s", (_, selection, reason) => {
    expect(fingerprintSelection({ method: "POST", path: "/rides", selection })).toEqual({
      kind: "refused",
      reason,
    });
  });
});

function pairsOf(query: string): [string, string][] {
  const params = new URLSearchParams(`?${query}`);
  params.sort();
  return [...params];
}
