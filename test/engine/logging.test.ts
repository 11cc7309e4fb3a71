import { once } from "node:events";
import pino from "pino";
import { describe, expect, it } from "vitest";
import { createLatchkey, type LatchkeyEvent, type LatchkeyOptions, StoreError } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock } from "../../src/testing/index.ts";

const levelNames: Record<number, string> = { 20: "debug", 30: "info", 40: "warn", 50: "error" };

/** What pino wrote, without what every line of pino's has. */
interface Line extends Record<string, unknown> {
  readonly level: string;
  readonly msg: string;
}

function logged(options: Partial<LatchkeyOptions> = {}) {
  const written: string[] = [];
  const clock = manualClock();
  const latchkey = createLatchkey({
    store: memoryStore({ clock: clock.now }),
    tenant: "single",
    runtime: clock,
    logger: pino({ level: "debug", base: null, timestamp: false }, { write: (line) => written.push(line) }),
    ...options,
  });
  return {
    clock,
    latchkey,
    emit: (event: LatchkeyEvent) => latchkey.engine.events.emit(event),
    /** What has been written since it was last asked for. */
    lines(): Line[] {
      return written
        .splice(0)
        .map((line) => JSON.parse(line))
        .map((line) => ({ ...line, level: levelNames[line.level] }));
    },
  };
}

const run = (latchkey: ReturnType<typeof createLatchkey>, key: string, work: () => unknown = () => "done") =>
  latchkey.run({ tenant: "acme", key }, work);

const id = { scope: "acme POST /x", key: "k" } as const;
const reserved = { ...id, type: "reserved", joined: false, cached: false, discovered: false } as const;
const delivery = { topic: "t", messageKey: "m", attempts: 3 } as const;
const error = Object.assign(new TypeError("it broke\nVALUES (4111111111111111)"), {
  code: "E42",
  parameters: ["card-s3cret"],
  query: "insert s3cret",
  detail: "Key (email)=(s3cret)",
});
const shownError = { type: "TypeError", code: "E42", message: "it broke" };

/** Every event that is out of the ordinary, and its line. */
const lines: readonly (readonly [event: LatchkeyEvent, line: Record<string, unknown>])[] = [
  [
    { ...reserved, outcome: "key_misuse" },
    { level: "warn", event: "key_misuse", ...id },
  ],
  [
    { ...reserved, outcome: "takeover" },
    { level: "warn", event: "takeover", ...id },
  ],
  [
    { ...reserved, outcome: "unknown", discovered: true },
    { level: "warn", event: "unknown", ...id },
  ],
  [
    { ...reserved, outcome: "unprotected" },
    { level: "error", event: "unprotected", ...id },
  ],
  [
    { ...reserved, outcome: "absent" },
    { level: "warn", event: "absent", ...id },
  ],
  [
    { ...id, type: "settled", as: "unknown", attempt: 2, ms: 1, reason: "why" },
    { level: "warn", event: "unknown", ...id, attempt: 2, reason: "why" },
  ],
  [
    { ...id, type: "settled", as: "failed_retryable", attempt: 1, ms: 1, reason: "why" },
    { level: "debug", event: "failed_retryable", ...id, attempt: 1, reason: "why" },
  ],
  [
    { ...id, type: "lease_lost", attempt: 1, reason: "why" },
    { level: "warn", event: "lease_lost", ...id, attempt: 1, reason: "why" },
  ],
  [
    { ...id, type: "execution_timeout", attempt: 1 },
    { level: "warn", event: "execution_timeout", ...id, attempt: 1 },
  ],
  [
    { ...id, type: "handler_failed", error },
    { level: "error", event: "handler_failed", ...id, error: shownError },
  ],
  [
    { ...id, type: "phase", name: "p", kind: "effect", attempt: 1, outcome: "failed" },
    { level: "debug", event: "phase_failed", ...id, attempt: 1, phase: "p", kind: "effect" },
  ],
  [
    { type: "store_error", verb: "renew", error },
    { level: "error", event: "store_error", verb: "renew", error: shownError },
  ],
  [
    { type: "swept", unknown: 1, retryable: 2, unclaimed: 0 },
    { level: "warn", event: "swept", unknown: 1, retryable: 2, unclaimed: 0 },
  ],
  ...(["completed", "not-executed", "effect-done", "resume"] as const).map(
    (outcome) =>
      [
        { ...id, type: "reconciled", outcome, by: "ada" },
        { level: "info", event: "reconciled", ...id, outcome, by: "ada" },
      ] as const,
  ),
  [
    { ...id, type: "reconciled", outcome: "still-unknown", by: "ada" },
    { level: "debug", event: "reconciled", ...id, outcome: "still-unknown", by: "ada" },
  ],
  [
    { ...id, type: "reconciled", outcome: "escalated", by: "ada" },
    { level: "error", event: "reconciled", ...id, outcome: "escalated", by: "ada" },
  ],
  [
    { ...id, type: "busted", by: "ada", reason: "why" },
    { level: "warn", event: "busted", ...id, by: "ada", reason: "why" },
  ],
  [
    { type: "delivery_failed", ...delivery, error: "no" },
    { level: "debug", event: "delivery_failed", ...delivery, error: { type: "string", message: "no" } },
  ],
  [
    { type: "dead_letter", ...delivery, error },
    { level: "error", event: "dead_letter", ...delivery, error: shownError },
  ],
  [
    { type: "limited", tenantScope: "acme", limit: "newKeys" },
    { level: "warn", event: "limited", tenant: "acme", limit: "newKeys" },
  ],
  [
    { type: "breaker", state: "open", reason: "why" },
    { level: "error", event: "breaker", state: "open", reason: "why" },
  ],
  [
    { type: "breaker", state: "closed", reason: "why" },
    { level: "info", event: "breaker", state: "closed", reason: "why" },
  ],
  [
    { type: "forgotten", tenantScope: "acme", how: "shredded", by: "ada" },
    { level: "info", event: "forgotten", tenant: "acme", how: "shredded", by: "ada" },
  ],
  [
    { type: "worker_error", worker: "relay", error },
    { level: "error", event: "worker_error", worker: "relay", error: shownError },
  ],
];

describe("the log", () => {
  it.each(lines.map(([event, line]) => [`${line.event} (${line.level})`, event, line] as const))(
    "has one line for %s, with what it is about and no more",
    (_, event, line) => {
      const { emit, lines } = logged();
      emit(event);
      expect(lines()).toEqual([{ ...line, msg: expect.stringMatching(/^[a-z].*[a-z]$/) }]);
    },
  );

  it("has no line for requests that go well, and for workers that do their work", async () => {
    const { latchkey, emit, lines } = logged();
    await run(latchkey, "a");
    await run(latchkey, "a");
    await latchkey.sweep();
    await latchkey.reap();
    for (const outcome of ["in_progress", "accepted", "claimed", "failed_retry", "store_down"] as const) {
      emit({ ...reserved, outcome });
    }
    emit({ ...reserved, outcome: "unknown" });
    emit({ type: "refused", code: "key-missing" });
    emit({ ...id, type: "waited", ms: 5, answered: true });
    emit({ type: "delivered", ...delivery });
    emit({ type: "worker", worker: "relay", counts: { delivered: 1 } });
    emit({ ...id, type: "phase", name: "p", kind: "atomic", attempt: 1, outcome: "done" });
    expect(lines()).toEqual([]);
  });

  it("tells of a misuse, a timeout and what follows from it as they happen", async () => {
    const { clock, latchkey, lines } = logged({ executionTimeoutMs: 100 });
    await run(latchkey, "a");
    await latchkey.run({ tenant: "acme", key: "a", input: { other: true } }, () => "done").catch(() => {});
    run(latchkey, "b", () => new Promise(() => {})).catch(() => {});
    await clock.advance(200);
    expect(lines()).toMatchObject([
      { level: "warn", event: "key_misuse", scope: "acme", key: "a" },
      { level: "warn", event: "execution_timeout", key: "b", attempt: 1 },
      { level: "warn", event: "unknown", key: "b", reason: "the handler took longer than 100 ms" },
    ]);
  });

  it("has the first of a kind at once, and then a count every ten seconds for as long as it goes on", async () => {
    const { clock, emit, lines } = logged();
    const fail = () => emit({ type: "store_error", verb: "reserve", error });
    for (let index = 0; index < 1000; index += 1) fail();
    emit({ type: "store_error", verb: "settle", error });
    expect(lines().map(({ verb, times }) => [verb, times])).toEqual([
      ["reserve", undefined],
      ["settle", undefined],
    ]);
    await clock.advance(10_000);
    expect(lines()).toMatchObject([{ event: "store_error", verb: "reserve", times: 999, error: shownError }]);
    fail();
    await clock.advance(10_000);
    expect(lines()).toMatchObject([{ verb: "reserve", times: 1 }]);
    await clock.advance(10_000);
    expect(lines()).toEqual([]);
    fail();
    expect(lines()).toMatchObject([{ verb: "reserve", error: shownError }]);
  });

  it("that throws when it is told a count ends nothing, and is told the next one", async () => {
    let isBroken = false;
    const counts: unknown[] = [];
    const log = ({ times }: { times?: number }) => {
      if (isBroken) throw new Error("the log's worker has exited");
      counts.push(times);
    };
    const { clock, emit } = logged({ logger: { debug: log, info: log, warn: log, error: log } });
    const fail = () => emit({ type: "store_error", verb: "reserve", error });
    const warning = once(process, "warning");
    fail();
    fail();
    isBroken = true;
    await clock.advance(10_000);
    expect(await warning).toEqual([expect.objectContaining({ message: "the log's worker has exited" })]);
    isBroken = false;
    fail();
    await clock.advance(10_000);
    expect(counts).toEqual([undefined, 1]);
  });

  it("counts limited tenants each on its own, and not more of them than it can keep", async () => {
    const { clock, emit, lines } = logged();
    const limited = (tenantScope: string) => emit({ type: "limited", tenantScope, limit: "lookUps" });
    for (const tenant of ["acme", "ajax", "acme", "acme"]) limited(tenant);
    expect(lines().map(({ tenant }) => tenant)).toEqual(["acme", "ajax"]);
    await clock.advance(10_000);
    expect(lines()).toMatchObject([{ tenant: "acme", times: 2 }]);
    for (let index = 0; index < 5_000; index += 1) limited(`tenant-${index}`);
    expect(lines().length).toBeLessThanOrEqual(1_001);
  });

  it("says what a store's failure was caused by, and nothing of what the driver's error carries", () => {
    const { emit, lines } = logged();
    const failure = new StoreError("the store failed", { cause: error });
    emit({ type: "store_error", verb: "reserve", error: failure });
    const [line] = lines();
    expect(line?.error).toEqual({
      type: "StoreError",
      code: "store-unavailable",
      message: "the store failed",
      cause: shownError,
    });
    expect(JSON.stringify(line)).not.toMatch(/s3cret|4111/);
  });

  it("shows a tenant that looks like a person as a digest, and keys too where that is asked for", () => {
    const about = { type: "busted", by: "ada", reason: "why", key: "key-s3cret" } as const;
    const plain = logged();
    plain.emit({ ...about, scope: "ada@example.com POST /x" });
    expect(plain.lines()).toMatchObject([
      { scope: expect.stringMatching(/^sha256:[0-9a-f]{16} POST \/x$/), key: "key-s3cret" },
    ]);
    const digests = logged({ logKeys: "digest" });
    digests.emit({ ...about, scope: "acme-s3cret" });
    digests.emit({ type: "limited", tenantScope: "acme-s3cret", limit: "newKeys" });
    const digest = expect.stringMatching(/^sha256:[0-9a-f]{16}$/);
    const lines = digests.lines();
    expect(lines).toMatchObject([{ scope: digest, key: digest }, { tenant: digest }]);
    expect(JSON.stringify(lines)).not.toContain("s3cret");
  });

  it("refuses what is not a logger, and what it does not know", () => {
    expect(() => logged({ logger: console.log as never })).toThrow(/logger has no debug\(fields, message\)/);
    expect(() => logged({ logKeys: "none" as never })).toThrow(/logKeys is "none" and must be/);
  });
});
