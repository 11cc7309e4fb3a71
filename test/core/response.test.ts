import { describe, expect, it } from "vitest";
import {
  type CapturedResponse,
  decodeResponse,
  encodeResponse,
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

  it("of a newer version are not guessed at", () => {
    expect(() => decodeResponse({ status: 200, head: '{"v":2}', body: null })).toThrow(
      /encoding version 2.*upgrade/,
    );
  });
});
