import assert from "node:assert/strict";
import type { Phase, Progress } from "../../core/phase.ts";
import type { IdempotencyRecord, RecordId, RecordState } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import type { Lease, Reservation, ReserveRequest, Resumable, Settlement, Store } from "../../core/store.ts";
import type { StoredRequest } from "../../core/stored-request.ts";
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
    reconcileAfterMs: 0,
    mode: "execute",
    route: undefined,
    request: undefined,
    ...overrides,
  };
}

/** A request that a worker executes later. */
export function accepting(overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  return fresh({ mode: "accept", request: kept, route: "rides", onCrash: "resume", ...overrides });
}

/** The same request from somebody else. */
export function again(request: ReserveRequest, overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  sequence += 1;
  return { ...request, owner: `owner-${process.pid}-${sequence}`, ...overrides };
}

export const everyByte = Uint8Array.from({ length: 256 }, (_, index) => index);

/** A request as it is kept for a worker, with everything that is easily lost on the way. */
export const kept: StoredRequest = {
  method: "POST",
  target: "/rides?from=A%20B&from=C",
  tenant: "tenant ünï",
  headers: [
    ["x-tag", "one"],
    ["content-type", "application/octet-stream"],
    ["x-tag", 'two "quoted" \\'],
  ],
  body: everyByte,
};

export const rideCreated: Phase = { kind: "atomic", name: "ride_created", result: '{"id":"ünï \\"1\\""}' };
export const chargeBegun: Phase = { kind: "effect", name: "charge", state: "begun", keyed: false };
export const chargeDone: Phase = {
  kind: "effect",
  name: "charge",
  state: "done",
  keyed: true,
  result: "null",
  reference: "ch_1",
};
export const someProgress: Progress = [rideCreated, chargeDone];

/** What becomes of an accepted request that nobody executes. */
export const timedOut: StoredResponse = {
  kind: "full",
  status: 408,
  headers: [],
  body: new Uint8Array([52]),
};

export const created: StoredResponse = {
  kind: "full",
  status: 201,
  headers: [["content-type", "application/json"]],
  body: new TextEncoder().encode('{"id":1}'),
};

export function complete(
  response: StoredResponse = created,
  retentionMs = longMs,
): Extract<Settlement, { kind: "complete" }> {
  return { kind: "complete", response, retentionMs };
}
export const release: Extract<Settlement, { kind: "release" }> = {
  kind: "release",
  reason: "nothing was sent",
  retentionMs: longMs,
};
export const suspend: Extract<Settlement, { kind: "suspend" }> = {
  kind: "suspend",
  reason: "no answer came",
  reconcileAfterMs: longMs,
};
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

/** The record, which must be in this state. */
export async function recordIn<S extends RecordState>(
  store: Store,
  id: RecordId,
  state: S,
): Promise<Extract<IdempotencyRecord, { state: S }>> {
  const { record } = await store.read(id);
  assert.equal(record?.state, state);
  return record as Extract<IdempotencyRecord, { state: S }>;
}

/** Round after round, but not for ever: a store that never comes to an end fails instead of running on. */
export function* rounds(): Generator<number> {
  for (let round = 0; round < 2_000; round += 1) yield round;
  assert.fail("the store never comes to an end");
}

export const sweepAll = { limit: 1_000, unclaimed: timedOut };

/** Sweeps until this record is not in progress any more; cases may share one database. */
export async function sweep(store: Store, id: RecordId): Promise<void> {
  for (const _ of rounds()) {
    if ((await stateOf(store, id)) !== "in_progress") break;
    await store.sweep(sweepAll);
  }
}

export const claimAll = {
  limit: 1_000,
  attemptsMax: 1_000,
  backoff: { baseMs: longMs, capMs: longMs },
};

/** What a worker is given of this record; what other cases have left behind is not looked at. */
export async function claimOne(
  store: Store,
  id: RecordId,
  options: Partial<typeof claimAll> = {},
): Promise<Resumable | undefined> {
  const { claimed } = await store.claimResumable({ ...claimAll, ...options });
  return claimed.find(({ record }) => record.scope === id.scope && record.key === id.key);
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
  pending: async ({ store }) => {
    const request = accepting();
    await store.reserve(request);
    return { ...request, mode: "execute" };
  },
  "failed_retryable, to be finished by a worker": async ({ store, passTime }) => {
    const request = fresh({ request: kept, onCrash: "resume" });
    const held = await lease(store, request);
    await store.settle(held, { ...release, resumeAfterMs: 0, retentionMs: shortMs });
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

/** What is pushed comes soon, but not at once. */
export async function until(isSo: () => boolean): Promise<void> {
  for (const _ of rounds()) {
    if (isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
