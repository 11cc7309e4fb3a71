import { describe, expect, it } from "vitest";
import { createLatchkey, type LatchkeyEvent } from "../../src/index.ts";
import { instruments, prometheusName } from "../../src/observe/instruments.ts";
import { prometheusMetrics } from "../../src/observe/prometheus.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { faultyStore, manualClock } from "../../src/testing/index.ts";
import { parseExposition } from "./exposition-parser.ts";

type Latchkey = ReturnType<typeof createLatchkey>;

function measured() {
  const clock = manualClock();
  const store = memoryStore({ clock: clock.now });
  const latchkey = createLatchkey({ store, tenant: "single", runtime: clock });
  const metrics = prometheusMetrics(latchkey);
  return { clock, latchkey, read: () => readings(metrics.text()) };
}

/** By `name`, or `name label`; what is 0 is left out. */
async function readings(text: Promise<string>): Promise<Record<string, number>> {
  const shown: Record<string, number> = {};
  for (const { type, samples } of parseExposition(await text).values()) {
    for (const { name, labels, value } of samples) {
      if (value === 0 || (type === "histogram" && name.endsWith("_bucket"))) continue;
      const label = Object.entries(labels).map(([label, text]) => ` ${label}=${text}`);
      shown[`${name.replace("api_idempotency_", "")}${label}`] = value;
    }
  }
  return shown;
}

const run = (latchkey: Latchkey, key: string, input: unknown = {}, work: () => unknown = () => "done") =>
  latchkey.run({ tenant: "acme", key, input }, work);

const request = { scope: "acme", key: "k" } as const;
const reserved = { ...request, type: "reserved", joined: false, cached: false, discovered: false } as const;
const settled = { ...request, type: "settled", attempt: 1, ms: 70 } as const;
const delivery = { topic: "t", messageKey: "m", attempts: 1 } as const;
const error = new Error("no");

/** Every event, and what it adds to the metrics. */
const effects: readonly (readonly [what: string, event: LatchkeyEvent, shown: Record<string, number>])[] = [
  ["created", { ...reserved, outcome: "created" }, { reserve_created_total: 1 }],
  [
    "replay",
    { ...reserved, outcome: "replay" },
    { reserve_replay_total: 1, "tenant_duplicates tenant=acme": 1 },
  ],
  [
    "in_progress",
    { ...reserved, outcome: "in_progress" },
    { reserve_in_progress_total: 1, "tenant_duplicates tenant=acme": 1 },
  ],
  [
    "key_misuse",
    { ...reserved, outcome: "key_misuse" },
    { reserve_key_misuse_total: 1, "tenant_duplicates tenant=acme": 1 },
  ],
  ["failed_retry", { ...reserved, outcome: "failed_retry" }, { reserve_failed_retry_total: 1 }],
  [
    "unknown",
    { ...reserved, outcome: "unknown" },
    { reserve_unknown_total: 1, "tenant_duplicates tenant=acme": 1 },
  ],
  [
    "unknown, discovered",
    { ...reserved, outcome: "unknown", discovered: true },
    {
      reserve_unknown_total: 1,
      zombie_key_total: 1,
      reconcile_scheduled_total: 1,
      "tenant_duplicates tenant=acme": 1,
    },
  ],
  ["takeover", { ...reserved, outcome: "takeover" }, { reserve_takeover_total: 1, zombie_key_total: 1 }],
  ["expired_retry", { ...reserved, outcome: "expired_retry" }, { reserve_expired_retry_total: 1 }],
  ["claimed", { ...reserved, outcome: "claimed" }, { reserve_claimed_total: 1 }],
  ["accepted", { ...reserved, outcome: "accepted" }, { reserve_accepted_total: 1 }],
  ["absent", { ...reserved, outcome: "absent" }, { reserve_absent_total: 1 }],
  ["store_down", { ...reserved, outcome: "store_down" }, { reserve_store_down_total: 1 }],
  ["unprotected", { ...reserved, outcome: "unprotected" }, { reserve_unprotected_total: 1 }],
  [
    "settled",
    { ...settled, as: "completed" },
    {
      "settled_total as=completed": 1,
      execute_duration_seconds_sum: 0.07,
      execute_duration_seconds_count: 1,
    },
  ],
  [
    "settled as unknown",
    { ...settled, as: "unknown", reason: "?" },
    {
      "settled_total as=unknown": 1,
      reconcile_scheduled_total: 1,
      execute_duration_seconds_sum: 0.07,
      execute_duration_seconds_count: 1,
    },
  ],
  ["lease_lost", { ...request, type: "lease_lost", attempt: 1, reason: "?" }, { lease_lost_total: 1 }],
  [
    "execution_timeout",
    { ...request, type: "execution_timeout", attempt: 1 },
    { execution_timeout_total: 1 },
  ],
  [
    "waited",
    { ...request, type: "waited", ms: 1500, answered: true },
    { wait_duration_seconds_sum: 1.5, wait_duration_seconds_count: 1 },
  ],
  ["handler_failed", { ...request, type: "handler_failed", error }, {}],
  ["store_error", { type: "store_error", verb: "settle", error }, { "store_error_total verb=settle": 1 }],
  [
    "swept",
    { type: "swept", unknown: 2, retryable: 3, unclaimed: 4 },
    { zombie_key_total: 5, reconcile_scheduled_total: 2 },
  ],
  ["reaped", { type: "reaped", deleted: 6, expired: 1 }, { ttl_pruned_total: 7 }],
  ["phase", { ...request, type: "phase", name: "p", kind: "atomic", attempt: 1, outcome: "done" }, {}],
  ...(["completed", "not-executed", "effect-done", "resume"] as const).map(
    (outcome) =>
      [
        `reconciled: ${outcome}`,
        { ...request, type: "reconciled", outcome, by: "ada" },
        { reconcile_resolved_total: 1 },
      ] as const,
  ),
  ...(["still-unknown", "escalated"] as const).map(
    (outcome) =>
      [
        `reconciled: ${outcome}`,
        { ...request, type: "reconciled", outcome, by: "ada" },
        { reconcile_failed_total: 1 },
      ] as const,
  ),
  ["busted", { ...request, type: "busted", by: "ada", reason: "?" }, { busted_total: 1 }],
  ["delivered", { type: "delivered", ...delivery }, { outbox_delivered_total: 1 }],
  ["delivery_failed", { type: "delivery_failed", ...delivery, error }, { outbox_delivery_failed_total: 1 }],
  ["dead_letter", { type: "dead_letter", ...delivery, error }, { outbox_dead_letter_total: 1 }],
  [
    "limited",
    { type: "limited", tenantScope: "acme", limit: "newKeys" },
    { "limited_total limit=newKeys": 1 },
  ],
  ["a limited request", { ...reserved, outcome: "limited" }, { reserve_limited_total: 1 }],
  [
    "a limited look-up",
    { type: "limited", tenantScope: "acme", limit: "lookUps" },
    { "limited_total limit=lookUps": 1, reserve_limited_total: 1 },
  ],
  ["refused", { type: "refused", code: "key-missing" }, { "refused_total code=key-missing": 1 }],
  [
    "breaker opens",
    { type: "breaker", state: "open", reason: "?" },
    { breaker_state: 2, breaker_opened_total: 1 },
  ],
  ["breaker tries", { type: "breaker", state: "half-open", reason: "?" }, { breaker_state: 1 }],
  ["breaker closes", { type: "breaker", state: "closed", reason: "?" }, {}],
  ["forgotten", { type: "forgotten", tenantScope: "acme", how: "removed", by: "ada" }, {}],
  ["worker", { type: "worker", worker: "relay", counts: {} }, {}],
  [
    "worker_error",
    { type: "worker_error", worker: "relay", error },
    { "worker_error_total worker=relay": 1 },
  ],
  [
    "worker_error of a stranger",
    { type: "worker_error", worker: "mine", error },
    { "worker_error_total worker=other": 1 },
  ],
];

describe("metrics", () => {
  it.each(effects)("%s is counted as what it is, and as nothing else", async (_, event, shown) => {
    const { latchkey, read } = measured();
    latchkey.engine.events.emit(event);
    expect(await read()).toEqual(shown);
  });

  it("requests are counted by what became of them", async () => {
    const { clock, latchkey, read } = measured();
    await run(latchkey, "a");
    await run(latchkey, "a");
    await run(latchkey, "a", { other: true }).catch(() => {});
    let finish: (value: string) => void = () => {};
    const running = run(latchkey, "b", {}, () => new Promise((resolve) => (finish = resolve)));
    await clock.advance(2_000);
    await run(latchkey, "b").catch(() => {});
    finish("done");
    await running;
    await run(latchkey, "c", {}, () => Promise.reject(error)).catch(() => {});
    await run(latchkey, "c");
    expect(await read()).toEqual({
      reserve_created_total: 3,
      reserve_replay_total: 1,
      reserve_key_misuse_total: 1,
      reserve_in_progress_total: 1,
      reserve_failed_retry_total: 1,
      "settled_total as=completed": 3,
      "settled_total as=failed_retryable": 1,
      execute_duration_seconds_count: 4,
      execute_duration_seconds_sum: 2,
      "tenant_duplicates tenant=acme": 3,
    });
  });

  it("a dead owner is counted once, by whoever finds it, and its outcome as scheduled to be asked about", async () => {
    const clock = manualClock();
    const store = memoryStore({ clock: clock.now });
    const first = createLatchkey({ store, tenant: "single", runtime: clock });
    const dies = run(first, "a", {}, () => new Promise(() => {}));
    dies.catch(() => {});
    await clock.advance(1);
    first.engine.close();
    await clock.advance(60_000);
    const second = createLatchkey({ store, tenant: "single", runtime: clock });
    const metrics = prometheusMetrics(second);
    await run(second, "a").catch(() => {});
    await run(second, "a").catch(() => {});
    await second.sweep();
    const shown = await readings(metrics.text());
    expect(shown).toMatchObject({
      reserve_unknown_total: 2,
      zombie_key_total: 1,
      reconcile_scheduled_total: 1,
      unknown_waiting: 1,
    });
    expect(shown.unknown_oldest_seconds).toBeGreaterThanOrEqual(60);
  });

  it("what the store cannot say in time is left out, and the failure is counted", async () => {
    const clock = manualClock();
    let failing = false;
    const store = faultyStore({
      store: memoryStore({ clock: clock.now }),
      runtime: clock,
      choose: () => ({ kind: "none" }),
    });
    const unknownCounts = store.unknownCounts.bind(store);
    let asked = 0;
    Object.assign(store, {
      unknownCounts: () => {
        asked += 1;
        return failing ? new Promise(() => {}) : unknownCounts();
      },
    });
    const latchkey = createLatchkey({ store, tenant: "single", runtime: clock });
    const metrics = prometheusMetrics(latchkey);
    const page = async () => {
      const text = metrics.text();
      await clock.advance(2_000);
      return parseExposition(await text);
    };
    expect((await page()).has("api_idempotency_unknown_waiting")).toBe(true);
    await page();
    expect(asked).toBe(1);

    failing = true;
    await clock.advance(5_000);
    expect((await page()).has("api_idempotency_unknown_waiting")).toBe(false);
    await clock.advance(5_000);
    const late = await page();
    const errors = late.get("api_idempotency_store_error_total")?.samples ?? [];
    expect(errors.find(({ labels }) => labels.verb === "counts")?.value).toBe(1);

    failing = false;
    await clock.advance(10_000);
    expect((await page()).has("api_idempotency_unknown_waiting")).toBe(true);
  });

  it("a page has every instrument of a store with an outbox, under its Prometheus name", async () => {
    const store = Object.assign(memoryStore(), {
      outbox: { counts: async () => ({ waiting: 3, dead: 1, oldestDueMs: 2500 }) },
    });
    const latchkey = createLatchkey({ store: store as never, tenant: "single" });
    const metrics = prometheusMetrics(latchkey);
    await run(latchkey, "a");
    await run(latchkey, "a");
    const page = parseExposition(await metrics.text());
    expect([...page.keys()].sort()).toEqual([...instruments.values()].map(prometheusName).sort());
    for (const instrument of instruments.values()) {
      const family = page.get(prometheusName(instrument));
      expect(family).toMatchObject({ type: instrument.kind, help: instrument.help });
    }
    expect(await readings(metrics.text())).toMatchObject({
      outbox_waiting: 3,
      outbox_dead: 1,
      outbox_oldest_due_seconds: 2.5,
    });
  });

  it("whoever has stopped measuring costs nothing more", async () => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    const metrics = prometheusMetrics(latchkey);
    expect(latchkey.engine.events.areHeard).toBe(true);
    metrics.close();
    expect(latchkey.engine.events.areHeard).toBe(false);
  });

  it.each([
    [{ tenantsMax: -1 }, /tenantsMax is -1 and must be/],
    [{ tenantsMax: 1001 }, /from 0 to 1000/],
    [{ tenantLabel: "x" as never }, /tenantLabel must be a function/],
    [{ token: "" }, /token must be/],
  ])("options that cannot be kept are refused: %o", (options, message) => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    expect(() => prometheusMetrics(latchkey, options)).toThrow(message);
  });
});
