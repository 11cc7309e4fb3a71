import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import type { Notes } from "../../core/notes.ts";
import type { Outbox } from "../../core/outbox.ts";
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
  Unwatch,
  WatchOptions,
} from "../../core/store.ts";
import { decodeEntry, encodeEntry, type Place, placeOf, saidBy, wantedName } from "./entry.ts";
import { type Execution, Executions } from "./executions.ts";
import { Front, type FrontLink } from "./front.ts";
import { Pledges, pledgeKept, pledgeMsMax, wantedMs } from "./pledges.ts";
import { type Known, Standing } from "./standing.ts";
import { type Clocks, systemClocks } from "./truth-clock.ts";

/** A store that others may answer for. */
export type Truth<Tx> = Store<Tx> & Required<Pick<Store<Tx>, "onBusted" | "bustGeneration">>;

export interface LayeredSettings {
  readonly prefix: string;
  readonly frontTimeoutMs: number;
  readonly entryBytesMax: number;
  readonly inFlight: boolean;
}

export class LayeredStore<Tx> implements Store<Tx> {
  readonly name: string;
  readonly capabilities: Capabilities;
  readonly transact?: NonNullable<Store<Tx>["transact"]>;
  readonly outbox?: Outbox;
  readonly notes: Notes;
  readonly exist?: NonNullable<Store["exist"]>;
  readonly watch?: (id: RecordId, wake: () => void, options?: WatchOptions) => Promise<Unwatch>;
  readonly onOwnershipLost?: (lost: () => void) => void;
  readonly #truth: Truth<Tx>;
  readonly #settings: LayeredSettings;
  readonly #clocks: Clocks;
  readonly #standing: Standing;
  readonly #front: Front;
  readonly #executions = new Executions();
  readonly #pledges: Pledges | undefined;

  constructor(truth: Truth<Tx>, link: FrontLink, settings: LayeredSettings, clocks: Clocks = systemClocks) {
    const { prefix, frontTimeoutMs, inFlight } = settings;
    this.name = `layered ${truth.name}`;
    this.capabilities = truth.capabilities;
    this.notes = truth.notes;
    this.#truth = truth;
    this.#settings = settings;
    this.#clocks = clocks;
    this.#front = new Front(link, clocks, { prefix, timeoutMs: frontTimeoutMs });
    this.#standing = new Standing(() => truth.bustGeneration(), clocks);
    if (inFlight) {
      const [front, standing, executions] = [this.#front, this.#standing, this.#executions];
      this.#pledges = new Pledges({ front, standing, executions, clocks });
    }
    const { transact, outbox, exist, watch, onOwnershipLost } = truth;
    if (transact !== undefined) this.transact = this.#transactIn(transact.bind(truth) as typeof transact);
    if (outbox !== undefined) this.outbox = outbox;
    if (exist !== undefined) this.exist = exist.bind(truth);
    if (watch !== undefined) this.watch = watch.bind(truth);
    if (onOwnershipLost !== undefined) this.onOwnershipLost = onOwnershipLost.bind(truth);
    truth.onBusted(this.#standing);
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    // Workers, and requests that are kept for them, are rare, and looked after by the truth.
    const known = request.mode === "execute" ? this.#standing.current() : undefined;
    if (known === undefined) return this.#reserveInTruth(request, undefined);
    const place = placeOf(known.generation, request);
    const bytes = await this.#front.get(place.name);
    const answer = bytes && this.#answerOf(place, bytes);
    return answer ?? this.#reserveInTruth(request, place);
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    const execution = this.#executions.find(lease);
    if (execution === undefined) return this.#truth.settle(lease, settlement);
    await this.#endOf(execution);
    const known = this.#standing.current();
    const answer = await this.#truth.settle(lease, settlement);
    this.#executions.forget(execution);
    if (settlement.kind === "complete" && answer.kind === "settled") {
      this.#keepOutcome(known, execution, settlement, answer.expiresAt);
    }
    return answer;
  }

  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly HeartbeatAnswer[]> {
    const executions = leases.map((lease) => this.#executions.find(lease));
    for (const execution of executions) {
      if (execution === undefined) continue;
      this.#executions.renewing(execution);
      // The lease would end before what was pledged does.
      if (leaseMs < pledgeMsMax) await pledgeKept(execution, this.#clocks);
    }
    const now = this.#clocks.steady();
    const leaseEndsAt = this.#leaseEnd(leaseMs);
    const answers = await this.#truth.renew(leases, leaseMs);
    for (const [index, execution] of executions.entries()) {
      if (execution === undefined) continue;
      if (answers[index] === "held") this.#executions.renewed(execution, { now, leaseMs, leaseEndsAt });
      else if (answers[index] === "lost") this.#executions.forget(execution);
    }
    return answers;
  }

  bust(id: RecordId, said: Bust): Promise<BustAnswer> {
    return this.#beginAnew(this.#truth.bust(id, said));
  }

  /**
   * Nobody can tell whose an entry in Redis is, so that all of them are removed: those of the other tenants are of an
   * earlier generation too, and of no use any more. Once, when the truth has nothing left.
   */
  async forgetTenant(options: ForgetOptions): Promise<ForgetCounts> {
    const counts = await this.#beginAnew(this.#truth.forgetTenant(options));
    if (counts.removed === 0) await this.#front.clear();
    return counts;
  }

  onBusted(listener: BustListener): BustNames {
    return this.#truth.onBusted(listener);
  }

  bustGeneration(): Promise<BustGeneration> {
    return this.#truth.bustGeneration();
  }

  advance(lease: Lease, step: Advance): Promise<RenewAnswer> {
    return this.#truth.advance(lease, step);
  }

  read(id: RecordId): Promise<Reading> {
    return this.#truth.read(id);
  }

  sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    return this.#truth.sweep(options);
  }

  claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    return this.#truth.claimResumable(options);
  }

  claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    return this.#truth.claimUnknown(options);
  }

  resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    return this.#truth.resolve(id, fence, resolution, by);
  }

  list(query: ListQuery): Promise<RecordPage> {
    return this.#truth.list(query);
  }

  audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    return this.#truth.audit(query);
  }

  reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    return this.#truth.reap(options);
  }

  unknownCounts(): Promise<UnknownCounts> {
    return this.#truth.unknownCounts();
  }

  async close(): Promise<void> {
    this.#pledges?.close();
    await Promise.all([this.#front.close(), this.#truth.close()]);
  }

  /**
   * What Redis still holds was kept under another generation, and is never looked at again. The news is on its way to every
   * process, and whoever said it here knows already.
   */
  #beginAnew<T>(said: Promise<T>): Promise<T> {
    return said.finally(() => this.#standing.busted());
  }

  /** What the front knows; undefined if that is nothing, or if it is not to be believed. */
  #answerOf(place: Place, bytes: Buffer): Reservation | undefined {
    const entry = decodeEntry(place, bytes);
    // A bust may have been heard while the front was asked.
    const known = this.#standing.current();
    if (entry === undefined || known?.generation !== place.generation) return undefined;
    return saidBy(entry, known.clock.latest());
  }

  /** `place` is where the answer belongs, of a generation that was known before the truth is asked. */
  async #reserveInTruth(request: ReserveRequest, place: Place | undefined): Promise<Reservation> {
    const leaseEndsAt = this.#leaseEnd(request.leaseMs);
    const reservation = await this.#truth.reserve(request);
    switch (reservation.kind) {
      case "execute":
        this.#executions.begin(reservation.lease, request, { now: this.#clocks.steady(), leaseEndsAt });
        this.#pledges?.watch();
        return reservation;
      case "replay":
        if (place !== undefined) this.#keep(place, reservation);
        return reservation;
      case "inFlight":
        if (place !== undefined && this.#pledges !== undefined) {
          this.#front.put(wantedName(place), wanted, wantedMs);
        }
        return reservation;
      case "pending":
      case "absent":
      case "mismatch":
      case "unknown":
        return reservation;
      default:
        return reservation satisfies never;
    }
  }

  #transactIn(transact: NonNullable<Store<Tx>["transact"]>): NonNullable<Store<Tx>["transact"]> {
    return async <T>(
      lease: Lease,
      work: (tx: Tx) => T | Promise<T>,
      commit: (result: T) => PhaseCommit,
    ): Promise<TransactAnswer<T>> => {
      const execution = this.#executions.find(lease);
      if (execution === undefined) return transact(lease, work, commit);
      let known: Known | undefined;
      let completion: PhaseCommit["response"];
      // Nothing is pledged meanwhile, so that the transaction hardly ever has to be held open for a pledge.
      execution.endings += 1;
      const answer = await transact(
        lease,
        async (tx) => {
          const result = await work(tx);
          const committed = commit(result);
          completion = committed.response;
          if (completion !== undefined) await this.#endOf(execution);
          known = this.#standing.current();
          return { result, committed };
        },
        ({ committed }) => committed,
      ).finally(() => {
        execution.endings -= 1;
      });
      if (answer.kind === "lost") {
        this.#executions.forget(execution);
        return answer;
      }
      const { expiresAt } = answer;
      if (completion !== undefined) {
        this.#executions.forget(execution);
        this.#keepOutcome(known, execution, completion, expiresAt);
      }
      return { kind: "committed", result: answer.result.result, expiresAt };
    };
  }

  /** From now on the execution may end at any moment; resolves when it may. */
  #endOf(execution: Execution): Promise<void> | undefined {
    execution.endings += 1;
    execution.outcomes += 1;
    // A promise for nothing would cost every request.
    return execution.pledgedUntil === 0 ? undefined : pledgeKept(execution, this.#clocks);
  }

  /** When a lease that is asked for now ends at the earliest, on the truth's clock. */
  #leaseEnd(leaseMs: number): number | undefined {
    if (this.#pledges === undefined) return undefined;
    const earliest = this.#standing.current()?.clock.earliest();
    return earliest === undefined ? undefined : earliest + Math.min(leaseMs, leaseMsMax);
  }

  /** An outcome that was told twice may have been kept by the truth the first time, and have been another. */
  #keepOutcome(
    known: Known | undefined,
    execution: Execution,
    { response, retentionMs }: Extract<Settlement, { kind: "complete" }>,
    expiresAt: number,
  ): void {
    if (known === undefined || execution.outcomes > 1) return;
    this.#keep(placeOf(known.generation, execution), { response, expiresAt, remainingMs: retentionMs });
  }

  #keep(
    place: Place,
    answer: { readonly response: StoredResponse; readonly expiresAt: number; readonly remainingMs: number },
  ): void {
    const { response, expiresAt, remainingMs } = answer;
    if (response.kind === "full" && response.body.byteLength > this.#settings.entryBytesMax) return;
    this.#front.put(place.name, encodeEntry(place, { kind: "answer", response, expiresAt }), remainingMs);
  }
}

/** What is told of a lease is JSON, which knows nothing endless. */
const leaseMsMax = 24 * 60 * 60 * 1000;

/** That it is there says everything. */
const wanted = Buffer.from("1");
