import { randomBytes, randomUUID } from "node:crypto";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { personalDataIn, personalKeySentence } from "../../src/core/personal-key.ts";

describe("a key that looks like personal data", () => {
  it("is not a UUID, whatever its digits are", () => {
    const digits = fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 32, maxLength: 32 });
    fc.assert(
      fc.property(digits, (all) => {
        const text = all.join("");
        const groups = [
          [0, 8],
          [8, 12],
          [12, 16],
          [16, 20],
          [20, 32],
        ] as const;
        const uuid = groups.map(([from, to]) => text.slice(from, to)).join("-");
        expect(personalDataIn(uuid)).toBeUndefined();
        expect(personalDataIn(`${uuid} 4111-1111-1111-1111`)).toBe("card number");
      }),
    );
  });

  it.each([
    "ada@example.com",
    "receipt-ada.lovelace+tax@mail.example.co.uk",
    "order/ada@example.com/7",
    "ada%40example.com-1",
  ])("is refused where it holds an e-mail address: %s", (key) => {
    expect(personalDataIn(key)).toBe("e-mail address");
  });

  it.each([
    "+4915112345678",
    "tel:+49 151 1234-5678",
    "sms-+1(555)123-4567",
    "555-123-4567",
    "call-555.123.4567",
    "(030) 1234567",
  ])("is refused where it holds a phone number: %s", (key) => {
    expect(personalDataIn(key)).toBe("phone number");
  });

  it.each([
    "4111111111111111",
    "charge-4111-1111-1111-1111",
    "4222222222222",
    "5555 5555 5555 4444",
    "2223003122003222",
    "card_378282246310005",
    "3782-822463-10005",
    "30569309025904",
    "6011111111111117",
    "3530111333300000",
    "6200000000000005",
    "6759649826438453",
    "2200770212727079",
  ])("is refused where it holds a card number: %s", (key) => {
    expect(personalDataIn(key)).toBe("card number");
  });

  it("is told what to do, and not what it sent", () => {
    const sentence = personalKeySentence("e-mail address");
    expect(sentence).toMatch(/send a random value/);
    expect(sentence).not.toMatch(/@/);
  });
});

describe("a key that is none", () => {
  it.each([
    "order-1763300000000",
    "1763300000000",
    "1763300000000000",
    "1763300000000000000",
    "20261116120000",
    "2026111612000012",
    "invoice-2026-11-16",
    "2026-11-16-0001",
    "2026-11-16T12:00:00.000Z",
    "2026-11-16T12:00:00.000+01:00",
    "112-1234567-1234567",
    "4111111111111112", // Its check digit is another one.
    "9111111111111111", // Nobody issues these.
    "a4111111111111111", // A part of something longer.
    "41111111-1111-4111-a111-111111111111",
    "12345678901234567890123456789012",
    "491511234567",
    "15551234567",
    "user@host",
    "package@1.2.3",
    "@scope/package-7",
    "a+b+c",
    "msg:0:15:1763300000",
    "evt_1Nv0FGQ9RKHgCVdK",
    "192.168.100.200",
    "",
  ])("is let through: %s", (key) => {
    expect(personalDataIn(key)).toBeUndefined();
  });

  const prefix = fc.constantFrom("", "order-", "pay_", "job:", "v1/");
  const never = (keys: fc.Arbitrary<string>) =>
    fc.assert(
      fc.property(prefix, keys, (before, key) => personalDataIn(before + key) === undefined),
      { numRuns: 5_000 },
    );
  const chosenFrom = (alphabet: string, length: number) =>
    fc.string({ unit: fc.constantFrom(...alphabet), minLength: length, maxLength: length });
  const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

  it("is a UUID of any version, in either case", () => {
    never(fc.uuid());
    never(fc.uuid().map((key) => key.toUpperCase()));
    never(fc.uuid().map((key) => key.replaceAll("-", "")));
  });

  it("is a fraction, whatever its digits", () => {
    expect(personalDataIn("k-0.4111111111111111")).toBeUndefined();
    never(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }).map(String));
  });

  it("is a UUID that is all digits where it may be", () => {
    const digits = (length: number) => chosenFrom("0123456789", length);
    const groups = fc.tuple(
      digits(8),
      digits(4),
      digits(3),
      digits(3),
      digits(12),
      fc.constantFrom("8", "a"),
    );
    never(groups.map(([a, b, c, d, e, variant]) => `${a}-${b}-4${c}-${variant}${d}-${e}`));
  });

  it("is a ULID", () => {
    never(chosenFrom(crockford, 26));
    never(chosenFrom("0123456789", 26));
  });

  it("is a nanoid", () => {
    never(chosenFrom("useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict", 21));
  });

  it("is hexadecimal", () => {
    for (const length of [24, 32, 40, 64]) never(chosenFrom("0123456789abcdef", length));
  });

  it("is base64 of random bytes", () => {
    for (let i = 0; i < 20_000; i++) {
      expect(personalDataIn(randomBytes(24).toString("base64"))).toBeUndefined();
    }
  });

  it("has a time at its end, in seconds, milliseconds, microseconds or nanoseconds", () => {
    const times = fc.integer({ min: 1_000_000_000, max: 2_100_000_000 });
    const unit = fc.constantFrom(0, 3, 6, 9);
    const rest = fc.integer({ min: 0, max: 999_999_999 });
    never(
      fc
        .tuple(times, unit, rest)
        .map(([seconds, digits, more]) => `${seconds}${String(more).padStart(9, "0").slice(0, digits)}`),
    );
  });

  it("is not in a UUID, even in one of digits alone; in other groups it is", () => {
    // The numbers are cards' and phones', in the groups of a UUID: none of them is written so.
    for (const key of [
      "41111111-1111-1111-1111-111111111111",
      "55555555-5555-4444-4242-424242424242",
      "20255501-2025-5501-0000-202555010000",
    ]) {
      expect(personalDataIn(key)).toBeUndefined();
    }
    const inOtherGroups = [
      ["key-4111-1111-1111-1111-abcdefghijkl", "card number"],
      ["abcdefgh-4111111111111111-abcd-efghi", "card number"],
      ["abcdefgh-202-555-0123-abcdefghijklmn", "phone number"],
      ["abcdefg+-1202-5550-1234-abcdefghijkl", undefined],
    ] as const;
    for (const [key, data] of inOtherGroups) {
      expect(key).toHaveLength(36);
      expect(personalDataIn(key)).toBe(data);
    }
  });

  it("takes no time to be told from one, even if somebody tries", () => {
    const hard = [
      "1-".repeat(127),
      "a@".repeat(127),
      `@${"a.".repeat(126)}`,
      "+1(".repeat(85),
      "4".repeat(255),
    ];
    const started = process.cpuUsage();
    for (let i = 0; i < 200; i++) for (const key of [...hard, randomUUID()]) personalDataIn(key);
    const { user } = process.cpuUsage(started);
    expect(user / (200 * 6)).toBeLessThan(500);
  });
});
