import { describe, expect, it } from "vitest";
import {
  type CapturedResponse,
  decodeResponse,
  encodeResponse,
  type HeaderPair,
  headerAllowList,
  toStoredResponse,
} from "../../src/core/response.ts";

const captured: CapturedResponse = {
  status: 201,
  headers: [
    ["Content-Type", "text/plain"],
    ["set-cookie", "session=1"],
    ["date", "now"],
    ["link", "</a>"],
    ["X-Request-Id", "7"],
    ["link", "</b>"],
    ["connection", "keep-alive"],
  ],
  body: Uint8Array.from([0, 255]),
};

describe("stored responses", () => {
  it("keep the headers that are as true tomorrow, in order, repeated ones too", () => {
    const stored = toStoredResponse(captured, { allowedHeaders: headerAllowList([]), responseBytesMax: 2 });
    expect(stored).toEqual({
      kind: "full",
      status: 201,
      headers: [
        ["Content-Type", "text/plain"],
        ["link", "</a>"],
        ["link", "</b>"],
      ],
      body: captured.body,
    });
  });

  it("keep a route's own headers", () => {
    const rules = { allowedHeaders: headerAllowList(["X-Request-ID"]), responseBytesMax: 2 };
    const stored = toStoredResponse(captured, rules);
    expect(stored.kind === "full" && stored.headers).toContainEqual(["X-Request-Id", "7"]);
  });

  it.each(["Set-Cookie", "date", "Transfer-Encoding", "content-length"])("never keep %s", (name) => {
    expect(() => headerAllowList([name])).toThrow(/never replayed/);
  });

  it("are a marker when the body is larger than what is kept", () => {
    const stored = toStoredResponse(captured, { allowedHeaders: headerAllowList([]), responseBytesMax: 1 });
    expect(stored).toEqual({ kind: "omitted", status: 201, bodyBytes: 2 });
  });

  it("come back from their columns as they went in", () => {
    for (const responseBytesMax of [1, 2]) {
      const stored = toStoredResponse(captured, { allowedHeaders: headerAllowList([]), responseBytesMax });
      expect(decodeResponse(encodeResponse(stored))).toEqual(stored);
    }
  });

  it("are written with their own headers, whoever was written before and whatever becomes of the list", () => {
    const written = (headers: HeaderPair[], trace?: string) =>
      encodeResponse({ kind: "full", status: 201, headers, body, ...(trace === undefined ? {} : { trace }) })
        .head;
    const body = Buffer.from("done");
    const list: HeaderPair[] = [["location", "/a"]];
    expect(written(list)).toBe('{"v":1,"headers":[["location","/a"]]}');
    list[0] = ["location", "/b"];
    expect(written(list)).toBe('{"v":1,"headers":[["location","/b"]]}');
    expect(written([["location", "/b"]])).toBe('{"v":1,"headers":[["location","/b"]]}');
    expect(written([["Location", "/b"]])).toBe('{"v":1,"headers":[["Location","/b"]]}');
    list.push(["etag", "1"]);
    expect(written(list)).toBe('{"v":1,"headers":[["location","/b"],["etag","1"]]}');
    expect(written([])).toBe('{"v":1,"headers":[]}');
    expect(written(list, "00-1")).toBe('{"v":1,"headers":[["location","/b"],["etag","1"]],"trace":"00-1"}');
    expect(written(list)).toBe('{"v":1,"headers":[["location","/b"],["etag","1"]]}');
  });

  it("of a newer version are not guessed at", () => {
    expect(() => decodeResponse({ status: 200, head: '{"v":2}', body: null })).toThrow(
      /encoding version 2.*upgrade/,
    );
  });
});
