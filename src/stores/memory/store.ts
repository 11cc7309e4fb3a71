import { randomUUID } from "node:crypto";
import { offerAtOnce } from "../../core/at-once.ts";
import { type AuditEntry, type AuditQuery, auditActors, auditReasons } from "../../core/audit.ts";
import { decideBust } from "../../core/bust.ts";
import { answerOf, decide, isAnswer } from "../../core/decide.ts";
import {
  type FailedRetryableRecord,
  type IdempotencyRecord,
  isSettled,
  listed,
  type RecordId,
  recordIdText,
  type UnknownRecord,
} from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import { tenantScopeOf } from "../../core/scope.ts";
import type {
  Advance,
  Bust,
  BustAnswer,
  BustGeneration,
  BustListener,
  BustNames,
  Capabilities,
  ClaimOptions,
  Expiry,
  ForgetCounts,
  ForgetOptions,
  Lease,
  ListQuery,
  ReapCounts,
  RecordPage,
  RenewAnswer,
  Reservation,
  ReserveRequest,
  Resolution,
  ResolveAnswer,
  Resumable,
  ResumableClaim,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
  UnknownCounts,
  Unwatch,
} from "../../core/store.ts";
import type { StoredRequest } from "../../core/stored-request.ts";
import {
  abandoned,
  accepted,
  backoffMs,
  crashed,
  crashReason,
  expired,
  gaveUp,
  reserved,
  resolved,
  settled,
  settledStates,
  unclaimed,
} from "../../core/transition.ts";
import { BustListeners } from "../bust-listeners.ts";
import { comesAfter, cursorAt, isAskedFor, latestFirst } from "../listing.ts";
import { Watchers } from "../watchers.ts";
import { Entries, type Entry } from "./entries.ts";
import { MemoryNotes } from "./notes.ts";

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
    listing: "latest-first",
  };
  readonly #entries = new Entries();
  #audit: AuditEntry[] = [];
  #audited = 0;
  readonly #watchers = new Watchers();
  readonly #bustListeners = new BustListeners();
  readonly #clock: () => number;
  #generation = randomUUID();
  readonly notes: MemoryNotes;

  constructor(clock: () => number) {
    this.#clock = clock;
    this.notes = new MemoryNotes(clock);
    // Nothing comes between this store and those who listen to it.
    this.#bustListeners.listening();
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    return this.#reserve(request);
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return this.#settle(lease, settlement);
  }

  static {
    offerAtOnce(MemoryStore.prototype.reserve, function (this: MemoryStore, request) {
      return this.#reserve(request);
    });
    offerAtOnce(MemoryStore.prototype.settle, function (this: MemoryStore, lease, settlement) {
      return this.#settle(lease, settlement);
    });
  }

  #reserve(request: ReserveRequest): Reservation {
    const now = this.#clock();
    const entry = this.#entries.get(request);
    const record = entry?.record;
    const decision = decide(record, request, now);
    if (isAnswer(decision)) return answerOf(decision);
    switch (decision.kind) {
      case "execute": {
        const { scope, key, owner } = request;
        const { fence, after, progress, createdAt } = decision;
        const isNewUse = after === "expired";
        const next = reserved(record, request, { fence, isNewUse }, now);
        if (after === "failed_retryable" || after === "crash") this.#auditAgain(record, next, owner);
        this.#put(next, {
          lastOwner: owner,
          request: isNewUse ? request.request : keptRequest(entry, request),
        });
        return { kind: "execute", after, progress, createdAt, lease: { scope, key, fence, owner } };
      }
      case "accept": {
        const next = accepted(record, request, decision, now);
        if (!decision.isNewUse) this.#auditAgain(record, next, request.owner);
        this.#put(next, { request: request.request });
        return { kind: "pending" };
      }
      case "suspend":
        this.#move(decision.record, crashed(decision.record, now, { isRequestKept: false }), {
          by: request.owner,
          reason: crashReason,
        });
        return { kind: "unknown", retryAfterMs: decision.record.reconcileAfterMs, discovered: true };
      default:
        return decision satisfies never;
    }
  }

  #settle(lease: Lease, settlement: Settlement): SettleAnswer {
    const entry = this.#entries.get(lease);
    if (entry === undefined || entry.record.fence !== lease.fence || entry.lastOwner !== lease.owner) {
      return { kind: "lost" };
    }
    const { record } = entry;
    if (record.state === "in_progress") {
      const next = settled(record, settlement, this.#clock());
      if (settlement.kind === "complete") {
        // In its place: this is on the path of every request, and finding it once more is not free.
        entry.record = next;
        entry.request = undefined;
        this.#watchers.wake(next);
      } else {
        this.#write(record, next, { by: lease.owner, reason: settlement.reason });
        this.#put(next, { lastOwner: lease.owner, request: entry.request });
      }
      return { kind: "settled", expiresAt: next.expiresAt };
    }
    // The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
    return record.state === settledStates[settlement.kind]
      ? { kind: "settled", expiresAt: record.expiresAt }
      : { kind: "lost" };
  }

  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    const now = this.#clock();
    return leases.map((lease) => this.#change(lease, { leaseUntil: now + leaseMs }));
  }

  async advance(lease: Lease, { progress, onCrash }: Advance): Promise<RenewAnswer> {
    return this.#change(lease, { progress, onCrash });
  }

  async read(id: RecordId) {
    return { record: this.#get(id), now: this.#clock() };
  }

  async sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    const now = this.#clock();
    const counts = { unknown: 0, retryable: 0, unclaimed: 0 };
    const by = auditActors.sweeper;
    let left = options.limit;
    for (const { record, request } of this.#entries) {
      if (left === 0) break;
      if (record.state === "in_progress" && record.leaseUntil <= now) {
        const next = crashed(record, now, { isRequestKept: request !== undefined });
        this.#move(record, next, { by, reason: crashReason });
        counts[next.state === "unknown" ? "unknown" : "retryable"] += 1;
      } else if (record.state === "pending" && record.expiresAt <= now) {
        this.#move(record, unclaimed(record, options.unclaimed, now), { by, reason: auditReasons.unclaimed });
        counts.unclaimed += 1;
      } else if (isAbandoned(record, now)) {
        this.#move(record, abandoned(record, now), { by, reason: auditReasons.abandoned });
        counts.unknown += 1;
      } else continue;
      left -= 1;
    }
    return counts;
  }

  async claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    const now = this.#clock();
    const claimed: Resumable[] = [];
    let givenUp = 0;
    for (const { record, request, lastOwner } of this.#entries) {
      if (claimed.length + givenUp >= options.limit) break;
      if (record.state !== "pending" && record.state !== "failed_retryable") continue;
      if (request === undefined || record.resumeAfter === undefined || record.resumeAfter > now) continue;
      if (record.state === "pending" && record.expiresAt <= now) continue;
      if (
        record.state === "failed_retryable" &&
        Math.max(record.fence, record.claims) >= options.attemptsMax
      ) {
        this.#move(record, gaveUp(record, now), {
          by: auditActors.completer,
          reason: auditReasons.gaveUp,
        });
        givenUp += 1;
        continue;
      }
      const { claims, fence } = record;
      const resumeAfter = now + backoffMs(options.backoff, fence + claims);
      const next = { ...record, claims: claims + 1, resumeAfter };
      this.#put(next, { lastOwner, request });
      claimed.push({ record: next, request });
    }
    return { claimed, gaveUp: givenUp };
  }

  async claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    const now = this.#clock();
    const claimed: UnknownRecord[] = [];
    for (const { record, ...rest } of this.#entries) {
      if (claimed.length >= options.limit) break;
      if (record.state !== "unknown" || record.escalatedAt !== undefined || record.reconcileAfter > now)
        continue;
      const { reconcileAttempts } = record;
      const next = {
        ...record,
        reconcileAttempts: reconcileAttempts + 1,
        reconcileAfter: now + backoffMs(options.backoff, reconcileAttempts),
      };
      this.#put(next, rest);
      claimed.push(next);
    }
    return claimed;
  }

  async resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    const entry = this.#entries.get(id);
    const record = entry?.record;
    if (record?.state !== "unknown" || record.fence !== fence) {
      return { kind: "not-unknown", state: record?.state ?? "absent" };
    }
    const isRequestKept = entry?.request !== undefined;
    const next = resolved(record, resolution, this.#clock(), { isRequestKept });
    const reason = resolution.kind === "complete" ? auditReasons.foundOut : resolution.reason;
    this.#move(record, next, { by, reason });
    return { kind: "resolved", expiresAt: next.expiresAt };
  }

  async bust(id: RecordId, { by, reason, attempt }: Bust): Promise<BustAnswer> {
    const record = this.#get(id);
    const answer = decideBust(record, attempt);
    if (answer.kind === "busted" && record !== undefined) {
      this.#move(record, expired(record), { by, reason });
      this.#generation = randomUUID();
      this.#bustListeners.busted(recordIdText(id));
    }
    return answer;
  }

  onBusted(listener: BustListener): BustNames {
    this.#bustListeners.add(listener);
    return recordIdText;
  }

  async bustGeneration(): Promise<BustGeneration> {
    return { generation: this.#generation, now: this.#clock() };
  }

  async list(query: ListQuery): Promise<RecordPage> {
    const { limit, after } = query;
    const matching = [...this.#entries]
      .map(({ record }) => listed(record))
      .filter((record) => isAskedFor(record, query))
      .sort(latestFirst);
    const from = after === undefined ? matching : matching.filter((record) => comesAfter(record, after));
    const records = from.slice(0, limit);
    const last = records.at(-1);
    return {
      records,
      next: last === undefined || from.length <= limit ? undefined : cursorAt(last),
      now: this.#clock(),
    };
  }

  async audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    const { scope, key, limit, before } = query;
    return this.#audit
      .filter((entry) => scope === undefined || entry.scope === scope)
      .filter((entry) => key === undefined || entry.key === key)
      .filter((entry) => before === undefined || Number(entry.id) < Number(before))
      .reverse()
      .slice(0, limit);
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    this.notes.reap();
    const now = this.#clock();
    let deleted = 0;
    let marked = 0;
    for (const { record } of this.#entries) {
      if (deleted + marked >= options.limit) break;
      if (!isSettled(record) || record.expiresAt > now) continue;
      if (options.expiry === "delete") {
        this.#entries.delete(record);
        deleted += 1;
      } else if (record.state !== "expired") {
        this.#put(expired(record), {});
        marked += 1;
      }
    }
    return { deleted, expired: marked };
  }

  async forgetTenant({ tenantScope, limit }: ForgetOptions): Promise<ForgetCounts> {
    const own = [...this.#entries].filter(({ record }) => isOf(tenantScope, record));
    const forgotten = own.filter(({ record }) => isSettled(record)).slice(0, limit);
    for (const { record } of forgotten) this.#entries.delete(record);
    const auditLimit = limit - forgotten.length;
    const entries = new Set(this.#audit.filter((entry) => isOf(tenantScope, entry)).slice(0, auditLimit));
    this.#audit = this.#audit.filter((entry) => !entries.has(entry));
    const removed = forgotten.length + entries.size;
    if (forgotten.length > 0) {
      this.#generation = randomUUID();
      this.#bustListeners.startOver();
    }
    return { removed, unsettled: removed === 0 ? own.length : 0 };
  }

  async unknownCounts(): Promise<UnknownCounts> {
    const counts = { waiting: 0, escalated: 0, oldestMs: 0 };
    const now = this.#clock();
    for (const { record } of this.#entries) {
      if (record.state !== "unknown") continue;
      counts[record.escalatedAt === undefined ? "waiting" : "escalated"] += 1;
      counts.oldestMs = Math.max(counts.oldestMs, now - record.createdAt);
    }
    return counts;
  }

  async watch(id: RecordId, wake: () => void): Promise<Unwatch> {
    return this.#watchers.add(id, wake);
  }

  async close(): Promise<void> {}

  #get(id: RecordId): IdempotencyRecord | undefined {
    return this.#entries.get(id)?.record;
  }

  /** Changes a record while its lease is held. */
  #change(lease: Lease, change: Partial<Advance & { readonly leaseUntil: number }>): RenewAnswer {
    const entry = this.#entries.get(lease);
    const record = entry?.record;
    if (record?.state !== "in_progress" || record.fence !== lease.fence || record.owner !== lease.owner)
      return "lost";
    this.#put({ ...record, ...change }, { lastOwner: lease.owner, request: entry?.request });
    return "held";
  }

  /** Somebody else than the owner moves the record on, off the happy path: the owner's word counts no more. */
  #move(from: IdempotencyRecord, to: IdempotencyRecord, why: Why): void {
    this.#write(from, to, why);
    const isOver = to.state === "completed" || to.state === "expired";
    this.#put(to, { request: isOver ? undefined : this.#entries.get(to)?.request });
  }

  #auditAgain(from: IdempotencyRecord | undefined, to: IdempotencyRecord, by: string): void {
    if (from === undefined) return;
    const reason = from.state === "in_progress" ? auditReasons.takenOver : auditReasons.retried;
    this.#write(from, to, { by, reason });
  }

  #write(from: IdempotencyRecord, to: IdempotencyRecord, why: Why): void {
    const { scope, key, fence } = to;
    const id = String(++this.#audited);
    this.#audit.push({ id, at: this.#clock(), scope, key, fence, from: from.state, to: to.state, ...why });
    if (this.#audit.length > auditEntriesMax) this.#audit.shift();
  }

  #put(record: IdempotencyRecord, { lastOwner, request }: Partial<Omit<Entry, "record">>): void {
    this.#entries.set(record, { record, lastOwner, request });
    this.#watchers.wake(record);
  }
}

/** A process that keeps its records in memory must not fill it with what happened long ago. */
const auditEntriesMax = 10_000;

type Why = Pick<AuditEntry, "by" | "reason">;

/** Half done, past its retention, and nobody is going to go on with it. */
function isAbandoned(record: IdempotencyRecord, now: number): record is FailedRetryableRecord {
  return (
    record.state === "failed_retryable" &&
    record.progress.length > 0 &&
    record.resumeAfter === undefined &&
    record.expiresAt <= now
  );
}

function isOf(tenantScope: string, { scope }: RecordId): boolean {
  return tenantScopeOf(scope) === tenantScope;
}

function keptRequest(entry: Entry | undefined, request: ReserveRequest): StoredRequest | undefined {
  return entry?.request ?? request.request;
}
