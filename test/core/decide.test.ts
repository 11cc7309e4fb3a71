import { describe, expect, it } from "vitest";
import { decide } from "../../src/core/decide.ts";
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
  createdAt: now - 10,
  expiresAt: now + 10,
};
const past = { expiresAt: now };

const records = {
  pending: { ...common, state: "pending" },
  running: { ...common, state: "in_progress", owner: "o", leaseUntil: now + 1 },
  dead: { ...common, state: "in_progress", owner: "o", leaseUntil: now },
  completed: { ...common, state: "completed", completedAt: now - 5, response },
  failed: { ...common, state: "failed_retryable", reason: "r" },
  unknown: { ...common, state: "unknown", reason: "r", reconcileAfter: now + 7 },
  expired: { ...common, ...past, state: "expired" },
} satisfies Record<string, IdempotencyRecord>;

const same = { fingerprint: "v1:a" };
const other = { fingerprint: "v1:b" };

describe("decide", () => {
  it.each<[string, IdempotencyRecord | undefined, object]>([
    ["nothing is there", undefined, { kind: "execute", after: "absent", fence: 1 }],
    ["it is pending", records.pending, { kind: "pending" }],
    ["it runs", records.running, { kind: "inFlight", retryAfterMs: 1 }],
    ["its owner is dead", records.dead, { kind: "suspend", record: records.dead }],
    [
      "its owner is dead, to be retried",
      { ...records.dead, onCrash: "retry" },
      { kind: "execute", after: "crash", fence: 4 },
    ],
    [
      "its owner is dead, to be resumed",
      { ...records.dead, onCrash: "resume" },
      { kind: "execute", after: "crash", fence: 4 },
    ],
    ["it is completed", records.completed, { kind: "replay", response, expiresAt: now + 10 }],
    [
      "it was completed long ago",
      { ...records.completed, ...past },
      { kind: "execute", after: "expired", fence: 4 },
    ],
    ["it failed", records.failed, { kind: "execute", after: "failed_retryable", fence: 4 }],
    ["it failed long ago", { ...records.failed, ...past }, { kind: "execute", after: "expired", fence: 4 }],
    ["nobody knows", records.unknown, { kind: "unknown", retryAfterMs: 7 }],
    [
      "nobody knows, and the question is due",
      { ...records.unknown, reconcileAfter: now - 7 },
      { kind: "unknown", retryAfterMs: 0 },
    ],
    ["it is soft-expired", records.expired, { kind: "execute", after: "expired", fence: 4 }],
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
      const decision = decide({ ...records[state], ...past } as IdempotencyRecord, other, now);
      expect(decision).toEqual({ kind: "execute", after: "expired", fence: 4 });
    },
  );
});
