import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { ConfigError, StoreError } from "../../core/errors.ts";
import type { Notes } from "../../core/notes.ts";
import type { Outbox } from "../../core/outbox.ts";
import { encodeProgress } from "../../core/phase.ts";
import type { RecordId, UnknownRecord } from "../../core/record.ts";
import { encodeResponse, type StoredResponse } from "../../core/response.ts";
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
import { encodeRequest } from "../../core/stored-request.ts";
import { busting, reserving, resolving, settling } from "../moves.ts";
import { type ColumnValue, wholeMs } from "../record-row.ts";
import { audit } from "./audit.ts";
import { type Database, type MysqlConnection, padded } from "./database.ts";
import { list } from "./listing.ts";
import { MysqlNotes } from "./notes.ts";
import { MysqlOutbox } from "./outbox.ts";
import { entryOf, finding, idOf, moveLocked } from "./records.ts";
import { SnapshotIsolation } from "./snapshot-isolation.ts";
import * as statements from "./statements.ts";
import { forgetTenant, unknownCounts } from "./tenants.ts";
import { transact } from "./transact.ts";
import * as upkeep from "./upkeep.ts";

export interface MysqlStoreOptions {
  /**
   * The largest response body that is stored; larger ones are replayed as a marker. 8 MiB by default, which fits into
   * the packets (`max_allowed_packet`) and the redo log of a server with default settings.
   */
  readonly responseBytesMax?: number;
}

export class MysqlStore implements Store<MysqlConnection> {
  readonly name = "mysql";
  readonly capabilities: Capabilities;
  readonly outbox: Outbox;
  readonly notes: Notes;
  readonly #database: Database;
  readonly #isolation = new SnapshotIsolation();

  constructor(database: Database, options: MysqlStoreOptions) {
    const { responseBytesMax = defaultResponseBytesMax } = options;
    if (!Number.isSafeInteger(responseBytesMax) || responseBytesMax < 0) {
      throw new ConfigError(`responseBytesMax is ${responseBytesMax} and must be a number of bytes`);
    }
    this.capabilities = {
      transactions: true,
      // MySQL tells nobody that something changed, so whoever waits has to ask.
      push: false,
      storeClock: true,
      durability: "server",
      responseBytesMax,
      listing: "latest-first",
    };
    this.#database = database;
    this.outbox = new MysqlOutbox(this.#database);
    this.notes = new MysqlNotes(this.#database);
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    // A record that was there may be gone when it is looked at, and the other way round, but not for long.
    for (let attempt = 0; attempt < reserveAttemptsMax; attempt += 1) {
      const answer = (await this.#reserveAtOnce(request)) ?? (await this.#reserveLocked(request));
      if (answer !== undefined) return answer;
    }
    throw new StoreError(
      "a record was deleted and made again whenever it was looked at: nothing was reserved",
    );
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    if (settlement.kind !== "complete") {
      return moveLocked(this.#database, lease, (entry, now) => settling(entry, lease, settlement, now));
    }
    const { status, head, body } = encodeResponse(settlement.response);
    const [row] = await this.#database.call(statements.complete, [
      ...holding(lease),
      status,
      head,
      body,
      wholeMs(settlement.retentionMs),
    ]);
    if (row === undefined) throw new StoreError("MySQL did not say what became of a completion");
    return row.expires_at === null
      ? { kind: "lost" }
      : { kind: "settled", expiresAt: Number(row.expires_at) };
  }

  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    const answers: RenewAnswer[] = [];
    for (let start = 0; start < leases.length; start += leasesMax) {
      answers.push(...(await this.#renewSome(leases.slice(start, start + leasesMax), leaseMs)));
    }
    return answers;
  }

  async advance(lease: Lease, { progress, onCrash }: Advance): Promise<RenewAnswer> {
    const parameters = [encodeProgress(progress), onCrash, ...holding(lease)];
    if ((await this.#database.change(statements.advance, parameters)) > 0) return "held";
    return (await this.#held([lease]))[0] ?? "lost";
  }

  async transact<T>(
    lease: Lease,
    work: (tx: MysqlConnection) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<TransactAnswer<T>> {
    return transact({ database: this.#database, isolation: this.#isolation }, lease, work, commit);
  }

  async read(id: RecordId): Promise<Reading> {
    const [row] = await this.#database.call(statements.read, finding(id));
    if (row === undefined) throw new StoreError("MySQL did not say what time it is");
    return { record: row.state === null ? undefined : entryOf(id, row).record, now: Number(row.clock) };
  }

  async sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    return upkeep.sweep(this.#database, options);
  }

  async claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    return upkeep.claimResumable(this.#database, options);
  }

  async claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    return upkeep.claimUnknown(this.#database, options);
  }

  async resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    return moveLocked(this.#database, id, (entry, now) => resolving(entry, { fence, resolution, by }, now));
  }

  async bust(id: RecordId, bust: Bust): Promise<BustAnswer> {
    return moveLocked(this.#database, id, (entry, now) => busting(entry, bust, now));
  }

  async list(query: ListQuery): Promise<RecordPage> {
    return list(this.#database, query);
  }

  async audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    return audit(this.#database, query);
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    return upkeep.reap(this.#database, options);
  }

  async forgetTenant(options: ForgetOptions): Promise<ForgetCounts> {
    return forgetTenant(this.#database, options);
  }

  async unknownCounts(): Promise<UnknownCounts> {
    return unknownCounts(this.#database);
  }

  /** The pool is the user's, and there is nothing else. */
  async close(): Promise<void> {}

  /** What one round trip can do: insert what is new, and answer what needs nothing written. */
  async #reserveAtOnce(request: ReserveRequest): Promise<Reservation | undefined> {
    const [row] = await this.#database.call(statements.reserve, [...finding(request), ...newRecord(request)]);
    const isInserted = row?.inserted === 1;
    const entry = row === undefined || isInserted ? undefined : entryOf(request, row);
    const { answer, move } = reserving(entry, request, Number(row?.clock));
    return isInserted || move === undefined ? answer : undefined;
  }

  /** Undefined if the record is gone meanwhile. */
  async #reserveLocked(request: ReserveRequest): Promise<Reservation | undefined> {
    return moveLocked(this.#database, request, (entry, now) => {
      const moved = reserving(entry, request, now);
      return entry === undefined && moved.move !== undefined ? { answer: undefined } : moved;
    });
  }

  async #renewSome(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    const count = powerOfTwo(leases.length);
    const last = leases.at(-1);
    const padding = last === undefined ? [] : Array.from({ length: count - leases.length }, () => last);
    const duration = wholeMs(leaseMs);
    const renewed = await this.#database.change(statements.renew(count), [
      duration,
      duration,
      ...[...leases, ...padding].flatMap(holding),
    ]);
    return renewed === leases.length ? leases.map(() => "held") : this.#held(leases);
  }

  /** Which leases are held. */
  async #held(leases: readonly Lease[]): Promise<readonly RenewAnswer[]> {
    const { list, values } = padded(leases.map(idOf));
    const rows = await this.#database.read(statements.readHolders(list), values);
    const holders = new Map(rows.map(({ id, fence, owner }) => [hex(id), `${fence} ${owner}`]));
    return leases.map((lease) =>
      holders.get(hex(idOf(lease))) === `${lease.fence} ${lease.owner}` ? "held" : "lost",
    );
  }
}

const defaultResponseBytesMax = 8 * 1024 * 1024;

const reserveAttemptsMax = 10;

/** As many leases as one statement extends: a row lock each, which it holds for as long as it takes. */
const leasesMax = 256;

function powerOfTwo(count: number): number {
  return 2 ** Math.ceil(Math.log2(count));
}

function holding(lease: Lease): [Buffer, number, string] {
  return [idOf(lease), lease.fence, lease.owner];
}

function hex(id: ColumnValue | Buffer | undefined): string {
  return Buffer.from(id as Uint8Array).toString("hex");
}

/** What `latchkey_reserve` inserts: what `reserved` and `accepted` say of a new request in core/transition.ts. */
function newRecord(request: ReserveRequest): ColumnValue[] {
  const { mode, fingerprint, onCrash, owner, leaseMs, retentionMs, reconcileAfterMs, route } = request;
  // A worker comes for what is there, and begins nothing.
  const state = { execute: "in_progress", accept: "pending", claim: null }[mode];
  const executes = mode === "execute";
  const kept = request.request === undefined ? undefined : encodeRequest(request.request);
  return [
    state,
    fingerprint,
    executes ? 1 : 0,
    onCrash,
    executes ? owner : null,
    executes ? wholeMs(leaseMs) : null,
    wholeMs(retentionMs),
    wholeMs(reconcileAfterMs),
    route ?? null,
    kept?.head ?? null,
    kept?.body ?? null,
  ];
}
