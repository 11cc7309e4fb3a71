import { describe, expect, it } from "vitest";
import { fingerprintRequest, splitTarget } from "../../src/http/request.ts";

describe("the target of a request", () => {
  it("is split at the first question mark, and left as the client sent it", () => {
    expect(splitTarget("/charges")).toEqual({ path: "/charges", query: "" });
    expect(splitTarget("/charges?")).toEqual({ path: "/charges", query: "" });
    expect(splitTarget("/a%2Fb//../c?x=1?y=%20")).toEqual({ path: "/a%2Fb//../c", query: "x=1?y=%20" });
  });

  it("may name the host, as proxies do", () => {
    expect(splitTarget("http://localhost:8080/charges?x=1")).toEqual({ path: "/charges", query: "x=1" });
    expect(splitTarget("https://localhost/charges?next=/a")).toEqual({ path: "/charges", query: "next=/a" });
  });
});

describe("what a route's own fingerprint is made of", () => {
  const request = {
    method: "POST",
    path: "/charges",
    query: "currency=eur&currency=usd",
    native: {},
    identity: {},
    keyFields: [],
    contentType: undefined,
    contentEncoding: undefined,
    isClaim: false,
    header: (name: string) => (name === "x-shop" ? "berlin" : undefined),
    body: async () => ({ kind: "tooLarge" as const }),
  };

  it("has the query, the headers and the body in a form that can be selected from", () => {
    const bytes = Buffer.from('{"amount":10}');
    const seen = fingerprintRequest(request, { kind: "bytes", bytes });
    expect(seen.query.getAll("currency")).toEqual(["eur", "usd"]);
    expect(seen.header("x-shop")).toBe("berlin");
    expect(seen.json()).toEqual({ amount: 10 });
    expect(fingerprintRequest(request, { kind: "parsed", value: { amount: 11 } }).json()).toEqual({
      amount: 11,
    });
  });

  it("has no JSON where there is none", () => {
    const seen = fingerprintRequest(request, { kind: "bytes", bytes: Buffer.from("amount=10") });
    expect(seen.json()).toBeUndefined();
  });
});
