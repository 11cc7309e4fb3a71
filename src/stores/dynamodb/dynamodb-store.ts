import type { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { ConfigError } from "../../core/errors.ts";
import type { Notes } from "../../core/notes.ts";
import type { Outbox } from "../../core/outbox.ts";
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
} from "../../core/store.ts";
import { Forgetting } from "../forgetting.ts";
import { readAudit } from "./audit.ts";
import { Bodies, checkedPartBytes } from "./bodies.ts";
import type { Context } from "./context.ts";
import { forgetEverywhere } from "./forgetting.ts";
import * as leases from "./leases.ts";
import { list } from "./listing.ts";
import { DynamoDbNotes } from "./notes.ts";
import { DynamoDbOutbox } from "./outbox.ts";
import { Records } from "./records.ts";
import { reserve } from "./reserving.ts";
import { Table } from "./table.ts";
import { transact } from "./transact.ts";
import * as upkeep from "./upkeep.ts";
import { wholeOf } from "./whole.ts";
import type { DynamoWrites } from "./writes.ts";

export interface DynamoDbStoreOptions {
  /** The name of the table that `createTable` made. */
  readonly table: string;
  /**
   * By how much the clocks of the processes may differ, 1 second if nothing is said: another's lease counts as lapsed
   * only so long after its end.
   */
  readonly clockSkewMs?: number;
  /**
   * What becomes of response bodies that are larger than `partBytes`. `split`, the default, keeps up to 16 MiB in items
   * of their own, written before the record that refers to them. `refuse` keeps every body in its record, and none above
   * 360 KiB: a route's `responseBytesMax` must not be above that.
   */
  readonly largeBodies?: "split" | "refuse";
  /** How large a body may be within its record, and each part of one that is not: 64 KiB if nothing is said. */
  readonly partBytes?: number;
  /** Milliseconds since 1970; tests pass their own. */
  readonly clock?: () => number;
}

export class DynamoDbStore implements Store<DynamoWrites> {
  readonly name = "dynamodb";
  readonly capabilities: Capabilities;
  readonly outbox: Outbox;
  readonly notes: Notes;
  readonly #forgetting: Forgetting;
  readonly #context: Context;

  constructor(client: DynamoDBClient, options: DynamoDbStoreOptions) {
    const { table, clockSkewMs, clock, largeBodies, partBytes } = checked(options);
    const records = new Records(new Table(client, table));
    const bodies = new Bodies(records.table, { largeBodies, partBytes });
    this.#context = { records, bodies, now: clock, clockSkewMs };
    this.outbox = new DynamoDbOutbox(this.#context);
    this.notes = new DynamoDbNotes(this.#context);
    this.#forgetting = new Forgetting((pass) => forgetEverywhere(this.#context, pass));
    this.capabilities = {
      transactions: true,
      // Streams could tell, but somebody has to read them: whoever waits has to ask.
      push: false,
      storeClock: false,
      durability: "server",
      responseBytesMax: bodies.responseBytesMax,
      listing: "unordered",
    };
  }

  reserve(request: ReserveRequest): Promise<Reservation> {
    return reserve(this.#context, request);
  }

  settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return leases.settle(this.#context, lease, settlement);
  }

  renew(held: readonly Lease[], leaseMs: number): Promise<readonly HeartbeatAnswer[]> {
    return leases.renew(this.#context, held, leaseMs);
  }

  advance(lease: Lease, step: Advance): Promise<RenewAnswer> {
    return leases.advance(this.#context, lease, step);
  }

  transact<T>(
    lease: Lease,
    work: (tx: DynamoWrites) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<TransactAnswer<T>> {
    return transact(this.#context, lease, work, commit);
  }

  async read(id: RecordId): Promise<Reading> {
    let entry = await this.#context.records.get(id);
    for (;;) {
      const now = this.#context.now();
      if (entry === undefined) return { record: undefined, now };
      const whole = await wholeOf(this.#context, entry, now);
      if (whole.kind === "whole") return { record: whole.record, now };
      entry = whole.entry;
    }
  }

  sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    return upkeep.sweep(this.#context, options);
  }

  claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    return upkeep.claimResumable(this.#context, options);
  }

  claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    return upkeep.claimUnknown(this.#context, options);
  }

  resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    return upkeep.resolve(this.#context, { id, fence, resolution, by });
  }

  bust(id: RecordId, bust: Bust): Promise<BustAnswer> {
    return upkeep.bust(this.#context, id, bust);
  }

  list(query: ListQuery): Promise<RecordPage> {
    return list(this.#context, query);
  }

  audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    return readAudit(this.#context.records.table, query);
  }

  reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    return upkeep.reap(this.#context, options);
  }

  forgetTenant(options: ForgetOptions): Promise<ForgetCounts> {
    return this.#forgetting.forget(options);
  }

  unknownCounts(): Promise<UnknownCounts> {
    return upkeep.unknownCounts(this.#context);
  }

  async close(): Promise<void> {}
}

function checked(options: DynamoDbStoreOptions): Required<DynamoDbStoreOptions> {
  const { table, clockSkewMs = 1_000, largeBodies = "split", clock = Date.now } = options;
  if (typeof table !== "string" || !/^[\w.-]{3,255}$/.test(table)) {
    throw new ConfigError(`table is "${table}" and must be the name of the table that createTable made`);
  }
  if (!(clockSkewMs >= 0) || !Number.isFinite(clockSkewMs)) {
    throw new ConfigError(`clockSkewMs is ${clockSkewMs} and must not be below 0`);
  }
  if (largeBodies !== "split" && largeBodies !== "refuse") {
    throw new ConfigError(`largeBodies is "${largeBodies}" and must be "split" or "refuse"`);
  }
  const partBytes = checkedPartBytes(options.partBytes ?? 64 * 1024);
  return { table, clockSkewMs, largeBodies, partBytes, clock };
}
