import { describe, expect, it } from "vitest";
import type { RequestBody } from "../../src/core/fingerprint.ts";
import { storedRequest } from "../../src/http/stored-request.ts";

const headers: Record<string, string> = {
  "idempotency-key": '"key-1"',
  "content-encoding": "gzip",
  authorization: "Bearer secret",
  "x-api-version": "2026-11-15",
};

function kept(body: RequestBody, contentType?: string) {
  const all: Record<string, string | undefined> = { ...headers, "content-type": contentType };
  return storedRequest(
    {
      method: "POST",
      path: "/rides",
      query: "a=1",
      native: {},
      header: (name) => all[name.toLowerCase()],
      identity: {},
      keyFields: [],
      contentType: undefined,
      contentEncoding: undefined,
      isClaim: false,
      body: async () => ({ kind: "tooLarge" }),
    },
    body,
    { tenant: "acme", extraHeaders: ["X-Api-Version"] },
  );
}
const textOf = (body: RequestBody, contentType?: string) => {
  const request = kept(body, contentType);
  return request === undefined ? undefined : Buffer.from(request.body).toString();
};

describe("a request that is kept for a worker", () => {
  it("has what executes it again, and nothing that identifies its caller", () => {
    expect(kept({ kind: "bytes", bytes: Buffer.from("x") }, "text/plain")).toEqual({
      method: "POST",
      target: "/rides?a=1",
      tenant: "acme",
      headers: [
        ["idempotency-key", '"key-1"'],
        ["content-type", "text/plain"],
        ["content-encoding", "gzip"],
        ["x-api-version", "2026-11-15"],
      ],
      body: Buffer.from("x"),
    });
  });

  it("nor one that somebody else has undone on the way", () => {
    const body = { kind: "bytes", bytes: Buffer.from("{}"), isDecoded: true } as const;
    expect(kept(body, "application/json")?.headers.map(([name]) => name)).not.toContain("content-encoding");
  });

  it("does not claim an encoding that a parser has undone", () => {
    const names = kept({ kind: "parsed", value: {} }, "application/json")?.headers.map(([name]) => name);
    expect(names).not.toContain("content-encoding");
  });

  it.each<[string, unknown, string | undefined, string | undefined]>([
    ["JSON", { b: [1, null], a: "é" }, "application/json; charset=utf-8", '{"b":[1,null],"a":"é"}'],
    ["JSON of another name", { a: 1 }, "application/merge-patch+json", '{"a":1}'],
    ["an object of no type", {}, undefined, "{}"],
    ["a JSON text", "hello", "application/json", '"hello"'],
    ["text", "plain", "text/plain", "plain"],
    ["text of another alphabet", "é", "text/plain; charset=latin1", undefined],
    ["bytes", Buffer.from("raw"), "application/octet-stream", "raw"],
    ["nothing", undefined, undefined, ""],
    ["a form", { a: "1", b: "x y&z" }, "application/x-www-form-urlencoded", "a=1&b=x+y%26z"],
    ["a nested form", { a: { b: "1" } }, "application/x-www-form-urlencoded", undefined],
    ["an upload", { field: "1" }, "multipart/form-data; boundary=x", undefined],
  ])(
    "keeps %s that was parsed as it would be read again, or not at all",
    (_what, value, contentType, expected) => {
      expect(textOf({ kind: "parsed", value }, contentType)).toBe(expected);
    },
  );
});
