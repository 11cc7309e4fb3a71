import { offerPending } from "../../core/at-once.ts";
import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { StoreError } from "../../core/errors.ts";
import type { Outbox } from "../../core/outbox.ts";
import { type Pending, promised } from "../../core/pending.ts";
import type { RecordId, UnknownRecord } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
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
  PhaseCommit,
  Reading,
  ReapCounts,
  RecordPage,
  RenewAnswer,
  Reservation,
  ReserveRequest,
  Resolution,
  ResolveAnswer,
  ResumableClaim,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
  TransactAnswer,
  UnknownCounts,
  Unwatch,
  WatchOptions,
} from "../../core/store.ts";
import { BustListeners } from "../bust-listeners.ts";
import { Watchers } from "../watchers.ts";
import { arrayLiteral } from "./arrays.ts";
import { bust, bustedName, bustGeneration, everythingBusted } from "./busting.ts";
import { type Calls, gatheredCalls, plainCalls, type Seams } from "./calls.ts";
import type { Database } from "./database.ts";
import { list } from "./listing.ts";
import { PostgresNotes } from "./notes.ts";
import { checkedOptions, type PostgresStoreOptions } from "./options.ts";
import { PostgresOutbox } from "./outbox.ts";
import { PartitionReaper } from "./partitions.ts";
import { listenerOf, owningSession, type Push } from "./push.ts";
import { Queries } from "./queries.ts";
import { BatchReaper, type Reaper } from "./reaping.ts";
import { type ReadRow, recordOf } from "./rows.ts";
import type { SessionHooks, Sessions } from "./session.ts";
import { reserveInPartitions } from "./statements/partitions.ts";
import * as statements from "./statements/records.ts";
import { channel, recordName } from "./statements/sql.ts";
import { forgetTenant, unknownCounts } from "./tenants.ts";
import { transact } from "./transact.ts";
import { audit, claimResumable, claimUnknown, resolve, sweep } from "./upkeep.ts";

export class PostgresStore<Tx> implements Store<Tx> {
  readonly name = "postgres";
  readonly capabilities: Capabilities;
  readonly outbox: Outbox;
  readonly notes: PostgresNotes;
  readonly watch?: (id: RecordId, wake: () => void, options?: WatchOptions) => Promise<Unwatch>;
  readonly onBusted?: (listener: BustListener) => BustNames;
  readonly bustGeneration?: () => Promise<BustGeneration>;
  readonly onOwnershipLost?: (lost: () => void) => void;
  readonly #database: Database<Tx>;
  readonly #queries: Queries;
  readonly #calls: Calls;
  readonly #reaper: Reaper;
  readonly #partitioned: boolean;
  readonly #watchers = new Watchers();
  readonly #bustListeners = new BustListeners();
  readonly #lost = new Set<() => void>();
  /** Present with `lock: "advisory"`: every reservation is made in its name. */
  readonly #owner: Sessions | undefined;
  readonly #push: Push | undefined;

  constructor(database: Database<Tx>, options: PostgresStoreOptions, seams: Seams = {}) {
    const { lock, listen, partitioned, groupCommit } = checkedOptions(options);
    this.#database = database;
    this.#partitioned = partitioned;
    this.#queries = new Queries(database);
    this.notes = new PostgresNotes(this.#queries);
    const reserveStatement = partitioned ? reserveInPartitions : statements.reserve;
    const callsOf = groupCommit ? gatheredCalls : plainCalls;
    this.#calls = callsOf(this.#queries, reserveStatement, { ...seams, partitioned });
    this.#reaper = partitioned ? new PartitionReaper(database) : new BatchReaper(this.#queries);
    const hooks: SessionHooks = {
      heard: (payload) => this.#hear(payload),
      opened: () => this.#bustListeners.listening(),
      ended: () => this.#loseSession(),
    };
    if (lock === "advisory") {
      this.#owner = owningSession(database.push, hooks);
      this.onOwnershipLost = (lost) => void this.#lost.add(lost);
    }
    const push = this.#owner ?? (listen ? listenerOf(database.push, hooks) : undefined);
    this.#push = push;
    if (push?.keepOpen !== undefined) {
      this.onBusted = (listener) => {
        this.#bustListeners.add(listener);
        push.keepOpen?.();
        return recordName;
      };
      this.bustGeneration = () => bustGeneration(this.#queries);
    }
    if (push !== undefined) this.watch = (id, wake, options) => this.#watch(push, id, wake, options);
    this.outbox = new PostgresOutbox(this.#queries, push && { push, watchers: this.#watchers });
    this.capabilities = {
      transactions: true,
      push: push !== undefined,
      storeClock: true,
      durability: "server",
      responseBytesMax,
      listing: "latest-first",
    };
  }

  static {
    offerPending(PostgresStore.prototype.reserve, function (this: PostgresStore<unknown>, request) {
      return this.#reserve(request);
    });
    offerPending(PostgresStore.prototype.settle, function (this: PostgresStore<unknown>, lease, settlement) {
      return this.#calls.settle(lease, settlement);
    });
  }

  reserve(request: ReserveRequest): Promise<Reservation> {
    return promised(() => this.#reserve(request));
  }

  #reserve(request: ReserveRequest): Promise<Reservation> | Pending<Reservation> {
    if (this.#owner === undefined) {
      const tells = request.waits === true && this.#push?.isHeard === true;
      return this.#calls.reserve({ request, session: null, tells });
    }
    return this.#reserveAs(this.#owner, request);
  }

  async #reserveAs(owner: Sessions, request: ReserveRequest): Promise<Reservation> {
    const session = await owner.ready();
    const reservation = await promised(() =>
      this.#calls.reserve({ request, session: session.number, tells: false }),
    );
    if (reservation.kind === "execute" && !session.isAlive) {
      await this.#giveBack(reservation.lease, request);
      throw new StoreError("the session that was to own this execution has ended: nothing was executed");
    }
    return reservation;
  }

  settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return promised(() => this.#calls.settle(lease, settlement));
  }

  renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    return this.#calls.renew(leases, leaseMs);
  }

  advance(lease: Lease, step: Advance): Promise<RenewAnswer> {
    return this.#calls.advance(lease, step);
  }

  transact<T>(
    lease: Lease,
    work: (tx: Tx) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<TransactAnswer<T>> {
    return transact(this.#database, lease, work, commit);
  }

  async read(id: RecordId): Promise<Reading> {
    const row = await this.#queries.one<ReadRow>(statements.read, [id.scope, id.key]);
    return { record: recordOf(id, row), now: row.now };
  }

  async exist(ids: readonly RecordId[]): Promise<readonly boolean[]> {
    const scopes = arrayLiteral(ids.map(({ scope }) => scope));
    const keys = arrayLiteral(ids.map(({ key }) => key));
    const rows = await this.#queries.all<{ readonly place: number }>(statements.existing, [scopes, keys]);
    const places = new Set(rows.map(({ place }) => place));
    return ids.map((_, index) => places.has(index + 1));
  }

  sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    return sweep(this.#queries, { ...options, isListed: this.#partitioned });
  }

  claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    return claimResumable(this.#queries, options);
  }

  claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    return claimUnknown(this.#queries, options);
  }

  resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    return resolve(this.#queries, id, fence, resolution, by);
  }

  bust(id: RecordId, said: Bust): Promise<BustAnswer> {
    return bust(this.#queries, id, said);
  }

  list(query: ListQuery): Promise<RecordPage> {
    return list(this.#queries, query, { partitioned: this.#partitioned });
  }

  audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    return audit(this.#queries, query);
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    const counts = await this.#reaper.reap(options);
    await this.notes.reap(options.limit);
    return counts;
  }

  forgetTenant(options: ForgetOptions): Promise<ForgetCounts> {
    return forgetTenant(this.#queries, options);
  }

  unknownCounts(): Promise<UnknownCounts> {
    return unknownCounts(this.#queries);
  }

  async close(): Promise<void> {
    await this.#push?.close();
  }

  async #watch(push: Push, id: RecordId, wake: () => void, options: WatchOptions = {}): Promise<Unwatch> {
    const watched = watcherId(recordName(id));
    const unwatch = this.#watchers.add(watched, wake);
    if (options.isTold) return Object.assign(unwatch, { isRunning: !this.#watchers.wasHeard(watched) });
    try {
      // Heard before it is asked for: a notification between the two would be lost.
      await push.ready();
      const parameters = [id.scope, id.key];
      const { running } = await this.#queries.call<{ running: boolean | null }>(statements.watch, parameters);
      return Object.assign(unwatch, { isRunning: running === true });
    } catch (error) {
      unwatch();
      throw error;
    }
  }

  /** Nothing was executed under this lease: saying so spares the key a reconciliation. */
  async #giveBack(lease: Lease, { retentionMs, mode, request }: ReserveRequest): Promise<void> {
    const reason = "the session that was to own this execution ended before it began";
    const release = { kind: "release", reason, retentionMs } as const;
    // What a worker took, or what an earlier attempt may have begun, belongs to the next worker.
    const isForWorker = mode === "claim" || (lease.fence > 1 && request !== undefined);
    const settlement = isForWorker ? { ...release, resumeAfterMs: 0 } : release;
    await this.settle(lease, settlement).catch(() => {});
  }

  #hear(payload: string): void {
    const busted = bustedName(payload);
    if (payload === everythingBusted) this.#bustListeners.startOver();
    else if (busted === undefined) this.#watchers.wakeAndRemember(watcherId(payload));
    else this.#bustListeners.busted(busted);
  }

  /** Nobody owns anything without an owning session, and nobody hears without any. */
  #loseSession(): void {
    this.#bustListeners.interrupted();
    for (const lost of this.#lost) lost();
  }
}

/**
 * A body is one parameter of one message, which Postgres takes up to 1 GiB, as hexadecimal text from some drivers; and
 * both sides hold it in memory more than once. Far below that, and far above any answer of an API.
 */
const responseBytesMax = 64 * 1024 * 1024;

/** Those who wait are found by the name that a notification carries. */
function watcherId(name: string): RecordId {
  return { scope: channel, key: name };
}
