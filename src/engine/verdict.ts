import { StoreRefusedError } from "../core/errors.ts";
import type { RecordId } from "../core/record.ts";
import type { StoredResponse } from "../core/response.ts";
import type { ExecuteAfter, ReserveMode } from "../core/store.ts";
import type { StoredRequest } from "../core/stored-request.ts";
import type { ReserveOutcome } from "./events.ts";
import type { Execution, ExecutionPolicy } from "./execution.ts";
import type { Refusal } from "./limits/options.ts";
import type { ArrivalTrace } from "./tracing.ts";

/** A request that wants to be executed at most once. */
export interface Arrival extends RecordId {
  readonly fingerprint: string;
  readonly policy: ExecutionPolicy;
  /** The name of the route or flow, by which reconciliation finds whom to ask. */
  readonly route?: string | undefined;
  /** What a worker needs to execute it again; left out where it is not kept. */
  readonly request?: StoredRequest | undefined;
  /** Who it comes from, for limits of its own; the tenant's part of the scope if it is left out. */
  readonly tenant?: string | undefined;
  /** A worker asks: what was accepted is to be executed now. */
  readonly isClaim?: boolean;
  /** It is known to have been begun: also where the route runs without a store, it is not begun again. */
  readonly isKnown?: boolean;
  /** Set by the engine's own tracing. */
  readonly trace?: ArrivalTrace;
}

/** What has to happen with an arriving request: the one thing that a caller of the engine switches on. */
export type Verdict =
  | { readonly kind: "execute"; readonly execution: Execution }
  | { readonly kind: "replay"; readonly response: StoredResponse; readonly expiresAt: number }
  | { readonly kind: "inFlight"; readonly retryAfterMs: number; readonly isTold?: boolean | undefined }
  | { readonly kind: "accepted"; readonly retryAfterMs: number }
  /** A worker came for a request that is not there. */
  | { readonly kind: "absent" }
  | { readonly kind: "mismatch" }
  | { readonly kind: "unknown"; readonly retryAfterMs: number; readonly discovered?: boolean }
  /** A new key, and its tenant has used up its limits: nothing was reserved. */
  | { readonly kind: "limited"; readonly refusal: Refusal }
  /**
   * The store did not answer, or was not asked because it is sick, and the route fails closed; or the request is known to
   * have been begun, which is no reason to execute it, whatever the route says.
   */
  | { readonly kind: "storeDown"; readonly retryAfterMs?: number | undefined; readonly isKnown?: boolean }
  /** The store did not answer, and the route chose to run without protection. */
  | { readonly kind: "unprotected" };

/** How soon a client may ask again about a request that is under way: most handlers take less. */
export const inFlightRetryAfterMs = 1000;

/** What the store is asked for. */
export function modeOf({ isClaim, policy }: Arrival): ReserveMode {
  if (isClaim) return "claim";
  return policy.onInFlight === "accept" ? "accept" : "execute";
}

const executeOutcomes: Record<ExecuteAfter, ReserveOutcome> = {
  absent: "created",
  pending: "claimed",
  failed_retryable: "failed_retry",
  crash: "takeover",
  expired: "expired_retry",
};

/** What the verdict is called in events. */
export function outcomeOf(verdict: Verdict): ReserveOutcome {
  switch (verdict.kind) {
    case "execute":
      return executeOutcomes[verdict.execution.after];
    case "replay":
      return "replay";
    case "inFlight":
      return "in_progress";
    case "accepted":
      return "accepted";
    case "absent":
      return "absent";
    case "mismatch":
      return "key_misuse";
    case "unknown":
      return "unknown";
    case "limited":
      return "limited";
    case "storeDown":
      return "store_down";
    case "unprotected":
      return "unprotected";
    default:
      return verdict satisfies never;
  }
}

/** What a store that did not answer means to the request; `error` is why, if it was asked. */
export function storeDownVerdict(
  arrival: Arrival,
  { error, retryAfterMs }: { readonly error?: unknown; readonly retryAfterMs?: number | undefined },
): Verdict {
  // The store is well. Whatever it, or what belongs to it, would not do is no reason to execute without it.
  if (error instanceof StoreRefusedError) return { kind: "storeDown", isKnown: true };
  if (arrival.isKnown) return { kind: "storeDown", isKnown: true, retryAfterMs };
  // A worker comes again by itself: what it runs without a record it would run twice.
  if (arrival.policy.onStoreDown === "open" && !arrival.isClaim) return { kind: "unprotected" };
  return { kind: "storeDown", retryAfterMs };
}

/** Where a verdict was found, if it is not the store's own answer to this request. */
export interface AnsweredFrom {
  readonly joined: boolean;
  readonly cached?: boolean;
}

export const fromCache: AnsweredFrom = { joined: false, cached: true };
export const fromFlight: AnsweredFrom = { joined: true };
