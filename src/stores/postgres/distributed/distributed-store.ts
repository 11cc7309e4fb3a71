import type { AuditEntry, AuditQuery } from "../../../core/audit.ts";
import type { Outbox } from "../../../core/outbox.ts";
import type { RecordId, UnknownRecord } from "../../../core/record.ts";
import type { StoredResponse } from "../../../core/response.ts";
import type {
  Advance,
  Bust,
  BustAnswer,
  Capabilities,
  ClaimOptions,
  Expiry,
  ForgetCounts,
  ForgetOptions,
  HeartbeatAnswer,
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
} from "../../../core/store.ts";
import type { Database } from "../database.ts";
import { list } from "./listing.ts";
import { DistributedNotes } from "./notes.ts";
import { DistributedOutbox } from "./outbox.ts";
import { Records } from "./records.ts";
import { reserve } from "./reserving.ts";
import { advance, renew, settle } from "./settling.ts";
import { records as statements } from "./statements.ts";
import { forgetTenant, unknownCounts } from "./tenants.ts";
import { transact } from "./transact.ts";
import { audit, bust, claimResumable, claimUnknown, reap, resolve, sweep } from "./upkeep.ts";

/** Records in an engine that speaks the Postgres protocol: see `engine` of the options. */
export class DistributedStore<Tx> implements Store<Tx> {
  readonly name = "postgres";
  readonly capabilities: Capabilities = {
    transactions: true,
    push: false,
    storeClock: true,
    durability: "server",
    // Some engines limit a row, or what a transaction writes, to a few MiB.
    responseBytesMax: 1024 * 1024,
    listing: "latest-first",
  };
  readonly outbox: Outbox;
  readonly notes: DistributedNotes;
  readonly #database: Database<Tx>;
  readonly #records: Records;

  constructor(database: Database<Tx>) {
    this.#database = database;
    this.#records = new Records(database as Database);
    this.notes = new DistributedNotes(this.#records);
    this.outbox = new DistributedOutbox(this.#records);
  }

  reserve(request: ReserveRequest): Promise<Reservation> {
    return reserve(this.#records, request);
  }

  settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return settle(this.#records, lease, settlement);
  }

  renew(leases: readonly Lease[], leaseMs: number): Promise<readonly HeartbeatAnswer[]> {
    return renew(this.#records, leases, leaseMs);
  }

  advance(lease: Lease, step: Advance): Promise<RenewAnswer> {
    return advance(this.#records, lease, step);
  }

  transact<T>(
    lease: Lease,
    work: (tx: Tx) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<TransactAnswer<T>> {
    return transact(this.#database, lease, work, commit);
  }

  async read(id: RecordId): Promise<Reading> {
    const found = await this.#records.find(id);
    if (found !== undefined) return { record: found.record, now: found.now };
    const [time] = await this.#records.all<{ now: number }>(statements.now);
    return { record: undefined, now: time?.now ?? 0 };
  }

  sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    return sweep(this.#records, options);
  }

  claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    return claimResumable(this.#records, options);
  }

  claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    return claimUnknown(this.#records, options);
  }

  resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    return resolve(this.#records, id, { fence, resolution, by });
  }

  bust(id: RecordId, said: Bust): Promise<BustAnswer> {
    return bust(this.#records, id, said);
  }

  list(query: ListQuery): Promise<RecordPage> {
    return list(this.#records, query);
  }

  audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    return audit(this.#records, query);
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    const counts = await reap(this.#records, options);
    await this.notes.reap(options.limit);
    return counts;
  }

  forgetTenant(options: ForgetOptions): Promise<ForgetCounts> {
    return forgetTenant(this.#records, options);
  }

  unknownCounts(): Promise<UnknownCounts> {
    return unknownCounts(this.#records);
  }

  /** Nothing was opened: the pool is the user's. */
  async close(): Promise<void> {}
}
