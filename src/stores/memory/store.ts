import { answerOf, decide, isAnswer } from "../../core/decide.ts";
import { type IdempotencyRecord, type RecordId, recordIdText } from "../../core/record.ts";
import type {
  Capabilities,
  Expiry,
  Lease,
  ReapCounts,
  RenewAnswer,
  Reservation,
  ReserveRequest,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
  Unwatch,
} from "../../core/store.ts";
import {
  crashed,
  crashReconcileAfterMs,
  expired,
  reserved,
  settled,
  settledStates,
} from "../../core/transition.ts";
import { Watchers } from "../watchers.ts";

export interface MemoryStoreOptions {
  /** Milliseconds since 1970; tests pass their own. */
  readonly clock?: () => number;
}

/**
 * Records in this process's memory: for tests and for one process that may forget. The simplest store there is, and
 * so the one to read first: every verb is `decide`, or a comparison of the fence, and then one write.
 */
export function memoryStore(options: MemoryStoreOptions = {}): Store {
  return new MemoryStore(options.clock ?? Date.now);
}

class MemoryStore implements Store {
  readonly name = "memory";
  readonly capabilities: Capabilities = {
    transactions: false,
    push: true,
    storeClock: true,
    durability: "none",
    responseBytesMax: Number.MAX_SAFE_INTEGER,
  };
  readonly #entries = new Map<string, Entry>();
  readonly #watchers = new Watchers();
  readonly #clock: () => number;

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    const now = this.#clock();
    const record = this.#get(request);
    const decision = decide(record, request, now);
    if (isAnswer(decision)) return answerOf(decision);
    switch (decision.kind) {
      case "execute": {
        const { scope, key, owner } = request;
        const { fence, after } = decision;
        this.#put(reserved(record, request, { fence, isNewUse: after === "expired" }, now), owner);
        return { kind: "execute", after, lease: { scope, key, fence, owner } };
      }
      case "suspend":
        this.#put(crashed(decision.record, now));
        return { kind: "unknown", retryAfterMs: crashReconcileAfterMs, discovered: true };
      default:
        return decision satisfies never;
    }
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    const entry = this.#entries.get(recordIdText(lease));
    if (entry === undefined || entry.record.fence !== lease.fence || entry.lastOwner !== lease.owner) {
      return { kind: "lost" };
    }
    const { record } = entry;
    if (record.state === "in_progress") {
      const next = settled(record, settlement, this.#clock());
      this.#put(next, lease.owner);
      return { kind: "settled", expiresAt: next.expiresAt };
    }
    // The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
    return record.state === settledStates[settlement.kind]
      ? { kind: "settled", expiresAt: record.expiresAt }
      : { kind: "lost" };
  }

  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    const now = this.#clock();
    return leases.map((lease) => {
      const record = this.#get(lease);
      if (record?.state !== "in_progress" || record.fence !== lease.fence || record.owner !== lease.owner)
        return "lost";
      this.#put({ ...record, leaseUntil: now + leaseMs }, lease.owner);
      return "held";
    });
  }

  async read(id: RecordId) {
    return { record: this.#get(id), now: this.#clock() };
  }

  async sweep(options: { readonly limit: number }): Promise<SweepCounts> {
    const now = this.#clock();
    let unknown = 0;
    let retryable = 0;
    for (const { record } of this.#entries.values()) {
      if (unknown + retryable >= options.limit) break;
      if (record.state !== "in_progress" || record.leaseUntil > now) continue;
      const next = crashed(record, now);
      this.#put(next);
      if (next.state === "unknown") unknown += 1;
      else retryable += 1;
    }
    return { unknown, retryable };
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    const now = this.#clock();
    let deleted = 0;
    let marked = 0;
    for (const { record } of this.#entries.values()) {
      if (deleted + marked >= options.limit) break;
      const settled = record.state === "completed" || record.state === "failed_retryable";
      if (options.expiry === "soft") {
        if (!settled || record.expiresAt > now) continue;
        this.#put(expired(record));
        marked += 1;
      } else {
        if (!(settled || record.state === "expired") || record.expiresAt > now) continue;
        this.#entries.delete(recordIdText(record));
        deleted += 1;
      }
    }
    return { deleted, expired: marked };
  }

  async watch(id: RecordId, wake: () => void): Promise<Unwatch> {
    return this.#watchers.add(id, wake);
  }

  async close(): Promise<void> {}

  #get(id: RecordId): IdempotencyRecord | undefined {
    return this.#entries.get(recordIdText(id))?.record;
  }

  /** `lastOwner` is left out where somebody else than the owner moves the record on: its word counts no more. */
  #put(record: IdempotencyRecord, lastOwner?: string): void {
    this.#entries.set(recordIdText(record), { record, lastOwner });
    this.#watchers.wake(record);
  }
}

interface Entry {
  readonly record: IdempotencyRecord;
  /** Who holds or held the latest lease. */
  readonly lastOwner: string | undefined;
}
