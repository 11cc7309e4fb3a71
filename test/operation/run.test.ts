import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  ConfigError,
  createLatchkey,
  type Latchkey,
  OperationRefusedError,
  StoreError,
} from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { faultyStore, manualClock } from "../../src/testing/index.ts";

describe("latchkey.run, outside HTTP", () => {
  let latchkey: Latchkey;
  const request = { tenant: "acme", key: "message 1", input: { amount: 10 } };

  beforeEach(() => {
    latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
  });
  afterEach(() => latchkey.close({ drainMs: 0 }));

  it("runs once for each key, and gives every later call the first result", async () => {
    let runs = 0;
    const work = async () => ({ run: ++runs });
    expect(await latchkey.run(request, work)).toEqual({ run: 1 });
    expect(await latchkey.run(request, work)).toEqual({ run: 1 });
    expect(await latchkey.run({ ...request, tenant: "zenith" }, work)).toEqual({ run: 2 });
    expect(await latchkey.run({ ...request, key: "message 2" }, work)).toEqual({ run: 3 });
  });

  it("gives nothing back for nothing, the first time as later", async () => {
    expect(await latchkey.run(request, () => {})).toBeNull();
    expect(await latchkey.run(request, () => {})).toBeNull();
  });

  it("fifty calls at once run once; those that come too early are told so", async () => {
    let runs = 0;
    const calls = Array.from({ length: 50 }, () =>
      latchkey.run(request, async () => {
        runs += 1;
        await new Promise((resolve) => setTimeout(resolve, 20));
        return "done";
      }),
    );
    const outcomes = await Promise.allSettled(calls);
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const outcome of outcomes) {
      if (outcome.status === "rejected") {
        expect(outcome.reason).toBeInstanceOf(OperationRefusedError);
        expect(outcome.reason).toMatchObject({ code: "in-flight", retryAfterMs: expect.any(Number) });
      }
    }
    expect(runs).toBe(1);
  });

  it("or they wait for the result, where the policy says so", async () => {
    const policy = { onInFlight: "wait" } as const;
    const first = latchkey.run({ ...request, policy }, async () => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      return "first";
    });
    expect(await latchkey.run({ ...request, policy }, () => "second")).toBe("first");
    await first;
  });

  it("refuses the same key with another input", async () => {
    await latchkey.run(request, () => 1);
    await expect(latchkey.run({ ...request, input: { amount: 11 } }, () => 2)).rejects.toMatchObject({
      code: "key-reused",
      retryAfterMs: undefined,
    });
  });

  it("throws what the work threw, and lets the next call try again", async () => {
    const bug = new Error("a bug");
    await expect(latchkey.run(request, () => Promise.reject(bug))).rejects.toBe(bug);
    expect(await latchkey.run(request, (op) => op.attempt)).toBe(2);
  });

  it("keeps a failure as the outcome, where the policy says so", async () => {
    const policy = { onServerError: "store" } as const;
    await expect(
      latchkey.run({ ...request, policy }, () => Promise.reject(new Error("no funds"))),
    ).rejects.toThrow("no funds");
    await expect(latchkey.run({ ...request, policy }, () => 1)).rejects.toMatchObject({
      code: "operation-failed",
      message: "no funds",
    });
  });

  it("a result that cannot be stored is the work's failure, and the next call may try", async () => {
    await expect(latchkey.run(request, () => () => 1)).rejects.toThrow(/not JSON/);
    expect(await latchkey.run(request, (op) => op.attempt)).toBe(2);
  });

  it("looking for the recovery point does not change what a failure means", async () => {
    const policy = { onServerError: "reconcile" } as const;
    await expect(
      latchkey.run({ ...request, policy }, (op) => Promise.reject(new Error(`at ${op.recoveryPoint}`))),
    ).rejects.toThrow("at undefined");
    await expect(latchkey.run(request, () => 1)).rejects.toMatchObject({ code: "outcome-unknown" });
  });

  it("does not wait for work that outlives its time", async () => {
    const policy = { executionTimeoutMs: 20 };
    await expect(latchkey.run({ ...request, policy }, () => new Promise(() => {}))).rejects.toMatchObject({
      code: "execution-timeout",
    });
    await expect(latchkey.run(request, () => 1)).rejects.toMatchObject({ code: "outcome-unknown" });
  });

  it.each([
    [{ ...request, tenant: "" }, /tenant/],
    [{ ...request, key: "" }, /printable ASCII/],
    [{ ...request, key: "x".repeat(256) }, /printable ASCII/],
    [{ ...request, key: "line\nbreak" }, /printable ASCII/],
    [{ ...request, input: { self: 10n } }, /input/],
  ])("refuses what it cannot tell apart, before anything runs", async (bad, message) => {
    let runs = 0;
    const call = latchkey.run(bad, () => ++runs);
    await expect(call).rejects.toThrow(ConfigError);
    await expect(call).rejects.toThrow(message);
    expect(runs).toBe(0);
  });

  it("runs nothing while the store does not answer, even where the policy fails open", async () => {
    const store = faultyStore({
      store: memoryStore(),
      runtime: manualClock(),
      choose: () => ({ kind: "failBefore" }),
    });
    const down = createLatchkey({ store, tenant: "single", onStoreDown: "open" });
    let runs = 0;
    await expect(down.run(request, () => ++runs)).rejects.toThrow(StoreError);
    expect(runs).toBe(0);
    await down.close({ drainMs: 0 });
  });
});
