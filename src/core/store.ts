import type { AuditEntry, AuditQuery } from "./audit.ts";
import type { Notes } from "./notes.ts";
import type { NewMessage, Outbox } from "./outbox.ts";
import type { Progress } from "./phase.ts";
import type {
  FailedRetryableRecord,
  IdempotencyRecord,
  ListedRecord,
  OnCrash,
  PendingRecord,
  RecordId,
  RecordState,
  UnknownRecord,
} from "./record.ts";
import type { StoredResponse } from "./response.ts";
import type { StoredRequest } from "./stored-request.ts";

/**
 * What every store can do. All of it is safe to call from any number of processes at once, and all times are the
 * store's own. A call that cannot be carried out rejects, and the engine then runs nothing.
 *
 * `Tx` is what business writes go through in an atomic phase: the user's own client, within a transaction.
 */
export interface Store<Tx = unknown> {
  readonly name: string;
  readonly capabilities: Capabilities;

  /** The one atomic verb that answers every arriving request. */
  reserve(request: ReserveRequest): Promise<Reservation>;

  /** Ends a lease. Only the holder of the current fence can; anybody else is told that it lost. */
  settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer>;

  /**
   * Extends leases, all in one round trip; answers in the order of the leases. A store that has to ask for each on its
   * own answers "unknown" for those that it could not ask for, and fails only if these are all.
   */
  renew(leases: readonly Lease[], leaseMs: number): Promise<readonly HeartbeatAnswer[]>;

  /** Writes down how far an execution has come, and what its crash would mean from now on. */
  advance(lease: Lease, advance: Advance): Promise<RenewAnswer>;

  /**
   * Runs `work` in a transaction that commits, with what `commit` makes of its result, only if the lease is still
   * held. Whatever `work` throws rolls back and is thrown on. Present where `capabilities.transactions` says so.
   */
  transact?<T>(
    lease: Lease,
    work: (tx: Tx) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<TransactAnswer<T>>;

  /** What was enqueued in transactions. Present where `capabilities.transactions` says so. */
  readonly outbox?: Outbox;

  /** Looks without touching. */
  read(id: RecordId): Promise<Reading>;

  /** Which of these have a record, in whatever state. Present where that costs less than to read one after the other. */
  exist?(ids: readonly RecordId[]): Promise<readonly boolean[]>;

  /**
   * Ends up to `limit` executions whose owner is gone, each as its `onCrash` says; completes accepted requests that
   * nobody executed in time with the answer `unclaimed`; and makes unknown what is half done and past its retention.
   */
  sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts>;

  /**
   * Hands out up to `limit` requests that a worker may execute or finish now, and hides each from other workers for
   * its back-off. What has failed, and was executed or handed out `attemptsMax` times, is given up instead.
   */
  claimResumable(options: ClaimOptions): Promise<ResumableClaim>;

  /** Hands out up to `limit` unknown outcomes that may be asked about now, and hides each for its back-off. */
  claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]>;

  /** Settles an unknown outcome, or hands it to an operator; only if the record is still unknown at this fence. */
  resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer>;

  /**
   * Takes a settled record's answer away, so that the next request is executed, with the next fence. What is still
   * under way, in doubt or half done is refused.
   */
  bust(id: RecordId, bust: Bust): Promise<BustAnswer>;

  /**
   * Looks through the records, the latest first where `capabilities.listing` says so. A page may be short, or empty, and
   * not be the last: in one call a store looks at no more than it can within a moment.
   */
  list(query: ListQuery): Promise<RecordPage>;

  /** What happened off the happy path, the latest first. */
  audit(query: AuditQuery): Promise<readonly AuditEntry[]>;

  /** Removes, or marks, up to `limit` records past their retention. Never one that is not settled. */
  reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts>;

  /**
   * Removes up to `limit` of what is kept about one tenant: settled records, whatever their retention, messages that
   * nobody has to deliver any more, and audit entries. What is still under way, in doubt or half done stays and is
   * counted. Answers that were kept elsewhere are not given any more, as after a bust.
   */
  forgetTenant(options: ForgetOptions): Promise<ForgetCounts>;

  /** How many outcomes are unknown right now, and for how long. */
  unknownCounts(): Promise<UnknownCounts>;

  /** Small facts that all processes share. */
  readonly notes: Notes;

  /**
   * Calls `wake` soon after the record may have changed. Present where `capabilities.push` says so. A wake-up may be
   * missed or may come for nothing: whoever waits also polls, only more slowly.
   */
  watch?(id: RecordId, wake: () => void, options?: WatchOptions): Promise<Unwatch>;

  /**
   * Calls `lost` when every lease that this process holds has ended at once, before a heartbeat would learn it: the
   * session that owned them is gone. Present only where a lease can end before its time.
   */
  onOwnershipLost?(lost: () => void): void;

  /**
   * Tells `listener` of every bust from now on, whichever process it was said in, and answers by which names it tells
   * of records. Present only where the store also knows when a bust may have been missed.
   */
  onBusted?(listener: BustListener): BustNames;

  /**
   * What changes with every bust, in the same transaction, so that whoever keeps answers outside of this process can
   * name them by it: what was kept under another generation is not looked at any more. It was never used before, and
   * also changes where the store itself may have gone back in time. Present only where `onBusted` is.
   */
  bustGeneration?(): Promise<BustGeneration>;

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
  /**
   * What the records outlive: nothing; a crash of this machine; whatever the server was configured to outlive, which
   * may be nothing, and not every failover; or what the server they live on survives, failovers included.
   */
  readonly durability: "none" | "machine" | "configured" | "server";
  /** The largest response body that fits into one record. */
  readonly responseBytesMax: number;
  /** In which order records are listed: the latest first, or as the store happens to come by them. */
  readonly listing: "latest-first" | "unordered";
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
  /** How long after a crash reconciliation may first ask. */
  readonly reconcileAfterMs: number;
  readonly mode: ReserveMode;
  readonly route: string | undefined;
  /** Kept until the outcome is known, for a worker. */
  readonly request: StoredRequest | undefined;
  /** Whoever asks is going to watch the record if it is under way: a store may begin to tell of it at once. */
  readonly waits?: boolean;
}

/** `execute` here and now; `accept` for a worker to execute later; `claim`: this is that worker. */
export type ReserveMode = "execute" | "accept" | "claim";

/** Why an execution may begin: what the record was before. */
export type ExecuteAfter = "absent" | "pending" | "failed_retryable" | "crash" | "expired";

export type Reservation =
  | {
      readonly kind: "execute";
      readonly lease: Lease;
      readonly after: ExecuteAfter;
      /** What earlier attempts have written down. */
      readonly progress: Progress;
      /** When the first of them was reserved. */
      readonly createdAt: number;
    }
  | Replay
  | {
      readonly kind: "inFlight";
      readonly retryAfterMs: number;
      /** The store tells of its end, from before it answered: see `waits`. */
      readonly isTold?: boolean;
    }
  /** Accepted, now or before, and not executed yet. */
  | { readonly kind: "pending" }
  /** A worker came for a request that is not there. */
  | { readonly kind: "absent" }
  | { readonly kind: "mismatch" }
  | { readonly kind: "unknown"; readonly retryAfterMs: number; readonly discovered: boolean };

/** The outcome is known: this is it. */
export interface Replay {
  readonly kind: "replay";
  readonly response: StoredResponse;
  readonly expiresAt: number;
  /** How long it will still be replayed, by the store's clock: whoever keeps it must not compare that with another. */
  readonly remainingMs: number;
}

export type Settlement =
  | { readonly kind: "complete"; readonly response: StoredResponse; readonly retentionMs: number }
  /** The next request may try: nothing was executed, or what was executed is written down. */
  | {
      readonly kind: "release";
      readonly reason: string;
      readonly retentionMs: number;
      /** When a worker may finish it; left out where none has to. */
      readonly resumeAfterMs?: number;
    }
  /** May have been executed: for reconciliation to find out. */
  | { readonly kind: "suspend"; readonly reason: string; readonly reconcileAfterMs: number };

/** `settled` is also the answer to the same settlement told twice by the same lease. */
export type SettleAnswer =
  | { readonly kind: "settled"; readonly expiresAt: number }
  | { readonly kind: "lost" };

export type RenewAnswer = "held" | "lost";

/** What is unknown counts as not renewed, and is asked for again with the next heartbeat. */
export type HeartbeatAnswer = RenewAnswer | "unknown";

export interface Advance {
  readonly progress: Progress;
  readonly onCrash: OnCrash;
}

/** What commits with the business writes of one atomic phase. */
export interface PhaseCommit extends Advance {
  readonly messages: readonly NewMessage[];
  /** Completes the record in the same transaction. */
  readonly response?: Extract<Settlement, { kind: "complete" }>;
}

export type TransactAnswer<T> =
  | { readonly kind: "committed"; readonly result: T; readonly expiresAt: number }
  /** Another owner has the key: everything was rolled back. */
  | { readonly kind: "lost" };

export interface ClaimOptions {
  readonly limit: number;
  /** Hidden for `baseMs`, and twice as long each time, but never longer than `capMs`. */
  readonly backoff: { readonly baseMs: number; readonly capMs: number };
  readonly attemptsMax: number;
}

export interface ResumableClaim {
  readonly claimed: readonly Resumable[];
  /** Given up for good, or for a client to try again. */
  readonly gaveUp: number;
}

/** A request that waits for a worker. */
export interface Resumable {
  readonly record: PendingRecord | FailedRetryableRecord;
  readonly request: StoredRequest;
}

/** How an unknown outcome ends. */
export type Resolution =
  | Extract<Settlement, { kind: "complete" }>
  | (Extract<Settlement, { kind: "release" }> & {
      /** What is known by now about the external call whose outcome was not. */
      readonly progress: Progress;
    })
  /** Nobody could find out: an operator has to. The record stays unknown. */
  | { readonly kind: "escalate"; readonly reason: string };

export type ResolveAnswer =
  | { readonly kind: "resolved"; readonly expiresAt: number }
  /** The record is not unknown at this fence, any more or yet; `state` is what it is. */
  | { readonly kind: "not-unknown"; readonly state: RecordState | "absent" };

/** Somebody says that an answer must not be given any more. */
export interface Bust {
  readonly by: string;
  readonly reason: string;
  /** The attempt whose answer it is, if that is known: a later one's stays. */
  readonly attempt?: number | undefined;
}

export type BustAnswer =
  /** The record is `expired` now, without its response. */
  | { readonly kind: "busted" }
  /** There was no answer to take away, or not any more. */
  | { readonly kind: "nothing"; readonly state: "expired" | "absent" }
  /** It is still under way, in doubt or half done, and stays what it is. */
  | { readonly kind: "not-settled"; readonly state: UnsettledState }
  /** The answer is a later attempt's, or an earlier one's, and stays. */
  | { readonly kind: "another-attempt"; readonly attempt: number };

/** What a record can be while it is not settled; `failed_retryable` if it is half done or waits for a worker. */
export type UnsettledState = Exclude<RecordState, "completed" | "expired">;

/** Whoever has kept answers, and has to know which of them are not to be given any more. */
export interface BustListener {
  /** Every bust that is said after this, and before `interrupted`, is told. */
  listening(): void;
  busted(name: string): void;
  /** From now on busts may be missed, until `listening` is called again. */
  interrupted(): void;
}

/** What a record is called when its bust is told: an id is nobody's business on a channel that others may hear. */
export type BustNames = (id: RecordId) => string;

/** The generation at a moment between asking and being answered, and what the store's clock said at that moment. */
export interface BustGeneration {
  readonly generation: string;
  readonly now: number;
}

/** A record as it is now, on the store's clock. */
export interface Reading {
  readonly record: IdempotencyRecord | undefined;
  readonly now: number;
}

/** Which records somebody wants to see: those of which all of this is true. */
export interface ListQuery {
  readonly limit: number;
  /** For the next page: `next` of this one. Only the store makes and reads it. */
  readonly after?: string | undefined;
  readonly state?: RecordState | undefined;
  /** The tenant's part of a scope, as for {@link ForgetOptions}: its own scope, and all of its endpoints'. */
  readonly tenantScope?: string | undefined;
  /** The key, whole: in whichever scopes it was used. */
  readonly key?: string | undefined;
  readonly route?: string | undefined;
  /** First reserved at this time or later. */
  readonly createdFrom?: number | undefined;
  /** First reserved before this time. */
  readonly createdBefore?: number | undefined;
}

export interface RecordPage {
  readonly records: readonly ListedRecord[];
  /** Undefined if nothing comes after this page. */
  readonly next: string | undefined;
  readonly now: number;
}

/** `delete` removes expired records, `soft` keeps them as `expired`, without their response, for audit. */
export type Expiry = "delete" | "soft";

export interface SweepCounts {
  readonly unknown: number;
  readonly retryable: number;
  /** Accepted requests that nobody executed in time. */
  readonly unclaimed: number;
}

export interface ForgetOptions {
  /** The tenant's part of a scope, as `scopeOf` names it: the scope itself, and all that begin with it and a space. */
  readonly tenantScope: string;
  readonly limit: number;
}

export interface ForgetCounts {
  /** Removed by this call: records, messages and audit entries. As long as it is not 0, there may be more. */
  readonly removed: number;
  /** Records and messages that are not settled; known only when nothing else is left, and 0 until then. */
  readonly unsettled: number;
}

export interface UnknownCounts {
  /** Reconciliation still asks about these. */
  readonly waiting: number;
  /** An operator has to settle these. */
  readonly escalated: number;
  /** How long ago the oldest of them all was first reserved; 0 if there is none. */
  readonly oldestMs: number;
}

export interface ReapCounts {
  readonly deleted: number;
  readonly expired: number;
}

export interface WatchOptions {
  /** A reservation of just now has answered that the store tells of this record already. */
  readonly isTold?: boolean;
}

/** Ends a watch. */
export interface Unwatch {
  (): void;
  /** Whether the request was certainly still running when the watch began, so that nobody has to look whether it was. */
  readonly isRunning?: boolean;
}
