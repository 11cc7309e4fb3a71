import { describe, expect, it } from "vitest";
import { StoreError, StoreRefusedError, UnreadableError } from "../../src/core/errors.ts";
import { defaultPolicy } from "../../src/core/policy.ts";
import { type Arrival, storeDownVerdict } from "../../src/engine/verdict.ts";

const open: Arrival = {
  scope: "acme",
  key: "k",
  fingerprint: "v1:same",
  policy: { ...defaultPolicy, onStoreDown: "open" },
};

describe("a route that runs without a store", () => {
  it("runs when the store did not answer", () => {
    expect(storeDownVerdict(open, { error: new StoreError("no answer") }).kind).toBe("unprotected");
    expect(storeDownVerdict(open, {}).kind).toBe("unprotected");
  });

  it.each([
    ["the store is well and refused this one request", open, new StoreRefusedError("the vault said no")],
    ["what is stored cannot be read", open, new UnreadableError("sealed")],
    ["the request is known to have been begun", { ...open, isKnown: true }, new StoreError("no answer")],
  ])("does not when %s", (_why, arrival, error) => {
    expect(storeDownVerdict(arrival, { error })).toMatchObject({ kind: "storeDown", isKnown: true });
  });

  it("does not for a worker, which comes again by itself", () => {
    const verdict = storeDownVerdict({ ...open, isClaim: true }, { error: new StoreError("no answer") });
    expect(verdict.kind).toBe("storeDown");
  });
});
