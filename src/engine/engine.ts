import { BriefTable } from "../core/brief-table.ts";
import type { RecordId } from "../core/record.ts";
import type {
  Bust,
  BustAnswer,
  Expiry,
  ForgetCounts,
  ForgetOptions,
  Reading,
  ReapCounts,
  Reservation,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
} from "../core/store.ts";
import type { BreakerReading } from "./breaker.ts";
import { DeadlinesByLimit } from "./deadlines.ts";
import { Events, type StoreVerb } from "./events.ts";
import { Execution, type ExecutionHost } from "./execution.ts";
import { Flight } from "./flight.ts";
import { join } from "./joining.ts";
import { Leases } from "./leases.ts";
import { type Leading, leadWithinLimits } from "./limits/leading.ts";
import { Limits } from "./limits/limits.ts";
import { Lookout } from "./limits/lookout.ts";
import type { EngineOptions } from "./options.ts";
import type { Settled } from "./outcome.ts";
import { type CacheTicket, ReplayCache } from "./replay-cache.ts";
import { Reserving, type ReservingHost } from "./reserving.ts";
import { type Runtime, randomName, withTheTurn } from "./runtime.ts";
import { noBreaker, StoreLine } from "./store-line.ts";
import type { Tracing } from "./tracing.ts";
import { Unheard } from "./unheard.ts";
import {
  type AnsweredFrom,
  type Arrival,
  fromCache,
  fromFlight,
  inFlightRetryAfterMs,
  modeOf,
  outcomeOf,
  storeDownVerdict,
  type Verdict,
} from "./verdict.ts";
import { waitForChange } from "./waiting.ts";

/** Reserve, execute, settle: lets exactly one execution of each request through, and tells everybody else why not. */
export class Engine {
  readonly events = new Events();
  /** Draws traces of what happens; nothing is paid for it as long as there is none. */
  tracing: Tracing | undefined;
  readonly runtime: Runtime;
  readonly #options: EngineOptions;
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #flights = new BriefTable<Flight>();
  readonly #unheard: Unheard;
  readonly #cache: ReplayCache | undefined;
  readonly limits: Limits | undefined;
  readonly #leading: Leading | undefined;
  readonly #line: StoreLine;
  readonly #reservingHost: ReservingHost;
  #isClosed = false;
  readonly #host: ExecutionHost;
  /** What the names of all reservations of this process begin with. */
  readonly #ownerPrefix: string;
  readonly #executionDeadlines: DeadlinesByLimit;
  #reservations = 0;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#store = options.store;
    this.runtime = options.runtime;
    this.#cache = options.cache && new ReplayCache(options.cache, options);
    const host = { ...options, events: this.events };
    this.#line = new StoreLine({
      ...host,
      mayTellShortly: () => !this.events.areHeard && this.tracing === undefined && this.limits === undefined,
    });
    const mayAsk = () => this.#line.breaker?.isClosed !== false;
    this.limits =
      options.limits && new Limits(options.limits, { ...host, notes: options.store.notes, mayAsk });
    this.#leading = this.limits && this.#leadingWithin(this.limits);
    this.#ownerPrefix = `${randomName(options.runtime)}-`;
    this.#executionDeadlines = new DeadlinesByLimit(options.runtime);
    this.#leases = new Leases({
      runtime: options.runtime,
      leaseMs: options.leaseMs,
      renew: (leases) => this.#line.orUndefined("renew", () => this.#store.renew(leases, options.leaseMs)),
      afterBeat: () => void this.#unheard.tell(),
      needed: () => !this.#unheard.isEmpty,
    });
    this.#unheard = new Unheard({
      store: options.store,
      runtime: options.runtime,
      reservationMsMax: options.leaseMs + options.storeTimeoutMs,
      ask: (verb, call) => this.#line.orUndefined(verb, call),
      keepBeating: () => this.#leases.keepBeating(),
      gaveUp: (execution) => this.#release(execution, { kind: "storeDown" }),
    });
    this.#reservingHost = {
      line: this.#line,
      unheard: this.#unheard,
      events: this.events,
      runtime: options.runtime,
      cache: this.#cache,
      leaseMs: options.leaseMs,
      verdictOf: (reservation, asking) => this.#verdictOf(reservation, asking),
    };
    this.#host = {
      events: this.events,
      deadlines: (ms) => this.#executionDeadlines.of(ms),
      settle: (execution, settlement, meaning) => this.#settle(execution, settlement, meaning),
      ended: (execution, settled) => this.#ended(execution, settled),
      store: options.store,
      advance: (execution, advance) =>
        this.ask("advance", () => this.#store.advance(execution.lease, advance)),
      transact: (execution, work, commit) => this.#line.transact(execution.lease, work, commit),
      random: () => options.runtime.random(),
      now: () => options.runtime.now(),
      isLapsed: (execution) => options.runtime.now() - execution.renewedAt >= options.leaseMs,
    };
    this.#store.onOwnershipLost?.(() =>
      this.#leases.loseAll("the session that owned this process's leases has ended"),
    );
  }

  /**
   * Answers an arriving request: at once where the store does, or where this process knows the answer. Never throws: a
   * store that fails is a verdict too.
   */
  arrive(arrival: Arrival): Verdict | Promise<Verdict> {
    const now = this.runtime.now();
    const waitUntil = now + arrival.policy.waitMs;
    const { tracing } = this;
    const { nameOf } = this.#options;
    const named = nameOf === undefined ? arrival : { ...arrival, key: nameOf(arrival) };
    if (tracing === undefined) return this.#arrive(named, waitUntil, now);
    return tracing.arrive(named, (traced) => this.#arrive(traced, waitUntil, now));
  }

  /**
   * Looks for what a client has sent under its key. Undefined if the store did not answer, or was not asked because it
   * is sick.
   */
  read(id: RecordId): Promise<Reading | undefined> {
    return this.#line.look({ scope: id.scope, key: this.#options.nameOf?.(id) ?? id.key });
  }

  /** When those who were not answered should come again; undefined unless it is known. */
  get storeRetryAfterMs(): number | undefined {
    return this.#line.retryAfterMs;
  }

  /** What the breaker stands at; undefined if there is none. */
  get breaker(): BreakerReading | undefined {
    return this.#line.breaker?.reading;
  }

  /** Takes an answer away, from the store and from this process; others learn it from the store. */
  async bust(id: RecordId, bust: Bust): Promise<BustAnswer> {
    let answer: BustAnswer | undefined;
    try {
      answer = await this.ask("bust", () => this.#store.bust(id, bust));
      return answer;
    } finally {
      // Also without an answer: the store may have done it. A question that was asked before may be answered with what
      // was busted, and so may an execution whose outcome the store has heard: whoever comes now must not join them.
      this.#cache?.bustedHere(id);
      const flight = this.#flights.get(id);
      const mayBeBusted = answer === undefined || answer.kind === "busted";
      if (flight !== undefined && (mayBeBusted || flight.isUndecided)) this.#flights.delete(flight);
    }
  }

  /** Removes some of what is kept about a tenant. */
  forget(options: ForgetOptions): Promise<ForgetCounts> {
    return this.#line.askForLong("forget", () => this.#store.forgetTenant(options));
  }

  /** Forgets the answers that this process has kept: some of them are not to be given any more. */
  forgetAnswers(): void {
    this.#cache?.clear();
  }

  /** Ends executions whose owner is gone, as their `onCrash` says; one batch. */
  async sweep(options: Parameters<Store["sweep"]>[0]): Promise<SweepCounts> {
    const counts = await this.ask("sweep", () => this.#store.sweep(options));
    this.events.emit({ type: "swept", ...counts });
    return counts;
  }

  /** Removes records past their retention; one batch. */
  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    const counts = await this.ask("reap", () => this.#store.reap(options));
    this.events.emit({ type: "reaped", ...counts });
    return counts;
  }

  /** Waits until every execution has ended and every outcome is stored, or until the time is up. */
  async drain(limitMs: number): Promise<void> {
    const until = this.runtime.now() + limitMs;
    await this.limits?.flush();
    while (!this.#isClosed && this.runtime.now() < until) {
      if (this.#unheard.hasOutcomes) await this.#unheard.tell();
      if (this.#leases.isEmpty && !this.#unheard.hasOutcomes) break;
      await new Promise<void>((resolve) => void this.runtime.setTimer(resolve, drainPollMs));
    }
    // Also what the last of them have stored.
    if (!this.#isClosed) await this.limits?.flush();
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  close(): void {
    this.#isClosed = true;
    this.#cache?.interrupted();
    this.limits?.close();
    this.#leases.close();
    this.#line.deadlines.close();
    this.#executionDeadlines.close();
  }

  #arrive(arrival: Arrival, waitUntil: number, now = this.runtime.now()): Verdict | Promise<Verdict> {
    // A worker comes for what is to be executed, and what it finds has to be the store's word.
    const cached = arrival.isClaim ? undefined : this.#cache?.get(arrival);
    if (cached !== undefined) return this.#answer(arrival, cached, fromCache);
    const flight = this.#flights.get(arrival);
    return flight === undefined
      ? this.#lead(arrival, waitUntil, now)
      : join(flight, arrival, waitUntil, {
          runtime: this.runtime,
          answer: (verdict) => this.#answer(arrival, verdict, fromFlight),
          again: async (isKnown) => this.#arrive(isKnown ? { ...arrival, isKnown } : arrival, waitUntil),
          storeDown: () => this.#storeDown(arrival),
          waited: (since, answered) => this.#waited(arrival, since, answered),
        });
  }

  /** The first of its key in this process: asks the store. */
  #lead(arrival: Arrival, waitUntil: number, now: number): Verdict | Promise<Verdict> {
    const flight = new Flight(arrival);
    const verdict = this.#askFor(flight, arrival, waitUntil, now);
    // What a store that answers at once has told already is over, and nobody can come to join it.
    if (flight.isJoinable) this.#flights.add(flight);
    return verdict;
  }

  #askFor(flight: Flight, arrival: Arrival, waitUntil: number, now: number): Verdict | Promise<Verdict> {
    const conclude = (verdict: Verdict) =>
      verdict.kind === "inFlight" && arrival.policy.onInFlight === "wait"
        ? this.#wait(arrival, waitUntil, verdict).then((last) => this.#decide(flight, arrival, last))
        : this.#decide(flight, arrival, verdict);
    return this.#leading === undefined || arrival.isClaim
      ? this.#reserve(arrival, conclude, now)
      : leadWithinLimits(this.#leading, arrival, conclude, now);
  }

  /** What requests that are under limits need of this engine. */
  #leadingWithin(limits: Limits): Leading {
    const { exist } = this.#store;
    const lookout = exist && new Lookout(this.runtime, (ids) => this.#line.exist(ids));
    return {
      limits,
      mayExist: lookout && ((arrival) => lookout.mayExist(arrival)),
      failed: (error) => this.events.emit({ type: "store_error", verb: "notes", error }),
      read: async (arrival) => {
        let error: unknown;
        const reading = await this.#line.look(arrival, (failure) => {
          error = failure;
        });
        return reading ?? this.#storeDown(arrival, error);
      },
      reserve: (arrival, next, now) => this.#reserve(arrival, next, now),
    };
  }

  #decide(flight: Flight, arrival: Arrival, verdict: Verdict): Verdict {
    // An execution stays joinable until it is settled; any other verdict is told to those who joined, and forgotten.
    if (verdict.kind === "execute") verdict.execution.flight = flight;
    else this.#flights.delete(flight);
    flight.decide(verdict);
    return this.#answer(arrival, verdict, { joined: false });
  }

  /** One question to the store, and what `next` makes of its answer: a promise in between would cost every request. */
  #reserve(
    arrival: Arrival,
    next: (verdict: Verdict) => Verdict | Promise<Verdict>,
    /** What time it is, from whoever has just looked: looking is not free. */
    reservedAt = this.runtime.now(),
  ): Verdict | Promise<Verdict> {
    const entered = this.#line.breaker?.enter() ?? noBreaker;
    if (entered === 0) return next(this.#storeDown(arrival));
    const owner = this.#ownerPrefix + ++this.#reservations;
    const { scope, key, fingerprint, policy, route, request } = arrival;
    const { retentionMs, onCrash, reconcileAfterMs } = policy;
    const { leaseMs } = this.#options;
    return this.#line.reserve(
      {
        scope,
        key,
        fingerprint,
        owner,
        leaseMs,
        retentionMs,
        onCrash,
        reconcileAfterMs,
        mode: modeOf(arrival),
        route,
        request,
        waits: policy.onInFlight === "wait",
      },
      new Reserving(this.#reservingHost, { arrival, owner, reservedAt, entered, next }),
    );
  }

  #storeDown(arrival: Arrival, error?: unknown): Verdict {
    return storeDownVerdict(arrival, { error, retryAfterMs: this.#line.retryAfterMs });
  }

  #verdictOf(reservation: Reservation, { arrival: { policy }, reservedAt, grantedAt }: Reserving): Verdict {
    switch (reservation.kind) {
      case "execute": {
        const { lease, after, progress, createdAt } = reservation;
        const execution = new Execution({
          host: this.#host,
          policy,
          lease,
          after,
          progress,
          createdAt,
          reservedAt,
          grantedAt,
        });
        this.#leases.add(execution);
        return { kind: "execute", execution };
      }
      case "inFlight": {
        const retryAfterMs = Math.min(reservation.retryAfterMs, inFlightRetryAfterMs);
        if (policy.onInFlight === "accept") return { kind: "accepted", retryAfterMs };
        return { kind: "inFlight", retryAfterMs, isTold: reservation.isTold };
      }
      case "pending":
        return { kind: "accepted", retryAfterMs: inFlightRetryAfterMs };
      case "replay":
      case "absent":
      case "mismatch":
      case "unknown":
        return reservation;
      default:
        return reservation satisfies never;
    }
  }

  async #wait(arrival: Arrival, waitUntil: number, first: Verdict): Promise<Verdict> {
    const since = this.runtime.now();
    let verdict = first;
    await waitForChange({
      store: this.#store,
      runtime: this.runtime,
      id: arrival,
      isTold: first.kind === "inFlight" && first.isTold === true,
      until: waitUntil,
      withinLimit: (promise) => this.#line.deadlines.within(promise),
      onWatchError: (error) => this.events.emit({ type: "store_error", verb: "watch", error }),
      changed: async () => {
        verdict = await this.#reserve({ ...arrival, isKnown: true }, (decided) => decided);
        return verdict.kind !== "inFlight";
      },
    });
    this.#waited(arrival, since, verdict.kind !== "inFlight");
    return verdict;
  }

  /** The outcomes of requests that come in crowds are told one after the other. */
  #settle(
    execution: Execution,
    settlement: Settlement,
    meaning: (answer: SettleAnswer | undefined) => Settled,
  ): Settled | Promise<Settled> {
    if (!execution.isOfCrowd) return this.#tellOutcome(execution, settlement, meaning);
    const foreseen = this.#options.sealing?.foresee(execution.lease, settlement);
    return withTheTurn(this.runtime, () => this.#tellOutcome(execution, settlement, meaning, foreseen));
  }

  #tellOutcome(
    execution: Execution,
    settlement: Settlement,
    meaning: (answer: SettleAnswer | undefined) => Settled,
    foreseen = settlement,
  ): Settled | Promise<Settled> {
    const ticket = this.#cache?.ticket();
    const failed = (error: unknown): Settled => {
      this.events.emit({ type: "store_error", verb: "settle", error });
      this.#unheard.addOutcome(execution, settlement);
      return meaning(undefined);
    };
    const answered = (answer: SettleAnswer | undefined): Settled => {
      if (answer === undefined) return failed(this.#line.tooLate("settle"));
      this.#keepSettled(ticket, execution, settlement, answer);
      return meaning(answer);
    };
    return this.#line.settle(execution, foreseen, { answered, failed });
  }

  /** Called while the execution is still known to be under way. */
  #keepSettled(
    ticket: CacheTicket | undefined,
    execution: Execution,
    settlement: Settlement,
    answer: SettleAnswer,
  ): void {
    if (this.#cache === undefined) return;
    const fingerprint = execution.flight?.fingerprint;
    this.#cache.keepSettled(ticket, { ...execution.lease, fingerprint }, settlement, answer);
  }

  #ended(execution: Execution, settled: Settled): void {
    if (settled.kind === "stored") {
      this.limits?.chargeResponse(execution.lease.scope, settled.kept, execution.retentionMs);
    }
    // An outcome that the store has not confirmed is still this process's to tell: the lease is kept alive, and
    // duplicates here go on joining it instead of finding a lease that ran out.
    if (settled.kind !== "storeDown") this.#release(execution, settled);
  }

  #release(execution: Execution, settled: Settled): void {
    this.#leases.delete(execution);
    const { flight } = execution;
    if (flight === undefined) return;
    execution.flight = undefined;
    this.#flights.delete(flight);
    flight.settle(settled);
  }

  #waited(arrival: Arrival, since: number, answered: boolean): void {
    const { scope, key } = arrival;
    this.events.emit({ type: "waited", scope, key, ms: this.runtime.now() - since, answered });
  }

  /** Tells the event and passes the verdict on. */
  #answer<V extends Verdict>(arrival: Arrival, verdict: V, from: AnsweredFrom): V {
    arrival.trace?.answered(verdict, from.joined ? "flight" : from.cached ? "cache" : "store");
    if (this.events.areHeard) {
      const { scope, key } = arrival;
      const { joined, cached = false } = from;
      const outcome = outcomeOf(verdict);
      // Whoever joins the one that discovered it has not discovered it again.
      const discovered = verdict.kind === "unknown" && verdict.discovered === true && !joined;
      this.events.emit({ type: "reserved", scope, key, outcome, joined, cached, discovered });
    }
    return verdict;
  }

  /** One question to the store, with its time limit; rejects with a StoreError and nothing else. */
  ask<T>(verb: StoreVerb, call: () => Promise<T>): Promise<T> {
    return this.#line.ask(verb, call);
  }
}

const drainPollMs = 20;
