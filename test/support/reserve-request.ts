import type { ReserveRequest } from "../../src/core/store.ts";

let sequence = 0;

/** A request for a key of its own, as the engine would make it. */
export function request(overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  sequence += 1;
  return {
    scope: "tenant",
    key: `key-${sequence}`,
    fingerprint: "v1:first",
    owner: `owner-${sequence}`,
    leaseMs: 60_000,
    retentionMs: 60_000,
    onCrash: "reconcile",
    reconcileAfterMs: 0,
    mode: "execute",
    route: undefined,
    request: undefined,
    ...overrides,
  };
}

/** The same request from somebody else. */
export function again(first: ReserveRequest, overrides: Partial<ReserveRequest> = {}): ReserveRequest {
  sequence += 1;
  return { ...first, owner: `owner-${sequence}`, ...overrides };
}
