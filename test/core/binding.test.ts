import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { asRecordedFingerprint, bindingMark, boundFingerprint, isOpenTo } from "../../src/core/binding.ts";

const id = { scope: "acme", key: "k-1" };
const plain = "v1:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";

describe("a fingerprint that is tied to a session", () => {
  it("is another one for every session, key and scope", () => {
    const bound = [
      boundFingerprint(plain, id, "s1"),
      boundFingerprint(plain, id, "s2"),
      boundFingerprint(plain, { ...id, key: "k-2" }, "s1"),
      boundFingerprint(plain, { ...id, scope: "zenith" }, "s1"),
      boundFingerprint(plain, { scope: "acmek", key: "-1" }, "s1"),
      boundFingerprint(plain, { ...id, key: "k-12:s" }, "1"),
      boundFingerprint(plain, id, "\ud800"),
      boundFingerprint(plain, id, "\udfff"),
      boundFingerprint(plain, id, "\ufffd"),
    ];
    expect(new Set(bound).size).toBe(bound.length);
    expect(boundFingerprint(plain, id, "s1")).toBe(bound[0]);
  });

  it("does not name the session, and fits into a column of every store", () => {
    const session = "session-of-ada@example.com";
    const bound = boundFingerprint(plain, id, session);
    expect(bound).not.toContain(session);
    expect(bound).toHaveLength(90);
    expect(bound).toMatch(/^[!-~]+$/);
    expect(boundFingerprint(plain, id, "x".repeat(100_000))).toHaveLength(90);
  });

  it("is what it was when the first of them were stored, of short texts and of long ones", () => {
    expect(bindingMark(id, "s1")).toBe("tpHKiZq55pfUBimGiyZOAcjloxIRDJ-UaIJzwaplcP8");
    for (const session of ["s", "é".repeat(1_980), "x".repeat(5_000), "\ud800", "s"]) {
      const text = ["latchkey binding 1", id.scope, id.key, session];
      const bytes = Buffer.from(text.map((field) => `${field.length}:${field}`).join(""), "utf16le");
      expect(bindingMark(id, session)).toBe(createHash("sha256").update(bytes).digest("base64url"));
    }
  });

  it("is open to its own session only; one that is tied to nothing, to everybody", () => {
    const bound = boundFingerprint(plain, id, "s1");
    expect(isOpenTo(bound, bindingMark(id, "s1"))).toBe(true);
    expect(isOpenTo(bound, bindingMark(id, "s2"))).toBe(false);
    expect(isOpenTo(bound, undefined)).toBe(false);
    expect(isOpenTo(bound, "")).toBe(false);
    expect(isOpenTo(plain, bindingMark(id, "s1"))).toBe(true);
    expect(isOpenTo(plain, undefined)).toBe(true);
  });

  it("is found again by the request alone, and by no other request", () => {
    const bound = boundFingerprint(plain, id, "s1");
    expect(asRecordedFingerprint(plain, bound)).toBe(bound);
    expect(asRecordedFingerprint("v1:other", bound)).toBe("v1:other");
    expect(asRecordedFingerprint(plain.slice(0, -1), bound)).toBe(plain.slice(0, -1));
    expect(asRecordedFingerprint(plain, undefined)).toBe(plain);
  });
});
