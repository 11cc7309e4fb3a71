import { answerOf, decide, isAnswer } from "../../core/decide.ts";
import { StoreError } from "../../core/errors.ts";
import type { IdempotencyRecord, RecordId } from "../../core/record.ts";
import type {
  Capabilities,
  Expiry,
  Lease,
  Reading,
  ReapCounts,
  RenewAnswer,
  Reservation,
  ReserveRequest,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
} from "../../core/store.ts";
import {
  crashed,
  crashReason,
  crashReconcileAfterMs,
  reserved,
  settled,
  settledStates,
} from "../../core/transition.ts";
import type { SqliteDatabase } from "./driver.ts";
import { GroupCommit } from "./group-commit.ts";
import { openPrepared } from "./open.ts";
import { moment, recordOf, rowOf } from "./row.ts";
import { prepareStatements, type Statements } from "./statements.ts";

export type { SqliteDatabase, SqliteStatement, SqliteValue } from "./driver.ts";

export interface SqliteStoreOptions {
  /** Milliseconds since 1970; tests pass their own. All processes on one file must agree on it. */
  readonly clock?: () => number;
  /**
   * `full`, the default, waits for the disk at every write: what was acknowledged survives a power loss. `normal`
   * survives a crash of the process, and may lose the last moments at a power loss.
   */
  readonly synchronous?: "full" | "normal";
}

/**
 * Records in an SQLite file: durable on one machine, for any number of its processes, without a server. The file, its
 * folder and its tables are made when they are missing.
 *
 * A connection of your own is put into WAL mode, under the `synchronous` setting chosen here and a busy timeout of two
 * seconds, and stays open when the store is closed. Do not leave a transaction open on it across an `await`: what
 * Latchkey has to write meanwhile is refused.
 *
 * @example
 * ```ts
 * const latchkey = createLatchkey({ store: sqliteStore("./data/latchkey.db"), tenant: "single" });
 * ```
 */
export function sqliteStore(database: string | SqliteDatabase, options: SqliteStoreOptions = {}): Store {
  return new SqliteStore(database, options);
}

class SqliteStore implements Store {
  readonly name = "sqlite";
  readonly capabilities: Capabilities = {
    transactions: true,
    // SQLite tells nobody in another process that something changed, so whoever waits has to ask.
    push: false,
    storeClock: true,
    durability: "machine",
    responseBytesMax,
  };
  readonly #clock: () => number;
  readonly #closesDatabase: boolean;
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
      statements: prepareStatements(opened),
      commits: new GroupCommit(opened),
    };
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    // Most duplicates need nothing written, and are answered without waiting for anybody's transaction.
    const decision = decide(this.#get(request)?.record, request, this.#clock());
    return isAnswer(decision) ? answerOf(decision) : this.#write(() => this.#reserve(request));
  }

  /** Decides again, because the record may have changed before this transaction began. */
  #reserve(request: ReserveRequest): Reservation {
    const now = this.#clock();
    const record = this.#get(request)?.record;
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
        this.#put(crashed(decision.record, now), null);
        return { kind: "unknown", retryAfterMs: crashReconcileAfterMs, discovered: true };
      default:
        return decision satisfies never;
    }
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return this.#write(() => {
      const entry = this.#get(lease);
      if (entry === undefined || entry.record.fence !== lease.fence || entry.lastOwner !== lease.owner) {
        return { kind: "lost" };
      }
      const { record } = entry;
      if (record.state === "in_progress") {
        const next = settled(record, settlement, this.#clock());
        this.#put(next, lease.owner);
        return { kind: "settled", expiresAt: moment(next.expiresAt) };
      }
      // The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
      return record.state === settledStates[settlement.kind]
        ? { kind: "settled", expiresAt: record.expiresAt }
        : { kind: "lost" };
    });
  }

  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    if (leases.length === 0) return [];
    return this.#write(() => {
      const { renewLease } = this.#open().statements;
      const leaseUntil = moment(this.#clock() + leaseMs);
      return leases.map(({ scope, key, fence, owner }) =>
        renewLease.run(leaseUntil, scope, key, fence, owner) === 1 ? "held" : "lost",
      );
    });
  }

  async read(id: RecordId): Promise<Reading> {
    return { record: this.#get(id)?.record, now: this.#clock() };
  }

  async sweep({ limit }: { readonly limit: number }): Promise<SweepCounts> {
    return this.#write(() => {
      const now = this.#clock();
      const { endDeadExecutions } = this.#open().statements;
      const ended = endDeadExecutions.all(crashReason, now + crashReconcileAfterMs, now, limit);
      const unknown = ended.filter(({ state }) => state === "unknown").length;
      return { unknown, retryable: ended.length - unknown };
    });
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    const { limit, expiry } = options;
    return this.#write(() => {
      const now = this.#clock();
      const { markExpired, deleteSettled, deleteExpired } = this.#open().statements;
      if (expiry === "soft") return { deleted: 0, expired: markExpired.run(now, limit) };
      const settled = deleteSettled.run(now, limit);
      return { deleted: settled + deleteExpired.run(now, limit - settled), expired: 0 };
    });
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    if (connection === undefined) return;
    connection.commits.flush();
    this.#connection = undefined;
    if (!this.#closesDatabase) return;
    try {
      // libsql keeps the file open until its statements are garbage; a copy made before that must be complete.
      connection.database.exec("PRAGMA wal_checkpoint(PASSIVE)");
    } finally {
      connection.database.close();
    }
  }

  #get(id: RecordId): Entry | undefined {
    const row = this.#open().statements.readRecord.get(id.scope, id.key);
    return row && { record: recordOf(id, row), lastOwner: row.owner as string | null };
  }

  /** `lastOwner` is null where somebody else than the owner moves the record on: its word counts no more. */
  #put(record: IdempotencyRecord, lastOwner: string | null): void {
    this.#open().statements.writeRecord.run(...rowOf(record, lastOwner));
  }

  #write<T>(work: () => T): Promise<T> {
    return this.#open().commits.write(work);
  }

  #open(): Connection {
    if (this.#connection === undefined) {
      throw new StoreError("this SQLite store is closed: close it only after the last request was answered");
    }
    return this.#connection;
  }
}

/**
 * SQLite itself would take up to a gigabyte. But the drivers write without letting anything else in this process run:
 * 64 MiB take about a second, and 500 MiB would take so long that heartbeats are missed and leases lost.
 */
const responseBytesMax = 64 * 1024 * 1024;

interface Connection {
  readonly database: SqliteDatabase;
  readonly statements: Statements;
  readonly commits: GroupCommit;
}

interface Entry {
  readonly record: IdempotencyRecord;
  /** Who holds or held the latest lease. */
  readonly lastOwner: string | null;
}
