import type { StoredResponse } from "../core/response.ts";

/** How a handler ended. */
export type Outcome =
  | { readonly kind: "answered"; readonly response: StoredResponse }
  /** It threw, and `response` is what its client is told. */
  | { readonly kind: "threw"; readonly error: unknown; readonly response: StoredResponse };

/** How an execution ended, as the store confirmed it. */
export type Settled =
  | {
      readonly kind: "stored";
      readonly response: StoredResponse;
      readonly expiresAt: number;
      /** What retries get: less than the first client, where some of it was redacted. */
      readonly kept: StoredResponse;
    }
  | { readonly kind: "released" }
  | { readonly kind: "suspended"; readonly retryAfterMs: number }
  /** Another owner has the key: this outcome counts for nothing. */
  | { readonly kind: "lost" }
  | { readonly kind: "timedOut" }
  /** The store did not confirm. The outcome is kept and told again until it does. */
  | { readonly kind: "storeDown" };

/** What the phases of a handler say about its execution; known to whoever runs them. */
export interface Flow {
  /**
   * What a failure means by now: nothing has begun, what has begun can be gone on with, or an external call may have
   * happened and nobody knows.
   */
  readonly failureMeans: "nothing-begun" | "resumable" | "unknown";
  /** The store did not say whether a phase was committed, so nobody can say what was done. */
  readonly isInDoubt: boolean;
  /** How the handler differs from the one that earlier attempts ran; undefined as long as it does not. */
  readonly divergence: string | undefined;
  /** Recorded phases that the handler has not come to. */
  readonly unvisited: number;
}
