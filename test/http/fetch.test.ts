import { describe, expect, it } from "vitest";
import { readFetchBody, saysTooLarge, toResponse } from "../../src/http/fetch.ts";

describe("an answer as a web-standard response", () => {
  it("holds the body alone, not the buffer that it is a window of", async () => {
    const pool = Buffer.from("secretbodysecret");
    const response = toResponse({ status: 200, headers: [], body: pool.subarray(6, 10) });
    expect(await response.text()).toBe("body");
  });

  it("has no body where the standard forbids one", () => {
    for (const status of [204, 205, 304]) {
      expect(toResponse({ status, headers: [], body: new Uint8Array() }).body).toBeNull();
    }
  });

  it("replaces what outer middleware has set, and adds to the rest", () => {
    const outer = new Headers({ vary: "Origin", "x-outer": "1" });
    const answer = {
      status: 200,
      headers: [
        ["vary", "Origin"],
        ["vary", "Accept"],
      ] as const,
      body: new Uint8Array(),
    };
    expect(Object.fromEntries(toResponse(answer, outer).headers)).toMatchObject({
      vary: "Origin, Accept",
      "x-outer": "1",
    });
  });
});

describe("the body of a web-standard request", () => {
  const request = (init: RequestInit) => new Request("http://localhost/", { method: "POST", ...init });
  const inParts = (parts: readonly string[]) =>
    request({
      body: new Blob([...parts]).stream(),
      duplex: "half",
    } as RequestInit);

  it("is read up to the limit, with and without a length", async () => {
    for (const make of [
      () => request({ body: "12345", headers: { "content-length": "5" } }),
      () => inParts(["12", "345"]),
    ]) {
      expect(Buffer.from((await readFetchBody(make(), 5)) ?? []).toString()).toBe("12345");
      expect(await readFetchBody(make(), 4)).toBeUndefined();
    }
  });

  it("may be missing", async () => {
    expect(await readFetchBody(request({}), 0)).toEqual(new Uint8Array());
  });

  it("is judged by what it says, before it is read", () => {
    expect(saysTooLarge(request({ headers: { "content-length": "6" } }), 5)).toBe(true);
    expect(saysTooLarge(request({ headers: { "content-length": "5" } }), 5)).toBe(false);
    expect(saysTooLarge(request({}), 5)).toBe(false);
  });
});
