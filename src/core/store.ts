import type { IdempotencyRecord, OnCrash, RecordId } from "./record.ts";
import type { StoredResponse } from "./response.ts";

/**
 * What every store can do. All of it is safe to call from any number of processes at once, and all times are the
 * store's own. A call that cannot be carried out rejects, and the engine then runs nothing.
 */
export interface Store {
  readonly name: string;
  readonly capabilities: Capabilities;

  /** The one atomic verb that answers every arriving request. */
  reserve(request: ReserveRequest): Promise<Reservation>;

  /** Ends a lease. Only the holder of the current fence can; anybody else is told that it lost. */
  settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer>;

  /** Extends leases, all in one round trip; answers in the order of the leases. */
  renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]>;

  /** Looks without touching. */
  read(id: RecordId): Promise<Reading>;

  /** Ends up to `limit` executions whose owner is gone, each as its `onCrash` says. */
  sweep(options: { readonly limit: number }): Promise<SweepCounts>;

  /** Removes, or marks, up to `limit` records past their retention. Never one that is not settled. */
  reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts>;

  /**
   * Calls `wake` soon after the record may have changed. Present where `capabilities.push` says so. A wake-up may be
   * missed or may come for nothing: whoever waits also polls, only more slowly.
   */
  watch?(id: RecordId, wake: () => void): Promise<Unwatch>;

  /**
   * Calls `lost` when every lease that this process holds has ended at once, before a heartbeat would learn it: the
   * session that owned them is gone.
   */
  onOwnershipLost?(lost: () => void): void;

  /** Gives back what the store itself opened; a pool that the user passed in stays open. */
  close(): Promise<void>;
}

/** What a store can promise: data, so that a feature that needs more refuses when it is constructed. */
export interface Capabilities {
  /** A business write and the record can commit together. */
  readonly transactions: boolean;
  /** Waiters are woken instead of polling. */
  readonly push: boolean;
  /** One clock decides on leases, whatever the processes' clocks say. */
  readonly storeClock: boolean;
  /** What the records outlive: nothing, a crash of this machine, or what the server they live on survives. */
  readonly durability: "none" | "machine" | "server";
  /** The largest response body that fits into one record. */
  readonly responseBytesMax: number;
}

/**
 * The right to execute. A fence starts at 1 again when a record was deleted; `owner` is unique for each reservation, so
 * that it can never be mistaken for another's.
 */
export interface Lease extends RecordId {
  readonly fence: number;
  readonly owner: string;
}

export interface ReserveRequest extends RecordId {
  readonly fingerprint: string;
  readonly owner: string;
  readonly leaseMs: number;
  readonly retentionMs: number;
  readonly onCrash: OnCrash;
}

/** Why an execution may begin: what the record was before. */
export type ExecuteAfter = "absent" | "failed_retryable" | "crash" | "expired";

export type Reservation =
  | { readonly kind: "execute"; readonly lease: Lease; readonly after: ExecuteAfter }
  | { readonly kind: "replay"; readonly response: StoredResponse; readonly expiresAt: number }
  | { readonly kind: "inFlight"; readonly retryAfterMs: number }
  | { readonly kind: "pending" }
  | { readonly kind: "mismatch" }
  | { readonly kind: "unknown"; readonly retryAfterMs: number; readonly discovered: boolean };

export type Settlement =
  | { readonly kind: "complete"; readonly response: StoredResponse; readonly retentionMs: number }
  /** Proven not executed: the next request may try. */
  | { readonly kind: "release"; readonly reason: string; readonly retentionMs: number }
  /** May have been executed: for reconciliation to find out. */
  | { readonly kind: "suspend"; readonly reason: string; readonly reconcileAfterMs: number };

/** `settled` is also the answer to the same settlement told twice by the same lease. */
export type SettleAnswer =
  | { readonly kind: "settled"; readonly expiresAt: number }
  | { readonly kind: "lost" };

export type RenewAnswer = "held" | "lost";

/** A record as it is now, on the store's clock. */
export interface Reading {
  readonly record: IdempotencyRecord | undefined;
  readonly now: number;
}

/** `delete` removes expired records, `soft` keeps them as `expired`, without their response, for audit. */
export type Expiry = "delete" | "soft";

export interface SweepCounts {
  readonly unknown: number;
  readonly retryable: number;
}

export interface ReapCounts {
  readonly deleted: number;
  readonly expired: number;
}

export type Unwatch = () => void;
