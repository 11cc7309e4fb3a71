import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isTenant, type ScopePolicy, scopeOf, tenantLengthMax } from "../../src/core/scope.ts";

describe("an operator can read", () => {
  test("the tenant", () => {
    expect(tenantScope("acme")).toBe("acme");
    expect(tenantScope("org:acme/eu@example.com")).toBe("org:acme/eu@example.com");
  });

  test("the endpoint", () => {
    expect(endpointScope({ path: "/v1/rides/caf%C3%A9" })).toBe("acme POST /v1/rides/caf%C3%A9");
  });

  test("a tenant with unusual characters", () => {
    expect(tenantScope("Acme Inc. 100%")).toBe("Acme%20Inc.%20100%25");
    expect(tenantScope("Zoë\n€😀")).toBe("Zo%C3%AB%0A%E2%82%AC%F0%9F%98%80");
    expect(decodeURIComponent(tenantScope("Zoë\n€😀\u0000\u007f"))).toBe("Zoë\n€😀\u0000\u007f");
  });
});

describe("two different scopes never share a name", () => {
  // Made of everything that could confuse: separators, escapes, digests, halves of characters.
  const piece = fc.constantFrom(
    "a",
    " ",
    "%",
    "%20",
    "POST",
    "/",
    "\n",
    "é",
    "\ud83d",
    "\ude00",
    "\ufffd",
    "sha256:",
    "Ж".repeat(90),
  );
  const text = fc.array(piece, { maxLength: 5 }).map((pieces) => pieces.join(""));
  const policy = fc.constantFrom<ScopePolicy>("tenant", "tenant+endpoint");
  const input = fc.record({ tenant: text, policy, method: text, path: text });

  test("whatever tenant, method and path are", () => {
    fc.assert(
      fc.property(input, input, (a, b) => {
        expect(scopeOf(a) === scopeOf(b)).toBe(isSameScope(a, b));
      }),
      { numRuns: 5_000 },
    );
  });

  test("even when they differ in a single place", () => {
    const place = fc.constantFrom("tenant" as const, "method" as const, "path" as const);
    fc.assert(
      fc.property(input, place, text, (a, where, other) => {
        const b = { ...a, [where]: other };
        expect(scopeOf(a) === scopeOf(b)).toBe(isSameScope(a, b));
      }),
      { numRuns: 5_000 },
    );
  });

  test("when the boundary between the parts moves", () => {
    expect(endpointScope({ tenant: "a POST /x", path: "/y" })).not.toBe(
      endpointScope({ tenant: "a", path: "/x POST /y" }),
    );
    expect(tenantScope("a POST /x")).not.toBe(endpointScope({ tenant: "a", path: "/x" }));
  });

  test("when one tenant is spelled like another one's escape", () => {
    expect(tenantScope("a b")).not.toBe(tenantScope("a%20b"));
  });

  test("when the tenants differ only in half a character", () => {
    const scopes = ["\ud800", "\ud801", "\udc00", "\ufffd"].map((tenant) => tenantScope(tenant));
    expect(new Set(scopes).size).toBe(4);
  });

  test("when a path or tenant poses as the digest of a long one", () => {
    const long = endpointScope({ path: `/${"x".repeat(600)}` });
    expect(endpointScope({ path: long.slice("acme POST ".length) })).not.toBe(long);
    const longTenant = tenantScope("é".repeat(255));
    expect(tenantScope(longTenant)).not.toBe(longTenant);
  });

  test("when two long paths differ in one character", () => {
    const path = `/${"x".repeat(100_000)}`;
    expect(endpointScope({ path: `${path}a` })).not.toBe(endpointScope({ path: `${path}b` }));
  });
});

describe("whatever comes in", () => {
  test("a scope is at most 512 characters of visible ASCII, and two spaces", () => {
    const text = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.string({ minLength: 200, maxLength: 700 }),
      fc.constant("😀".repeat(1_000)),
    );
    fc.assert(
      fc.property(text, text, text, (tenant, method, path) => {
        expect(scopeOf({ tenant, method, path, policy: "tenant" })).toMatch(/^[!-~]{0,512}$/);
        const scope = scopeOf({ tenant, method, path, policy: "tenant+endpoint" });
        expect(scope).toMatch(/^[!-~]* [!-~]* [!-~]*$/);
        expect(scope.length).toBeLessThanOrEqual(512);
      }),
    );
  });

  test("a long path is named by its digest, from the first character that does not fit", () => {
    const room = 512 - "acme POST ".length;
    expect(endpointScope({ path: "x".repeat(room) })).toBe(`acme POST ${"x".repeat(room)}`);
    expect(endpointScope({ path: "x".repeat(room + 1) })).toMatch(/^acme POST sha256:[\w-]{43}$/);
  });

  test("a path of a mebibyte is named at once", () => {
    const startedMs = performance.now();
    expect(endpointScope({ path: `/${"é%20".repeat(262_144)}` })).toMatch(/^acme POST sha256:[\w-]{43}$/);
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });

  test("half a character in a tenant does not throw", () => {
    expect(tenantScope("a\ud800b")).toBe("a%ED%A0%80b");
  });
});

describe("a tenant", () => {
  test.each(["a", "é", " ", "a".repeat(tenantLengthMax)])("may be %j", (value) => {
    expect(isTenant(value)).toBe(true);
  });

  test.each([
    [""],
    ["a".repeat(tenantLengthMax + 1)],
    [undefined],
    [null],
    [1],
    [{}],
    [["a"]],
    [Object("a")],
  ])("cannot be %j", (value) => {
    expect(isTenant(value)).toBe(false);
  });
});

function tenantScope(tenant: string): string {
  return scopeOf({ tenant, policy: "tenant", method: "POST", path: "/" });
}

function endpointScope({ tenant = "acme", path }: { tenant?: string; path: string }): string {
  return scopeOf({ tenant, policy: "tenant+endpoint", method: "POST", path });
}

type ScopeInput = Parameters<typeof scopeOf>[0];

function isSameScope(a: ScopeInput, b: ScopeInput): boolean {
  if (a.policy !== b.policy || a.tenant !== b.tenant) return false;
  return a.policy === "tenant" || (a.method === b.method && a.path === b.path);
}
