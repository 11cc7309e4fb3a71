import { describe, expect, it } from "vitest";
import { defaultPolicy } from "../../src/core/policy.ts";
import { acceptedAnswer, headersByName, problemAnswer, replayAnswer } from "../../src/http/answer.ts";

const context = { policy: defaultPolicy, typeBase: "https://docs.example/", key: "key-1" };

function headerOf(answer: { headers: readonly (readonly [string, string])[] }, name: string) {
  return answer.headers.find(([each]) => each.toLowerCase() === name)?.[1];
}

describe("an answer of Latchkey's own", () => {
  it("never tells a client to come back at once", () => {
    for (const [ms, seconds] of [
      [-5, "1"],
      [0, "1"],
      [1, "1"],
      [1000, "1"],
      [1001, "2"],
    ] as const) {
      const options = { detail: "Wait.", retryAfterMs: ms };
      expect(headerOf(problemAnswer(context, "in-flight", options), "retry-after")).toBe(seconds);
      expect(headerOf(acceptedAnswer(context, { location: "/x", retryAfterMs: ms }), "retry-after")).toBe(
        seconds,
      );
    }
  });

  it("is not to be kept by a cache", () => {
    expect(headerOf(problemAnswer(context, "in-flight", { detail: "Wait." }), "cache-control")).toBe(
      "no-store",
    );
    expect(headerOf(acceptedAnswer(context, { location: "/x", retryAfterMs: 1 }), "cache-control")).toBe(
      "no-store",
    );
  });

  it("has a date that HTTP can express, however long an answer is kept", () => {
    const response = { kind: "full", status: 200, headers: [], body: new Uint8Array() } as const;
    const expiry = (at: number) => headerOf(replayAnswer(context, response, at), "idempotency-expires");
    expect(expiry(Number.POSITIVE_INFINITY)).toBe("Fri, 31 Dec 9999 23:59:59 GMT");
    expect(expiry(Date.UTC(2026, 0, 1, 12, 0, 0, 999))).toBe("Thu, 01 Jan 2026 12:00:00 GMT");
    expect(expiry(Date.UTC(2026, 0, 1, 12, 0, 1))).toBe("Thu, 01 Jan 2026 12:00:01 GMT");
  });

  it("says what an answer was that could not be kept", () => {
    const response = { kind: "omitted", status: 201, bodyBytes: 5_000_000 } as const;
    const answer = replayAnswer(context, response, 0);
    expect(answer.status).toBe(409);
    const problem = JSON.parse(new TextDecoder().decode(answer.body));
    expect(problem).toMatchObject({ code: "response-not-stored", originalStatus: 201, retry: "never" });
    expect(problem.detail).toContain("5000000");
  });

  it("gives repeated headers together, and others one by one", () => {
    expect(
      headersByName([
        ["link", "</a>"],
        ["ETag", '"1"'],
        ["Link", "</b>"],
        ["link", "</c>"],
      ]),
    ).toEqual([
      ["link", ["</a>", "</b>", "</c>"]],
      ["ETag", '"1"'],
    ]);
  });
});
