import type { RecordId } from "../core/record.ts";
import type { StoredResponse } from "../core/response.ts";
import type { StoredRequest } from "../core/stored-request.ts";
import type { Execution, ExecutionPolicy } from "./execution.ts";

/** A request that wants to be executed at most once. */
export interface Arrival extends RecordId {
  readonly fingerprint: string;
  readonly policy: ExecutionPolicy;
  /** The name of the route or flow, by which reconciliation finds whom to ask. */
  readonly route?: string | undefined;
  /** What a worker needs to execute it again; left out where it is not kept. */
  readonly request?: StoredRequest | undefined;
  /** A worker asks: what was accepted is to be executed now. */
  readonly isClaim?: boolean;
}

/** What has to happen with an arriving request: the one thing that a caller of the engine switches on. */
export type Verdict =
  | { readonly kind: "execute"; readonly execution: Execution }
  | { readonly kind: "replay"; readonly response: StoredResponse; readonly expiresAt: number }
  | { readonly kind: "inFlight"; readonly retryAfterMs: number }
  | { readonly kind: "accepted"; readonly retryAfterMs: number }
  /** A worker came for a request that is not there. */
  | { readonly kind: "absent" }
  | { readonly kind: "mismatch" }
  | { readonly kind: "unknown"; readonly retryAfterMs: number }
  /** The store did not answer, and the route fails closed. */
  | { readonly kind: "storeDown" }
  /** The store did not answer, and the route chose to run without protection. */
  | { readonly kind: "unprotected" };

/** How soon a client may ask again about a request that is under way: most handlers take less. */
export const inFlightRetryAfterMs = 1000;
