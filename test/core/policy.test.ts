import { describe, expect, it } from "vitest";
import { ConfigError } from "../../src/core/errors.ts";
import { defaultPolicy, type PolicyInput, profileHeaders, resolvePolicy } from "../../src/core/policy.ts";
import { createLatchkey } from "../../src/index.ts";
import type { LatchkeyOptions } from "../../src/latchkey-options.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";

const { capabilities } = memoryStore();

describe("policies", () => {
  it("the defaults are the safe choices", () => {
    expect(resolvePolicy(capabilities)).toEqual(defaultPolicy);
    expect(defaultPolicy).toMatchObject({
      onInFlight: "reject",
      onCrash: "reconcile",
      onServerError: "retry",
      onStoreDown: "closed",
      required: true,
      scope: "tenant",
      mismatchStatus: 422,
      retentionMs: 86_400_000,
    });
  });

  it("a later layer wins, and undefined chooses nothing", () => {
    const policy = resolvePolicy(
      capabilities,
      { onInFlight: "wait", waitMs: 5 },
      { waitMs: undefined as never },
    );
    expect(policy).toMatchObject({ onInFlight: "wait", waitMs: 5 });
  });

  it("a profile presets what its users expect, and the user's own choice wins over it", () => {
    expect(resolvePolicy(capabilities, { profile: "stripe" })).toMatchObject({
      mismatchStatus: 400,
      onServerError: "store",
    });
    expect(resolvePolicy(capabilities, { profile: "stripe", mismatchStatus: 409 }).mismatchStatus).toBe(409);
    expect(resolvePolicy(capabilities, { mismatchStatus: 409 }, { profile: "stripe" }).mismatchStatus).toBe(
      409,
    );
    expect(resolvePolicy(capabilities, { profile: "acp" }).mismatchStatus).toBe(422);
    expect(profileHeaders).toEqual({
      ietf: { replayed: "Idempotency-Replayed", echoKey: false },
      stripe: { replayed: "Idempotent-Replayed", echoKey: true },
      acp: { replayed: "Idempotent-Replayed", echoKey: true },
    });
  });

  it("methods are compared in upper case", () => {
    expect(resolvePolicy(capabilities, { methods: ["post"] }).methods).toEqual(["POST"]);
  });

  it.each<[string, object, RegExp]>([
    [
      "an unknown choice",
      { onCrash: "panic" },
      /onCrash is "panic" and must be one of "reconcile", "resume", "retry"/,
    ],
    ["an unknown profile", { profile: "paypal" }, /profile is "paypal"/],
    ["a profile named like an object's own method", { profile: "toString" }, /profile is "toString"/],
    ["a misspelt name", { onCrashed: "retry" }, /"onCrashed" is not a policy/],
    ["a retention of nothing", { retentionMs: 0 }, /retentionMs is 0 and must be above 0/],
    ["a number that is none", { waitMs: Number.NaN }, /waitMs is NaN/],
    ["a number as text", { retentionMs: "60000" }, /retentionMs is "60000" and must be above 0/],
    ["a method that is no text", { methods: [5] }, /methods must be an array of strings/],
    ["a negative wait", { waitMs: -1 }, /waitMs is -1 and must not be below 0/],
    ["no methods", { methods: [] }, /methods is empty/],
    ["a text in place of a list", { replayHeaders: "x-id" }, /replayHeaders must be an array/],
    [
      "a cookie in every replay",
      { replayHeaders: ["Set-Cookie"] },
      /"Set-Cookie", which belongs to one connection/,
    ],
    ["a header that is none", { replayHeaders: ["x y"] }, /"x y", which is not a header name/],
    [
      "resuming on a store that forgets",
      { onCrash: "resume" },
      /forgets everything in a crash: use sqliteStore/,
    ],
    [
      "refusing late arrivals for ever",
      { lateArrivals: "reject", retentionMs: Infinity },
      /needs a retentionMs that ends/,
    ],
  ])("%s is refused with a sentence", (_what, input, message) => {
    expect(() => resolvePolicy(capabilities, input as PolicyInput)).toThrow(ConfigError);
    expect(() => resolvePolicy(capabilities, input as PolicyInput)).toThrow(message);
  });

  it("a response that would not fit into a record is refused", () => {
    const small = { ...capabilities, responseBytesMax: 100 };
    expect(() => resolvePolicy(small, { responseBytesMax: 101 })).toThrow(/keeps at most 100 bytes/);
    expect(resolvePolicy(small, { responseBytesMax: 100 }).responseBytesMax).toBe(100);
  });

  it("everything that is wrong is said at once", () => {
    expect(() => resolvePolicy(capabilities, { waitMs: -1, retentionMs: 0 })).toThrow(/retentionMs.*waitMs/);
  });
});

describe("a Latchkey that is put together wrongly fails when it is constructed", () => {
  const good: LatchkeyOptions = { store: memoryStore(), tenant: "single" };

  it.each<[string, object, RegExp]>([
    ["no store", { store: undefined }, /needs a store/],
    ["no tenant", { tenant: undefined }, /needs to know its tenants/],
    ["a tenant that is just a name", { tenant: "acme" }, /needs to know its tenants/],
    ["a lease of nothing", { leaseMs: 0 }, /leaseMs is 0 and must be at least 100/],
    ["an endless lease", { leaseMs: Infinity }, /leaseMs/],
    ["an impatient store time-out", { storeTimeoutMs: 0 }, /storeTimeoutMs is 0/],
    ["a store time-out as text", { storeTimeoutMs: "5000" }, /storeTimeoutMs is 5000 and must be a number/],
    [
      "a store time-out longer than the lease",
      { leaseMs: 1000, storeTimeoutMs: 2000 },
      /no longer than the lease/,
    ],
    ["an unknown expiry", { expiry: "never" }, /expiry is "never"/],
    ["a status path that is none", { statusPath: "status" }, /statusPath is "status"/],
    ["a status path that ends in a slash", { statusPath: "/status/" }, /statusPath/],
    ["accepting without a status resource", { onInFlight: "accept" }, /pass statusPath/],
    ["a policy that the store cannot keep", { onCrash: "resume" }, /forgets everything/],
    ["an option that does not exist", { retention: 5 }, /"retention" is not a policy/],
  ])("%s", (_what, wrong, message) => {
    expect(() => createLatchkey({ ...good, ...wrong } as LatchkeyOptions)).toThrow(ConfigError);
    expect(() => createLatchkey({ ...good, ...wrong } as LatchkeyOptions)).toThrow(message);
  });

  it("with all it needs it is made", () => {
    expect(createLatchkey({ ...good, statusPath: "/idempotency", onInFlight: "accept" }).statusPath).toBe(
      "/idempotency",
    );
  });
});
