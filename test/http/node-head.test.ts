import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { assertHead, restoreHeaders, setHeaders, wholeHead } from "../../src/http/node-head.ts";

function response(): ServerResponse {
  return new ServerResponse(new IncomingMessage(new Socket()));
}

describe("the head of a Node response", () => {
  it("takes headers as an object, and as names and values in turn", () => {
    const res = response();
    res.setHeader("etag", '"old"');
    setHeaders(res, { ETag: '"new"', link: ["</a>", "</b>"], "x-none": undefined });
    expect({ ...res.getHeaders() }).toEqual({ etag: '"new"', link: ["</a>", "</b>"] });
    setHeaders(res, ["Link", "</c>", "x-one", "1", "link", "</d>"]);
    expect({ ...res.getHeaders() }).toEqual({ etag: '"new"', link: ["</c>", "</d>"], "x-one": "1" });
  });

  it("is whole if nothing is set before, the length is known and it is spelt as it is stored", () => {
    const given = { "content-type": "text/plain", "content-length": 4 };
    expect(wholeHead(response(), given)).toEqual({ "content-type": "text/plain", "content-length": "4" });
    const others = [
      undefined,
      ["content-length", "4"],
      { "content-type": "text/plain" },
      { "Content-Length": "4" },
      { "content-length": "4", link: ["</a>", "</b>"] },
      { "content-length": "4", "x-none": undefined },
    ];
    for (const other of others) expect(wholeHead(response(), other)).toBeUndefined();
    const res = response();
    res.setHeader("vary", "Origin");
    expect(wholeHead(res, given)).toBeUndefined();
    expect(() => wholeHead(response(), { "content-length": 4, etag: "1\n2" })).toThrow(TypeError);
    expect(() => wholeHead(response(), { "content-length": 4, "e tag": "1" })).toThrow(TypeError);
  });

  it("is looked at again wherever it differs from the last one", () => {
    const given = { "content-length": "4", etag: '"1"' };
    for (let time = 0; time < 2; time++) expect(wholeHead(response(), { ...given })).toEqual(given);
    expect(() => wholeHead(response(), { ...given, etag: "1\n2" })).toThrow(TypeError);
    expect(wholeHead(response(), { ...given, ETag: '"1"' })).toBeUndefined();
    expect(wholeHead(response(), Object.assign(Object.create({ vary: "Origin" }), given))).toBeUndefined();
    expect(wholeHead(response(), { ...given, etag: '"2"' })).toEqual({ ...given, etag: '"2"' });
  });

  it("gets the headers back that it had, and no others", () => {
    const res = response();
    res.setHeader("vary", "Origin");
    const before = res.getHeaders();
    res.setHeader("vary", "Origin, Accept");
    res.setHeader("location", "/charges/1");
    restoreHeaders(res, before);
    expect({ ...res.getHeaders() }).toEqual({ vary: "Origin" });
  });

  it("is refused where Node would refuse to send it", () => {
    for (const status of [0, 99, 1000, Number.NaN]) {
      expect(() => assertHead(status, undefined)).toThrow(RangeError);
      expect(() => response().writeHead(status)).toThrow(RangeError);
    }
    for (const message of ["line\nbreak", "\u0000", "✓"]) {
      expect(() => assertHead(200, message)).toThrow(TypeError);
      expect(() => response().writeHead(200, message)).toThrow(TypeError);
    }
    for (const message of [undefined, "", "Made", "Fertig gemäß\tPlan"]) {
      expect(() => assertHead(201, message)).not.toThrow();
    }
  });
});
