import { describe, expect, it } from "vitest";
import { decide } from "../../src/core/decide.ts";
import type { Progress } from "../../src/core/phase.ts";
import type { IdempotencyRecord, OnCrash } from "../../src/core/record.ts";
import type { StoredResponse } from "../../src/core/response.ts";

const now = 1_000_000;
const response: StoredResponse = { kind: "full", status: 201, headers: [], body: new Uint8Array() };
const common = {
  scope: "tenant",
  key: "key",
  fingerprint: "v1:a",
  fence: 3,
  onCrash: "reconcile" as OnCrash,
  reconcileAfterMs: 30_000,
  route: undefined,
  progress: [{ kind: "atomic", name: "first", result: "1" }] as Progress,
  createdAt: now - 10,
  expiresAt: now + 10,
};
const past = { expiresAt: now };

const records = {
  pending: { ...common, state: "pending", resumeAfter: now, claims: 0 },
  running: { ...common, state: "in_progress", owner: "o", leaseUntil: now + 1 },
  dead: { ...common, state: "in_progress", owner: "o", leaseUntil: now },
  completed: { ...common, state: "completed", completedAt: now - 5, response },
  failed: {
    ...common,
    state: "failed_retryable",
    reason: "r",
    resumeAfter: undefined as number | undefined,
    claims: 0,
  },
  unknown: {
    ...common,
    state: "unknown",
    reason: "r",
    reconcileAfter: now + 7,
    reconcileAttempts: 0,
    escalatedAt: undefined,
  },
  expired: { ...common, ...past, state: "expired" },
} satisfies Record<string, IdempotencyRecord>;

const same = { fingerprint: "v1:a", mode: "execute" } as const;
const other = { fingerprint: "v1:b", mode: "execute" } as const;
const { progress } = common;

describe("decide", () => {
  it.each<[string, IdempotencyRecord | undefined, object]>([
    [
      "nothing is there",
      undefined,
      { kind: "execute", after: "absent", fence: 1, progress: [], createdAt: now },
    ],
    ["it is pending", records.pending, { kind: "pending" }],
    ["it runs", records.running, { kind: "inFlight", retryAfterMs: 1 }],
    ["its owner is dead", records.dead, { kind: "suspend", record: records.dead }],
    [
      "its owner is dead, to be retried",
      { ...records.dead, onCrash: "retry" },
      { kind: "execute", after: "crash", fence: 4, progress, createdAt: now - 10 },
    ],
    [
      "its owner is dead, to be resumed",
      { ...records.dead, onCrash: "resume" },
      { kind: "execute", after: "crash", fence: 4, progress, createdAt: now - 10 },
    ],
    [
      "it is completed",
      records.completed,
      { kind: "replay", response, expiresAt: now + 10, remainingMs: 10 },
    ],
    [
      "it was completed long ago",
      { ...records.completed, ...past },
      { kind: "execute", after: "expired", fence: 4, progress: [], createdAt: now },
    ],
    [
      "it failed",
      records.failed,
      { kind: "execute", after: "failed_retryable", fence: 4, progress, createdAt: now - 10 },
    ],
    [
      "it failed long ago, before it had done anything",
      { ...records.failed, ...past, progress: [] },
      { kind: "execute", after: "expired", fence: 4, progress: [], createdAt: now },
    ],
    [
      "it failed long ago, half done",
      { ...records.failed, ...past },
      { kind: "execute", after: "failed_retryable", fence: 4, progress, createdAt: now - 10 },
    ],
    [
      "it failed long ago, and waits to be finished",
      { ...records.failed, ...past, resumeAfter: now },
      { kind: "execute", after: "failed_retryable", fence: 4, progress, createdAt: now - 10 },
    ],
    ["nobody knows", records.unknown, { kind: "unknown", retryAfterMs: 7 }],
    [
      "nobody knows, and the question is due",
      { ...records.unknown, reconcileAfter: now - 7 },
      { kind: "unknown", retryAfterMs: 0 },
    ],
    [
      "it is soft-expired",
      records.expired,
      { kind: "execute", after: "expired", fence: 4, progress: [], createdAt: now },
    ],
    [
      "nobody knows, for longer than the retention",
      { ...records.unknown, ...past },
      { kind: "unknown", retryAfterMs: 7 },
    ],
    [
      "it runs, for longer than the retention",
      { ...records.running, ...past },
      { kind: "inFlight", retryAfterMs: 1 },
    ],
    ["it is pending, for longer than the retention", { ...records.pending, ...past }, { kind: "pending" }],
  ])("the same request, when %s", (_when, record, decision) => {
    expect(decide(record, same, now)).toEqual(decision);
  });

  it.each(Object.entries(records).filter(([state]) => state !== "expired"))(
    "another request under the same key is a mismatch, when it is %s",
    (_state, record) => {
      expect(decide(record, other, now)).toEqual({ kind: "mismatch" });
    },
  );

  it.each(["completed", "failed", "expired"] as const)(
    "past its retention a %s key is free for any request",
    (state) => {
      const decision = decide({ ...records[state], ...past, progress: [] } as IdempotencyRecord, other, now);
      expect(decision).toEqual({ kind: "execute", after: "expired", fence: 4, progress: [], createdAt: now });
    },
  );

  it.each<[string, IdempotencyRecord | undefined, object]>([
    ["nothing is there", undefined, { kind: "accept", isNewUse: true, fence: 0 }],
    ["it is pending", records.pending, { kind: "pending" }],
    ["it runs", records.running, { kind: "inFlight", retryAfterMs: 1 }],
    ["its owner is dead", records.dead, { kind: "suspend", record: records.dead }],
    [
      "its owner is dead, to be resumed",
      { ...records.dead, onCrash: "resume" },
      { kind: "accept", isNewUse: false, fence: 3 },
    ],
    ["it failed", records.failed, { kind: "accept", isNewUse: false, fence: 3 }],
    [
      "it is completed",
      records.completed,
      { kind: "replay", response, expiresAt: now + 10, remainingMs: 10 },
    ],
    ["it is soft-expired", records.expired, { kind: "accept", isNewUse: true, fence: 3 }],
    ["nobody knows", records.unknown, { kind: "unknown", retryAfterMs: 7 }],
  ])("a request to be accepted, when %s", (_when, record, decision) => {
    expect(decide(record, { ...same, mode: "accept" }, now)).toEqual(decision);
  });

  it("a worker executes what was accepted, but not once its time has passed", () => {
    const claim = { ...same, mode: "claim" } as const;
    expect(decide(records.pending, claim, now)).toEqual({
      kind: "execute",
      after: "pending",
      fence: 4,
      progress,
      createdAt: now - 10,
    });
    expect(decide({ ...records.pending, ...past }, claim, now)).toEqual({ kind: "pending" });
    expect(decide(records.pending, { ...other, mode: "claim" }, now)).toEqual({ kind: "mismatch" });
  });

  it("a worker never begins anything: what is not there, or not any more, it may have looked for under a wrong name", () => {
    const claim = { ...same, mode: "claim" } as const;
    expect(decide(undefined, claim, now)).toEqual({ kind: "absent" });
    expect(decide(records.expired, claim, now)).toEqual({ kind: "absent" });
    expect(decide({ ...records.completed, ...past }, claim, now)).toEqual({ kind: "absent" });
  });
});
