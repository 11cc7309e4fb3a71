import { describe, expect, it } from "vitest";
import { defaultPolicy } from "../../src/core/policy.ts";
import type { IdempotencyRecord } from "../../src/core/record.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { Events, type LatchkeyEvent } from "../../src/engine/events.ts";
import { recall } from "../../src/engine/recall.ts";
import type { Arrival } from "../../src/engine/verdict.ts";

const now = 1_000_000;
const id = { scope: "acme", key: "k" };

/** Asks about a request that is too old to be run, whose record is this one. */
async function recalled(
  record: IdempotencyRecord | undefined,
  options: Partial<Pick<Arrival, "isClaim" | "fingerprint" | "request">> = {},
) {
  const events = new Events();
  const told: LatchkeyEvent[] = [];
  events.subscribe((event) => told.push(event));
  const engine = { read: async () => ({ record, now }), events } as unknown as Engine;
  const verdict = await recall(engine, { ...id, fingerprint: "v1:same", policy: defaultPolicy, ...options });
  return { verdict: typeof verdict === "string" ? verdict : verdict.kind, told };
}

const common = {
  ...id,
  fingerprint: "v1:same",
  fence: 1,
  onCrash: "reconcile",
  reconcileAfterMs: 30_000,
  route: undefined,
  progress: [],
  createdAt: 0,
  expiresAt: now + 1000,
} as const;
const response = { kind: "full", status: 201, headers: [], body: new Uint8Array() } as const;
const dead = { ...common, state: "in_progress", owner: "o", leaseUntil: now - 1 } as const;
const progress = [{ kind: "atomic", name: "charged", result: "1" }] as const;
const failed = { ...common, state: "failed_retryable", reason: "", claims: 0 } as const;

describe("a request that is too old to be run", () => {
  it.each<[string, IdempotencyRecord | undefined, client: string, worker: string]>([
    ["has no record", undefined, "late", "late"],
    ["is done", { ...common, state: "completed", completedAt: 0, response }, "replay", "replay"],
    ["was done", { ...common, state: "completed", completedAt: 0, response, expiresAt: now }, "late", "late"],
    ["was done, for audit", { ...common, state: "expired" }, "late", "late"],
    ["was accepted", { ...common, state: "pending", resumeAfter: 0, claims: 0 }, "accepted", "due"],
    ["is being executed", { ...dead, leaseUntil: now + 1 }, "inFlight", "inFlight"],
    ["was left by its owner", dead, "unknown", "unknown"],
    ["was left, to be tried again", { ...dead, onCrash: "retry" }, "late", "late"],
    ["was left, to be resumed by nobody", { ...dead, onCrash: "resume" }, "unknown", "unknown"],
    ["was left half done", { ...dead, onCrash: "retry", progress }, "unknown", "unknown"],
    ["failed", { ...failed, resumeAfter: undefined }, "late", "late"],
    ["failed half done", { ...failed, resumeAfter: undefined, progress }, "unknown", "unknown"],
    ["failed, and a worker goes on", { ...failed, resumeAfter: now + 1 }, "inFlight", "due"],
    [
      "is in doubt",
      {
        ...common,
        state: "unknown",
        reason: "",
        reconcileAfter: 0,
        reconcileAttempts: 0,
        escalatedAt: undefined,
      },
      "unknown",
      "unknown",
    ],
  ])(
    "and %s: its client is told what is known, and a worker goes on only where one is waited for",
    async (_what, record, client, worker) => {
      expect((await recalled(record)).verdict).toBe(client);
      expect((await recalled(record, { isClaim: true })).verdict).toBe(worker);
    },
  );

  it("and was left and kept: a worker goes on with it, whatever its crash means", async () => {
    const request = { method: "POST", target: "/", tenant: "acme", headers: [], body: new Uint8Array() };
    for (const onCrash of ["resume", "retry"] as const) {
      expect((await recalled({ ...dead, onCrash }, { request })).verdict).toBe("inFlight");
      expect((await recalled({ ...dead, onCrash }, { request, isClaim: true })).verdict).toBe("due");
    }
  });

  it("is another request with another fingerprint, whoever asks", async () => {
    const record = { ...failed, resumeAfter: now } as const;
    for (const isClaim of [false, true]) {
      expect((await recalled(record, { isClaim, fingerprint: "v1:other" })).verdict).toBe("mismatch");
    }
  });

  it("is counted by what it was answered with", async () => {
    const record = { ...common, state: "completed", completedAt: 0, response } as const;
    expect((await recalled(record)).told).toEqual([
      { type: "reserved", ...id, outcome: "replay", joined: false, cached: false, discovered: false },
    ]);
    expect((await recalled(undefined)).told).toEqual([]);
  });
});
