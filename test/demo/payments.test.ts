import { describe, expect, it } from "vitest";
import { Payments } from "../../src/demo/payments.ts";
import type { PlaygroundChange } from "../../src/demo/trace.ts";

const about = { scenario: "nothing", isProtected: true, amount: 100 } as const;

describe("what the playground remembers", () => {
  const send = (payments: Payments, order: string, request: number) => {
    payments.add(order, {
      at: request,
      kind: "request-sent",
      request,
      amount: 100,
      tap: request,
      attempt: 1,
    });
    payments.add(order, { at: request, kind: "request-ended", request, end: { kind: "broken" } });
  };

  it("is the latest two hundred requests", () => {
    const payments = new Payments();
    for (let request = 1; request <= 1_000; request += 10) {
      const { order } = payments.begin(about);
      for (let more = 0; more < 10; more += 1) send(payments, order, request + more);
    }
    const kept = payments.views();
    expect(kept.reduce((sum, { requests }) => sum + requests, 0)).toBe(200);
    expect(kept.at(-1)?.order).toBe("1100");
  });

  it("is bounded for a single payment, and its counts stay right", () => {
    const payments = new Payments();
    const { order } = payments.begin(about);
    for (let request = 1; request <= 10_000; request += 1) send(payments, order, request);
    const [payment] = payments.views();
    expect(payment?.requests).toBe(10_000);
    expect(payment?.entries.length).toBeLessThanOrEqual(4_000);
    expect(payment?.entries.at(-1)).toMatchObject({ kind: "request-ended", request: 10_000 });
  });

  it("does not fill up with payments that nobody ever sent", () => {
    const payments = new Payments();
    for (let count = 0; count < 1_000; count += 1) payments.begin(about);
    expect(payments.views()).toHaveLength(200);
  });

  it("tells a payment whose process died that another one has come, also when nobody waits any more", () => {
    const payments = new Payments();
    const { order } = payments.begin(about);
    const other = payments.begin(about);
    payments.add(order, { at: 1, kind: "request-sent", request: 1, amount: 100, tap: 1, attempt: 1 });
    payments.add(order, { at: 1, kind: "handler-begun", request: 1, pid: 7 });
    payments.tellProcess({ pid: null, restarts: 0 }, { at: 2, kind: "process", pid: 7, what: "killed" });
    payments.endHandlers(2);
    payments.add(order, { at: 2, kind: "request-ended", request: 1, end: { kind: "broken" } });
    const told: PlaygroundChange[] = [];
    const stop = payments.subscribe((change) => told.push(change));
    payments.tellProcess({ pid: 8, restarts: 1 }, { at: 3, kind: "process", pid: 8, what: "started" });
    stop();
    payments.tellProcess({ pid: 9, restarts: 2 }, { at: 4, kind: "process", pid: 9, what: "started" });
    const [first, second] = payments.views();
    expect(first?.entries.map((entry) => [entry.kind, "what" in entry ? entry.what : ""])).toEqual([
      ["request-sent", ""],
      ["handler-begun", ""],
      ["process", "killed"],
      ["handler-ended", ""],
      ["request-ended", ""],
      ["process", "started"],
    ]);
    expect(second).toMatchObject({ order: other.order, entries: [] });
    expect(told).toHaveLength(2);
  });
});
