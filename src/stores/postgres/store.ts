import { answerOf, decide, isAnswer } from "../../core/decide.ts";
import { ConfigError, StoreError } from "../../core/errors.ts";
import type { RecordId } from "../../core/record.ts";
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
  Unwatch,
} from "../../core/store.ts";
import { crashReason, crashReconcileAfterMs, settledStates } from "../../core/transition.ts";
import { Watchers } from "../watchers.ts";
import { type Database, databaseOf, type Parameter, type PostgresClient, type Row } from "./database.ts";
import { storeError } from "./errors.ts";
import { listenerOf, owningSession, type Push } from "./push.ts";
import {
  arrayLiteral,
  durationMs,
  type RecordRow,
  type ReserveRow,
  recordOf,
  type SettledRow,
  settlementParameters,
} from "./rows.ts";
import type { Session, Sessions } from "./session.ts";
import * as statements from "./statements.ts";

export type { PostgresClient } from "./database.ts";
export { migrate } from "./migrate.ts";

export interface PostgresStoreOptions {
  /**
   * How others learn that a process has died: when its leases run out (`lease`), or at once, because one long-lived
   * connection of each process holds an advisory lock that names it (`advisory`; needs a `pg` pool and a direct
   * connection, not a transaction pool).
   */
  readonly lock?: "lease" | "advisory";
  /**
   * Wakes waiting duplicates by LISTEN/NOTIFY, on one long-lived connection; with `advisory` they are woken anyway.
   * Close the store before the pool: the pool waits for that connection.
   */
  readonly listen?: boolean;
}

/**
 * Records in your own Postgres, 14 or newer, through your own client. Run `migrate` once before.
 *
 * With the default options it needs nothing that outlives a statement, so it works behind a transaction pool.
 *
 * @example
 * ```ts
 * const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
 * await migrate(pool);
 * const latchkey = createLatchkey({ store: postgresStore(pool), tenant: "single" });
 * ```
 */
export function postgresStore(client: PostgresClient, options: PostgresStoreOptions = {}): Store {
  return new PostgresStore(client, options);
}

class PostgresStore implements Store {
  readonly name = "postgres";
  readonly capabilities: Capabilities;
  readonly watch?: (id: RecordId, wake: () => void) => Promise<Unwatch>;
  readonly #database: Database;
  readonly #watchers = new Watchers();
  readonly #lost = new Set<() => void>();
  /** Present with `lock: "advisory"`: every reservation is made in its name. */
  readonly #owner: Sessions | undefined;
  readonly #push: Push | undefined;

  constructor(client: PostgresClient, options: PostgresStoreOptions) {
    const { lock, listen } = checked(options);
    this.#database = databaseOf(client);
    const heard = (name: string) => this.#watchers.wake(watcherId(name));
    if (lock === "advisory") {
      this.#owner = owningSession(this.#database.push, { heard, ended: () => this.#loseOwnership() });
    }
    this.#push = this.#owner ?? (listen ? listenerOf(this.#database.push, { heard }) : undefined);
    const push = this.#push;
    if (push !== undefined) this.watch = (id, wake) => this.#watch(push, id, wake);
    this.capabilities = {
      transactions: true,
      push: push !== undefined,
      storeClock: true,
      durability: "server",
      responseBytesMax,
    };
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    const session = await this.#owner?.ready();
    for (let attempt = 0; attempt < reserveAttemptsMax; attempt++) {
      const reservation = await this.#tryToReserve(request, session);
      if (reservation === undefined) continue;
      if (reservation.kind === "execute" && session?.isAlive === false) {
        await this.#giveBack(reservation.lease, request);
        throw new StoreError("the session that was to own this execution has ended: nothing was executed");
      }
      return reservation;
    }
    throw new StoreError(`the record changed during each of ${reserveAttemptsMax} attempts to reserve it`);
  }

  /** Undefined when another request changed the record meanwhile. */
  async #tryToReserve(
    request: ReserveRequest,
    session: Session | undefined,
  ): Promise<Reservation | undefined> {
    const { scope, key, owner } = request;
    const parameters = [
      scope,
      key,
      request.fingerprint,
      request.onCrash,
      owner,
      session?.number ?? null,
      durationMs(request.leaseMs),
      durationMs(request.retentionMs),
    ];
    const row = await this.#one<ReserveRow>(statements.reserve, parameters);
    if (row.inserted) return { kind: "execute", after: "absent", lease: { scope, key, fence: 1, owner } };
    const record = recordOf(request, row);
    if (record === undefined) return undefined;
    const decision = decide(record, request, row.now);
    if (isAnswer(decision)) return answerOf(decision);
    switch (decision.kind) {
      case "execute": {
        const { fence, after } = decision;
        const found = [record.fence, record.state, after === "expired"];
        const taken = await this.#query(statements.takeOver, [...parameters, ...found]);
        if (taken.length === 0) return undefined;
        return { kind: "execute", after, lease: { scope, key, fence, owner } };
      }
      case "suspend": {
        const suspended = await this.#query(statements.suspendCrashed, [
          scope,
          key,
          decision.record.fence,
          decision.record.owner,
          crashReason,
          crashReconcileAfterMs,
          statements.recordName(request),
        ]);
        if (suspended.length === 0) return undefined;
        return { kind: "unknown", retryAfterMs: crashReconcileAfterMs, discovered: true };
      }
      default:
        return decision satisfies never;
    }
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    const held = [lease.scope, lease.key, lease.fence, lease.owner];
    const state = settledStates[settlement.kind];
    const [settled] = await this.#query<{ expires: number }>(statements.settle, [
      ...held,
      state,
      ...settlementParameters(settlement),
      statements.recordName(lease),
    ]);
    if (settled !== undefined) return { kind: "settled", expiresAt: settled.expires };
    // The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
    const [before] = await this.#query<SettledRow>(statements.settledBefore, held);
    return before?.state === state ? { kind: "settled", expiresAt: before.expires } : { kind: "lost" };
  }

  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    if (leases.length === 0) return [];
    const rows = await this.#query<{ held: boolean }>(statements.renew, [
      arrayLiteral(leases.map((lease) => lease.scope)),
      arrayLiteral(leases.map((lease) => lease.key)),
      arrayLiteral(leases.map((lease) => lease.fence)),
      arrayLiteral(leases.map((lease) => lease.owner)),
      durationMs(leaseMs),
    ]);
    return rows.map(({ held }) => (held ? "held" : "lost"));
  }

  async read(id: RecordId): Promise<Reading> {
    const row = await this.#one<RecordRow>(statements.read, [id.scope, id.key]);
    return { record: recordOf(id, row), now: row.now };
  }

  async sweep(options: { readonly limit: number }): Promise<SweepCounts> {
    const { unknown, retryable } = await this.#one<{ unknown: number; retryable: number }>(statements.sweep, [
      options.limit,
      crashReason,
      crashReconcileAfterMs,
    ]);
    return { unknown, retryable };
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    const deletes = options.expiry === "delete";
    const statement = deletes ? statements.reapDeleting : statements.reapMarking;
    const { reaped } = await this.#one<{ reaped: number }>(statement, [options.limit]);
    return deletes ? { deleted: reaped, expired: 0 } : { deleted: 0, expired: reaped };
  }

  onOwnershipLost(lost: () => void): void {
    this.#lost.add(lost);
  }

  async close(): Promise<void> {
    await this.#push?.close();
  }

  async #watch(push: Push, id: RecordId, wake: () => void): Promise<Unwatch> {
    const unwatch = this.#watchers.add(watcherId(statements.recordName(id)), wake);
    try {
      // Heard before it is asked for: a notification between the two would be lost.
      await push.ready();
      await this.#query(statements.watch, [id.scope, id.key]);
    } catch (error) {
      unwatch();
      throw error;
    }
    return unwatch;
  }

  /** Nothing was executed under this lease: saying so spares the key a reconciliation. */
  async #giveBack(lease: Lease, { retentionMs }: ReserveRequest): Promise<void> {
    const reason = "the session that was to own this execution ended before it began";
    await this.settle(lease, { kind: "release", reason, retentionMs }).catch(() => {});
  }

  #loseOwnership(): void {
    for (const lost of this.#lost) lost();
  }

  async #one<R extends Row>(text: string, parameters: readonly Parameter[]): Promise<R> {
    const [row] = await this.#query<R>(text, parameters);
    if (row === undefined) throw new StoreError("a statement that always answers did not");
    return row;
  }

  async #query<R extends Row>(text: string, parameters: readonly Parameter[]): Promise<readonly R[]> {
    try {
      return await this.#database.query<R>(text, parameters);
    } catch (error) {
      throw storeError(error);
    }
  }
}

/**
 * A body is one parameter of one message, which Postgres takes up to 1 GiB, as hexadecimal text from some drivers; and
 * both sides hold it in memory more than once. Far below that, and far above any answer of an API.
 */
const responseBytesMax = 64 * 1024 * 1024;

/** Each attempt but the first means that another request changed the record meanwhile. Two suffice almost always. */
const reserveAttemptsMax = 10;

/** Those who wait are found by the name that a notification carries. */
function watcherId(name: string): RecordId {
  return { scope: statements.channel, key: name };
}

function checked(options: PostgresStoreOptions): Required<PostgresStoreOptions> {
  const { lock = "lease", listen = false } = options;
  if (lock !== "lease" && lock !== "advisory") {
    throw new ConfigError(`lock is "${lock}" and must be "lease" or "advisory"`);
  }
  if (typeof listen !== "boolean") throw new ConfigError(`listen is "${listen}" and must be true or false`);
  return { lock, listen };
}
