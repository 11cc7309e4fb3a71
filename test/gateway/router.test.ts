import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { covers, matches, parsePattern } from "../../src/gateway/pattern.ts";
import { Router } from "../../src/gateway/router.ts";
import { settingsOf } from "./support.ts";

function router(rest: string) {
  const found = new Router(settingsOf("http://127.0.0.1:1", rest).config);
  return (target: string) => {
    const [method = "", path = ""] = target.split(" ");
    return found.find(method, path);
  };
}

describe("a route", () => {
  const find = router(`routes:
  - { path: /charges }
  - { path: "/charges/:id/capture" }
  - { path: /v1/*, methods: [PUT] }
  - { path: "/" }
`);

  it("takes its own path and methods, and nothing else", () => {
    expect(find("POST /charges")).toBe(0);
    expect(find("PATCH /charges")).toBe(0);
    expect(find("PUT /charges")).toBeUndefined();
    expect(find("POST /charge")).toBeUndefined();
    expect(find("POST /charges/1")).toBeUndefined();
    expect(find("POST /")).toBe(3);
  });

  it("takes any one segment for a name, and one or more for a star", () => {
    expect(find("POST /charges/42/capture")).toBe(1);
    expect(find("POST /charges/4/2/capture")).toBeUndefined();
    expect(find("PUT /v1/a")).toBe(2);
    expect(find("PUT /v1/a/b/c")).toBe(2);
    expect(find("PUT /v1")).toBeUndefined();
    expect(find("PUT /v10/a")).toBeUndefined();
  });

  it("is found by the first that matches", () => {
    const first = router("routes:\n  - { path: /a/b, protect: false }\n  - { path: /a/* }\n");
    expect(first("POST /a/b")).toBe(0);
    expect(first("POST /a/c")).toBe(1);
  });
});

describe("other spellings of a path", () => {
  const spellings = ["/CHARGES", "/Charges", "/charges/", "/charges;v=1", "/charges;v=1/", "/ch%C3%A4rges"];

  it("are protected as the path is, because a lenient service takes them for it", () => {
    const find = router("routes:\n  - path: /charges\n");
    for (const path of spellings.slice(0, 5)) expect([path, find(`POST ${path}`)]).toEqual([path, 0]);
    expect(find("POST /ch%C3%A4rges")).toBeUndefined();
  });

  it("are not excepted as the path is", () => {
    const find = router("routes:\n  - { path: /charges, protect: false }\n  - { path: /charges }\n");
    expect(find("POST /charges")).toBe(0);
    for (const path of spellings.slice(0, 5)) expect([path, find(`POST ${path}`)]).toEqual([path, 1]);
  });

  it("are others where the service is known to be exact", () => {
    const exact = router(
      "matching: { case: exact, trailingSlash: exact, semicolon: exact }\nroutes:\n  - path: /charges\n",
    );
    for (const path of spellings) expect([path, exact(`POST ${path}`)]).toEqual([path, undefined]);
    expect(exact("POST /charges")).toBe(0);
  });

  it("by an escape are the same", () => {
    const find = router("routes:\n  - path: /a+b\n");
    expect(find("POST /a%2Bb")).toBe(0);
    expect(find("POST /a%ZZ")).toBeUndefined();
  });
});

it("a pattern that is said to be covered by another one never matches alone", () => {
  const segment = fc.constantFrom("a", "b", ":x");
  const pattern = fc
    .tuple(fc.array(segment, { maxLength: 3 }), fc.boolean())
    .map(([segments, isOpen]) => parsePattern(`/${[...segments, ...(isOpen ? ["*"] : [])].join("/")}`));
  const path = fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 5 });
  const same = (text: string) => text;
  fc.assert(
    fc.property(pattern, pattern, path, (first, second, segments) => {
      if (!covers(first, second, same)) return;
      expect(matches(second, segments, same) && !matches(first, segments, same)).toBe(false);
    }),
    { numRuns: 2_000 },
  );
});
