import { offerPending } from "../../core/at-once.ts";
import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { answerOf, decide, isAnswer } from "../../core/decide.ts";
import { StoreError } from "../../core/errors.ts";
import type { Notes } from "../../core/notes.ts";
import type { Outbox } from "../../core/outbox.ts";
import { type Pending, promised } from "../../core/pending.ts";
import type { RecordId, UnknownRecord } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import type {
  Advance,
  Bust,
  BustAnswer,
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
} from "../../core/store.ts";
import { moment } from "../record-row.ts";
import type { SqliteDatabase } from "./driver.ts";
import { GroupCommit, type Verb } from "./group-commit.ts";
import * as lifecycle from "./lifecycle.ts";
import { Listing } from "./listing.ts";
import { type NoteStatements, prepareNoteStatements, SqliteNotes } from "./notes.ts";
import { openPrepared } from "./open.ts";
import { enqueue, SqliteOutbox } from "./outbox.ts";
import { type OutboxStatements, prepareOutboxStatements } from "./outbox-statements.ts";
import { Records } from "./records.ts";
import { emptyLog, overwriting } from "./secure-delete.ts";
import * as tenants from "./tenants.ts";
import { transact } from "./transact.ts";
import * as upkeep from "./upkeep.ts";

export interface SqliteStoreOptions {
  /** Milliseconds since 1970; tests pass their own. All processes on one file must agree on it. */
  readonly clock?: () => number;
  /**
   * `full`, the default, waits for the disk at every write: what was acknowledged survives a power loss. `normal`
   * survives a crash of the process, and may lose the last moments at a power loss.
   */
  readonly synchronous?: "full" | "normal";
  /**
   * `true`, the default: whatever has to be written in one turn of the event loop is written in one transaction, which
   * waits for the disk once. `false`: every write has a transaction of its own, so that nothing waits for what came
   * beside it. Under load that is several times slower; it is for comparison, and for whoever reads the file's log.
   */
  readonly groupCommit?: boolean;
}

export class SqliteStore implements Store<SqliteDatabase> {
  readonly name = "sqlite";
  readonly capabilities: Capabilities = {
    transactions: true,
    // SQLite tells nobody in another process that something changed, so whoever waits has to ask.
    push: false,
    storeClock: true,
    durability: "machine",
    responseBytesMax,
    listing: "latest-first",
  };
  readonly notes: Notes;
  readonly #outbox: SqliteOutbox;
  readonly #clock: () => number;
  readonly #closesDatabase: boolean;
  readonly #reserving: Verb<ReserveRequest, Reservation> = {
    // Decides in the transaction, because the record may have changed before it began.
    alone: (request) => lifecycle.reserve(this.#open().records, request, this.#clock()),
    atOnce: (request) => lifecycle.reserveNew(this.#open().records, request, this.#clock()),
    together: (requests) => lifecycle.reserveAll(this.#open().records, requests, this.#clock()),
    withoutLock: (request) => this.#answer(request),
  };
  readonly #completing: Verb<lifecycle.CompleteCall, SettleAnswer> = {
    alone: ({ lease, settlement }) =>
      lifecycle.settle(this.#open().records, lease, settlement, this.#clock()),
    atOnce: (call) => lifecycle.complete(this.#open().records, call, this.#clock()),
    together: (calls) => lifecycle.settleAll(this.#open().records, calls, this.#clock()),
  };
  /** Undefined once the store is closed. */
  #connection: Connection | undefined;

  constructor(database: string | SqliteDatabase, options: SqliteStoreOptions) {
    this.#clock = options.clock ?? Date.now;
    this.#closesDatabase = typeof database === "string";
    const opened = openPrepared(database, {
      synchronous: options.synchronous ?? "full",
      now: this.#clock(),
    });
    this.#connection = {
      database: opened,
      records: new Records(opened),
      listing: new Listing(opened),
      messages: prepareOutboxStatements(opened),
      notes: prepareNoteStatements(opened),
      tenants: tenants.prepareTenantStatements(opened),
      commits: new GroupCommit(opened, { shares: options.groupCommit ?? true }),
    };
    this.#outbox = new SqliteOutbox({
      now: this.#clock,
      write: (work) =>
        this.#write(({ messages, records }) => work(messages, (entry) => records.writeAudit(entry))),
      read: (look) => look(this.#open().messages),
    });
    this.notes = new SqliteNotes({
      now: this.#clock,
      write: (work) => this.#write(({ notes, database }) => overwriting(database, () => work(notes))),
      read: (look) => look(this.#open().notes),
      // A log cannot be emptied within a transaction.
      scrub: () => this.#open().commits.exclusively(() => emptyLog(this.#open().database)),
    });
  }

  get outbox(): Outbox {
    return this.#outbox;
  }

  static {
    offerPending(SqliteStore.prototype.reserve, function (this: SqliteStore, request) {
      return this.#reserve(request);
    });
    offerPending(SqliteStore.prototype.settle, function (this: SqliteStore, lease, settlement) {
      return this.#settle(lease, settlement);
    });
  }

  reserve(request: ReserveRequest): Promise<Reservation> {
    return promised(() => this.#reserve(request));
  }

  settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return promised(() => this.#settle(lease, settlement));
  }

  #reserve(request: ReserveRequest): Reservation | Pending<Reservation> {
    const { commits } = this.#open();
    // Duplicates need nothing written, and are answered without waiting for a transaction. Where one is about to begin
    // anyway, most requests are new, and looking for them first would take as long as writing them down.
    const answer = commits.isAboutToShare ? undefined : this.#answer(request);
    return answer ?? commits.ask(this.#reserving, request);
  }

  #settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> | Pending<SettleAnswer> {
    if (settlement.kind === "complete")
      return this.#open().commits.ask(this.#completing, { lease, settlement });
    return this.#write(({ records }) => lifecycle.settle(records, lease, settlement, this.#clock()));
  }

  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    if (leases.length === 0) return [];
    return this.#write(({ records }) => {
      const leaseUntil = moment(this.#clock() + leaseMs);
      return leases.map(({ scope, key, fence, owner }) =>
        records.statements.renewLease.run(leaseUntil, scope, key, fence, owner) === 1 ? "held" : "lost",
      );
    });
  }

  async advance(lease: Lease, advance: Advance): Promise<RenewAnswer> {
    return this.#write(({ records }) => {
      const advanced = lifecycle.advance(records, lease, advance, this.#clock());
      return advanced === undefined ? "lost" : "held";
    });
  }

  async transact<T>(
    lease: Lease,
    work: (tx: SqliteDatabase) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<TransactAnswer<T>> {
    const { commits } = this.#open();
    const committed = await commits.exclusively(() => {
      const connection = this.#open();
      return transact(connection.database, {
        work,
        prepare: commit,
        write: (phase, result) => {
          const now = this.#clock();
          const record = lifecycle.advance(connection.records, lease, phase, now);
          if (record === undefined) return undefined;
          enqueue(connection.messages, phase.messages, now);
          return { result, expiresAt: moment(record.expiresAt), messages: phase.messages.length };
        },
      });
    });
    if (committed === undefined) return { kind: "lost" };
    const { result, expiresAt, messages } = committed;
    if (messages > 0) this.#outbox.wake();
    return { kind: "committed", result, expiresAt };
  }

  async read(id: RecordId): Promise<Reading> {
    return { record: this.#open().records.get(id)?.record, now: this.#clock() };
  }

  async sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    return this.#write(({ records }) => upkeep.sweep(records, options, this.#clock()));
  }

  async claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    return this.#write(({ records }) => upkeep.claimResumable(records, options, this.#clock()));
  }

  async claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    return this.#write(({ records }) => upkeep.claimUnknown(records, options, this.#clock()));
  }

  async resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    return this.#write(({ records }) =>
      lifecycle.resolve(records, { id, fence, resolution, by }, this.#clock()),
    );
  }

  async bust(id: RecordId, bust: Bust): Promise<BustAnswer> {
    return this.#write(({ records }) => lifecycle.bust(records, { id, ...bust }, this.#clock()));
  }

  async list(query: ListQuery): Promise<RecordPage> {
    return { ...(await this.#open().listing.page(query)), now: this.#clock() };
  }

  async audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    return this.#open().records.readAudit(query);
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    return this.#write(({ database, records, notes }) => {
      const now = this.#clock();
      overwriting(database, () => notes.deleteForgotten.run(now, options.limit));
      return upkeep.reap(records, options, now);
    });
  }

  async forgetTenant(options: ForgetOptions): Promise<ForgetCounts> {
    return this.#write((connection) => tenants.forgetTenant(connection.tenants, options));
  }

  async unknownCounts(): Promise<UnknownCounts> {
    return tenants.unknownCounts(this.#open().tenants, this.#clock());
  }

  async close(): Promise<void> {
    // What was asked for before is written down first.
    await this.#connection?.commits.exclusively(() => {
      const database = this.#connection?.database;
      this.#connection = undefined;
      if (database === undefined || !this.#closesDatabase) return;
      try {
        // libsql keeps the file open until its statements are garbage; a copy made before that must be complete.
        database.exec("PRAGMA wal_checkpoint(PASSIVE)");
      } finally {
        database.close();
      }
    });
  }

  /** What can be told without writing anything down. */
  #answer(request: ReserveRequest): Reservation | undefined {
    const decision = decide(this.#open().records.get(request)?.record, request, this.#clock());
    return isAnswer(decision) ? answerOf(decision) : undefined;
  }

  async #write<T>(work: (connection: Connection) => T): Promise<T> {
    return this.#open().commits.write(() => work(this.#open()));
  }

  #open(): Connection {
    if (this.#connection === undefined) throw closedError();
    return this.#connection;
  }
}

function closedError(): StoreError {
  return new StoreError("this SQLite store is closed: close it only after the last request was answered");
}

/**
 * SQLite itself would take up to a gigabyte. But the drivers write without letting anything else in this process run:
 * 64 MiB take about a second, and 500 MiB would take so long that heartbeats are missed and leases lost.
 */
const responseBytesMax = 64 * 1024 * 1024;

interface Connection {
  readonly database: SqliteDatabase;
  readonly records: Records;
  readonly listing: Listing;
  readonly messages: OutboxStatements;
  readonly notes: NoteStatements;
  readonly tenants: tenants.TenantStatements;
  readonly commits: GroupCommit;
}
