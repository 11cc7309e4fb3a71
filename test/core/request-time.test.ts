import { createHmac, randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { parseRequestTime } from "../../src/core/request-time.ts";
import { isSignedBy } from "../../src/core/request-time-signature.ts";
import { ConfigError, signRequestTime } from "../../src/index.ts";

const at = Date.UTC(2023, 10, 14, 22, 13, 20);

describe("a request's time", () => {
  it.each([
    "@1700000000",
    " @1700000000\t",
    "Tue, 14 Nov 2023 22:13:20 GMT",
    "2023-11-14T22:13:20Z",
    "2023-11-14t22:13:20.000z",
    "2023-11-15T00:13:20+02:00",
    "2023-11-14T14:43:20-07:30",
  ])("is read from %s", (value) => {
    expect(parseRequestTime(value)?.ms).toBe(at);
  });

  it.each([
    ["@0", 0],
    ["@9", 9_000],
    ["@999999999999999", 999_999_999_999_999_000],
  ])("is read from %s, with what is signed beside it", (value, ms) => {
    expect(parseRequestTime(value)).toEqual({ ms, seconds: value.slice(1), signature: undefined });
  });

  it.each([
    "",
    "1700000000",
    "@",
    "@-1700000000",
    "@1700000000.5",
    "@01700000000",
    "@00",
    "@1700000000 ;",
    "@1234567890123456",
    "@1e9",
    "@1700000000;sig=abc",
    "@1700000000;sig=::",
    "@1700000000;other=:abcd:",
    "@1700000000, @1700000000",
    "@1700000000000000000000",
    "Mon, 14 Nov 2023 22:13:20 GMT",
    "Tue, 31 Feb 2023 22:13:20 GMT",
    "Tue, 14 Nov 2023 22:13:20 CET",
    "Tuesday, 14-Nov-23 22:13:20 GMT",
    "Tue Nov 14 22:13:20 2023",
    "2023-02-30T22:13:20Z",
    "2023-11-14T24:00:00Z",
    "2023-11-14T22:13:60Z",
    "2023-11-14 22:13:20Z",
    "2023-11-14T22:13:20",
    "2023-11-14",
    "now",
  ])("is not read from %j", (value) => {
    expect(parseRequestTime(value)).toBeUndefined();
  });
});

describe("a signed time", () => {
  const secret = randomBytes(32);
  const said = { secret, tenant: "acme", key: "k-1", sentAt: at + 999 };

  function isGood(header: string, signed: { tenant: string; key: string }, secrets = [secret]): boolean {
    const sent = parseRequestTime(header);
    return (
      sent?.seconds !== undefined &&
      sent.signature !== undefined &&
      isSignedBy(secrets, { ...signed, seconds: sent.seconds }, sent.signature)
    );
  }

  it("is what its caller said about its key, and nothing else", () => {
    const header = signRequestTime(said);
    expect(header).toMatch(/^@1700000000;sig=:[A-Za-z0-9+/]{43}=:$/);
    expect(isGood(header, said)).toBe(true);
    expect(isGood(header, { ...said, tenant: "zenith" })).toBe(false);
    expect(isGood(header, { ...said, key: "k-2" })).toBe(false);
    expect(isGood(header.replace("@1700000000", "@1800000000"), said)).toBe(false);
  });

  it("does not let one field pass for another", () => {
    const header = signRequestTime({ ...said, tenant: "a", key: "bc" });
    expect(isGood(header, { tenant: "ab", key: "c" })).toBe(false);
    const half = signRequestTime({ ...said, tenant: "\ud800" });
    expect(isGood(half, { tenant: "\udfff", key: said.key })).toBe(false);
  });

  it("is good by any of the secrets, and by no other", () => {
    const old = randomBytes(32);
    const header = signRequestTime({ ...said, secret: old });
    expect(isGood(header, said)).toBe(false);
    expect(isGood(header, said, [secret, old])).toBe(true);
    expect(isGood(header, said, [])).toBe(false);
  });

  it("is not believed when it is cut, extended or made in another way", () => {
    const header = signRequestTime(said);
    const signature = /:(.*):/.exec(header)?.[1] ?? "";
    const forged = [
      signature.slice(0, 42),
      signature.slice(4),
      `${"A".repeat(43)}=`,
      createHmac("sha256", secret).update("acmek-11700000000").digest("base64"),
    ];
    for (const each of forged) expect(isGood(`@1700000000;sig=:${each}:`, said), each).toBe(false);
  });

  it("can be made in any language: each text with its length before it, all of it in UTF-16, little end first", () => {
    const text = "23:latchkey request time 1" + "4:acme" + "3:k-1" + "10:1700000000";
    const mac = createHmac("sha256", secret).update(Buffer.from(text, "utf16le"));
    expect(signRequestTime(said)).toBe(`@1700000000;sig=:${mac.digest("base64")}:`);
  });

  it.each([
    ["a short secret", { ...said, secret: "short" }],
    ["no secret", { ...said, secret: undefined as unknown as string }],
    ["no time", { ...said, sentAt: Number.NaN }],
  ])("is not made with %s", (_what, options) => {
    expect(() => signRequestTime(options)).toThrow(ConfigError);
  });
});
