import assert from "node:assert/strict";
import type { RecordId } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import type { Lease, Reservation, ReserveRequest, Settlement, Store } from "../../core/store.ts";
import type { StoreHarness } from "./harness.ts";

/** Long against any test, short against a day. */
export const longMs = 60_000;
/** Runs out while a test looks on. */
export const shortMs = 40;

let sequence = 0;

/** Each case works on keys of its own, so that cases may share one database. */
export function fresh(overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  sequence += 1;
  return {
    scope: `tenant-${process.pid}-${sequence}`,
    key: `key-${sequence}`,
    fingerprint: "v1:first",
    owner: `owner-${process.pid}-${sequence}`,
    leaseMs: longMs,
    retentionMs: longMs,
    onCrash: "reconcile",
    ...overrides,
  };
}

/** The same request from somebody else. */
export function again(request: ReserveRequest, overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  sequence += 1;
  return { ...request, owner: `owner-${process.pid}-${sequence}`, ...overrides };
}

export const created: StoredResponse = {
  kind: "full",
  status: 201,
  headers: [["content-type", "application/json"]],
  body: new TextEncoder().encode('{"id":1}'),
};

export function complete(response: StoredResponse = created, retentionMs = longMs): Settlement {
  return { kind: "complete", response, retentionMs };
}
export const release: Settlement = { kind: "release", reason: "nothing was sent", retentionMs: longMs };
export const suspend: Settlement = { kind: "suspend", reason: "no answer came", reconcileAfterMs: longMs };
export const everySettlement: readonly Settlement[] = [complete(), release, suspend];

export async function lease(store: Store, request: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(request);
  if (reservation.kind !== "execute") assert.fail(`expected the right to execute, got ${reservation.kind}`);
  return reservation.lease;
}

export async function stateOf(store: Store, id: RecordId): Promise<string> {
  const { record } = await store.read(id);
  return record?.state ?? "absent";
}

/** A record in each state in which a retry can find it. */
export const everyState: Readonly<Record<string, (harness: StoreHarness) => Promise<ReserveRequest>>> = {
  in_progress: async ({ store }) => {
    const request = fresh();
    await lease(store, request);
    return request;
  },
  "in_progress with a dead owner": async ({ store, passTime }) => {
    const request = fresh({ leaseMs: shortMs });
    await lease(store, request);
    await passTime(shortMs + 10);
    return request;
  },
  "in_progress with a dead owner, to be retried": async ({ store, passTime }) => {
    const request = fresh({ leaseMs: shortMs, onCrash: "retry" });
    await lease(store, request);
    await passTime(shortMs + 10);
    return request;
  },
  completed: async ({ store }) => {
    const request = fresh();
    await store.settle(await lease(store, request), complete());
    return request;
  },
  failed_retryable: async ({ store }) => {
    const request = fresh();
    await store.settle(await lease(store, request), release);
    return request;
  },
  unknown: async ({ store }) => {
    const request = fresh();
    await store.settle(await lease(store, request), suspend);
    return request;
  },
};

export function counts(reservations: readonly Reservation[]): Record<string, number> {
  const byKind: Record<string, number> = {};
  for (const { kind } of reservations) byKind[kind] = (byKind[kind] ?? 0) + 1;
  return byKind;
}
