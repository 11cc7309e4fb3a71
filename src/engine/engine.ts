import { StoreError } from "../core/errors.ts";
import { type RecordId, recordIdText } from "../core/record.ts";
import type {
  ExecuteAfter,
  Expiry,
  Reading,
  ReapCounts,
  Reservation,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
} from "../core/store.ts";
import { Deadlines } from "./deadlines.ts";
import { Events, type ReserveOutcome, type StoreVerb } from "./events.ts";
import { Execution, type ExecutionHost, type Settled } from "./execution.ts";
import { Flight } from "./flight.ts";
import { Leases } from "./leases.ts";
import type { Runtime } from "./runtime.ts";
import { type Arrival, inFlightRetryAfterMs, type Verdict } from "./verdict.ts";
import { waitForChange } from "./waiting.ts";

export interface EngineOptions {
  readonly store: Store;
  readonly runtime: Runtime;
  readonly leaseMs: number;
  /** A store that takes longer has not answered. */
  readonly storeTimeoutMs: number;
}

/** Reserve, execute, settle: lets exactly one execution of each request through, and tells everybody else why not. */
export class Engine {
  readonly events = new Events();
  readonly runtime: Runtime;
  readonly #options: EngineOptions;
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #flights = new Map<string, Flight>();
  readonly #unsettled = new Map<Execution, Settlement>();
  readonly #host: ExecutionHost;
  readonly #processName: string;
  readonly #storeDeadlines: Deadlines;
  /** By how long an execution may take; routes have few different limits. */
  readonly #executionDeadlines = new Map<number, Deadlines>();
  #reservations = 0;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#store = options.store;
    this.runtime = options.runtime;
    this.#processName = randomName(options.runtime);
    this.#storeDeadlines = new Deadlines(options.runtime, options.storeTimeoutMs);
    this.#leases = new Leases({
      runtime: options.runtime,
      leaseMs: options.leaseMs,
      renew: (leases) => this.#orUndefined("renew", () => this.#store.renew(leases, options.leaseMs)),
      afterBeat: () => this.#settleAgain(),
      needed: () => this.#unsettled.size > 0,
    });
    this.#host = {
      events: this.events,
      deadlines: (ms) => this.#deadlines(ms),
      settle: (execution, settlement) => this.#settle(execution, settlement),
      ended: (execution, settled) => this.#ended(execution, settled),
    };
    this.#store.onOwnershipLost?.(() =>
      this.#leases.loseAll("the session that owned this process's leases has ended"),
    );
  }

  /** Answers an arriving request. Never throws: a store that fails is a verdict too. */
  arrive(arrival: Arrival): Promise<Verdict> {
    const waitUntil = this.runtime.now() + arrival.policy.waitMs;
    return this.#arrive(arrival, waitUntil);
  }

  read(id: RecordId): Promise<Reading | undefined> {
    return this.#orUndefined("read", () => this.#store.read(id));
  }

  /** Ends executions whose owner is gone, as their `onCrash` says; one batch. */
  async sweep(options: { readonly limit: number }): Promise<SweepCounts> {
    const counts = await this.#ask("sweep", () => this.#store.sweep(options));
    this.events.emit({ type: "swept", ...counts });
    return counts;
  }

  /** Removes records past their retention; one batch. */
  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    const counts = await this.#ask("reap", () => this.#store.reap(options));
    this.events.emit({ type: "reaped", ...counts });
    return counts;
  }

  close(): void {
    this.#leases.close();
    this.#storeDeadlines.close();
    for (const deadlines of this.#executionDeadlines.values()) deadlines.close();
  }

  #arrive(arrival: Arrival, waitUntil: number): Promise<Verdict> {
    const flightId = recordIdText(arrival);
    const flight = this.#flights.get(flightId);
    return flight === undefined
      ? this.#lead(flightId, arrival, waitUntil)
      : this.#join(flight, arrival, waitUntil);
  }

  /** The first of its key in this process: asks the store. */
  async #lead(flightId: string, arrival: Arrival, waitUntil: number): Promise<Verdict> {
    const flight = new Flight(arrival.fingerprint);
    this.#flights.set(flightId, flight);
    let verdict = await this.#reserve(arrival);
    if (verdict.kind === "inFlight" && arrival.policy.onInFlight === "wait") {
      verdict = await this.#wait(arrival, waitUntil, verdict);
    }
    // An execution stays joinable until it is settled; any other verdict is told to those who joined, and forgotten.
    if (verdict.kind !== "execute") this.#flights.delete(flightId);
    flight.decide(verdict);
    return this.#answer(arrival, verdict, { joined: false });
  }

  /** A duplicate of something under way in this process: the store is not asked again. */
  async #join(flight: Flight, arrival: Arrival, waitUntil: number): Promise<Verdict> {
    const verdict = await flight.verdict();
    const same = flight.fingerprint === arrival.fingerprint;
    switch (verdict.kind) {
      case "execute":
        if (!same) return this.#answer(arrival, { kind: "mismatch" }, { joined: true });
        return this.#joinExecution(flight, arrival, waitUntil);
      case "replay":
      case "inFlight":
      case "accepted":
      case "unknown":
        // Each of these means that the record carries the fingerprint that the first request had.
        return this.#answer(arrival, same ? verdict : { kind: "mismatch" }, { joined: true });
      case "mismatch":
        return same ? this.#answer(arrival, verdict, { joined: true }) : this.#arrive(arrival, waitUntil);
      case "storeDown":
      case "unprotected":
        return this.#answer(arrival, storeDownVerdict(arrival), { joined: true });
      default:
        return verdict satisfies never;
    }
  }

  async #joinExecution(flight: Flight, arrival: Arrival, waitUntil: number): Promise<Verdict> {
    const inFlight: Verdict = { kind: "inFlight", retryAfterMs: inFlightRetryAfterMs };
    switch (arrival.policy.onInFlight) {
      case "reject":
        return this.#answer(arrival, inFlight, { joined: true });
      case "accept":
        return this.#answer(
          arrival,
          { kind: "accepted", retryAfterMs: inFlightRetryAfterMs },
          { joined: true },
        );
      case "wait":
        break;
      default:
        return arrival.policy.onInFlight satisfies never;
    }
    const since = this.runtime.now();
    const settled = await flight.settledWithin(this.runtime, Math.max(0, waitUntil - since));
    this.#waited(arrival, since, settled !== undefined);
    if (settled === undefined) return this.#answer(arrival, inFlight, { joined: true });
    switch (settled.kind) {
      case "stored":
        return this.#answer(
          arrival,
          { kind: "replay", response: settled.response, expiresAt: settled.expiresAt },
          { joined: true },
        );
      case "suspended":
        return this.#answer(
          arrival,
          { kind: "unknown", retryAfterMs: settled.retryAfterMs },
          { joined: true },
        );
      case "released":
      case "lost":
      case "timedOut":
      case "storeDown":
        return this.#arrive(arrival, waitUntil);
      default:
        return settled satisfies never;
    }
  }

  /** One question to the store. */
  async #reserve(arrival: Arrival): Promise<Verdict> {
    const reservedAt = this.runtime.now();
    const owner = `${this.#processName}-${(++this.#reservations).toString(36)}`;
    const { scope, key, fingerprint, policy } = arrival;
    const { leaseMs, storeTimeoutMs } = this.#options;
    let reservation: Reservation | undefined;
    try {
      const asked = this.#store.reserve({
        scope,
        key,
        fingerprint,
        owner,
        leaseMs,
        retentionMs: policy.retentionMs,
        onCrash: policy.onCrash,
      });
      reservation = await this.#storeDeadlines.within(asked);
      if (reservation === undefined) {
        this.#giveBackWhenAnswered(asked, arrival);
        throw new StoreError(`the store did not answer a reservation within ${storeTimeoutMs} ms`);
      }
    } catch (error) {
      this.events.emit({ type: "store_error", verb: "reserve", error });
      return storeDownVerdict(arrival);
    }
    switch (reservation.kind) {
      case "execute": {
        const { lease, after } = reservation;
        const execution = new Execution({ host: this.#host, policy, lease, after, reservedAt });
        this.#leases.add(execution);
        return { kind: "execute", execution };
      }
      case "inFlight": {
        const retryAfterMs = Math.min(reservation.retryAfterMs, inFlightRetryAfterMs);
        return { kind: policy.onInFlight === "accept" ? "accepted" : "inFlight", retryAfterMs };
      }
      case "pending":
        return { kind: "accepted", retryAfterMs: inFlightRetryAfterMs };
      case "replay":
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
      until: waitUntil,
      onWatchError: (error) => this.events.emit({ type: "store_error", verb: "watch", error }),
      changed: async () => {
        verdict = await this.#reserve(arrival);
        return verdict.kind !== "inFlight";
      },
    });
    this.#waited(arrival, since, verdict.kind !== "inFlight");
    return verdict;
  }

  /**
   * A reservation that was given up may still arrive at the store. If it then grants the lease, nothing was executed
   * under it, and saying so frees the key at once instead of after a reconciliation.
   */
  #giveBackWhenAnswered(asked: Promise<Reservation>, arrival: Arrival): void {
    asked.then(
      (reservation) => {
        if (reservation.kind !== "execute") return;
        const { lease, after } = reservation;
        const reservedAt = this.runtime.now();
        const execution = new Execution({
          host: this.#host,
          policy: arrival.policy,
          lease,
          after,
          reservedAt,
        });
        void execution.abandon(
          "the store answered too late, and the request was refused before anything ran",
        );
      },
      () => {},
    );
  }

  async #settle(
    execution: Execution,
    settlement: Settlement,
  ): Promise<SettleAnswer | { readonly kind: "storeDown" }> {
    const answer = await this.#orUndefined("settle", () => this.#store.settle(execution.lease, settlement));
    if (answer !== undefined) return answer;
    this.#unsettled.set(execution, settlement);
    this.#leases.keepBeating();
    return { kind: "storeDown" };
  }

  /** The store was down when these were settled. What is known must not be lost while this process lives. */
  async #settleAgain(): Promise<void> {
    for (const [execution, settlement] of this.#unsettled) {
      const answer = await this.#orUndefined("settle", () => this.#store.settle(execution.lease, settlement));
      if (answer === undefined) return;
      this.#unsettled.delete(execution);
      execution.confirm(settlement, answer);
    }
  }

  #ended(execution: Execution, settled: Settled): void {
    // An outcome that the store has not confirmed is still this process's to tell: the lease is kept alive, and
    // duplicates here go on joining it instead of finding a lease that ran out.
    if (settled.kind === "storeDown") return;
    this.#leases.delete(execution);
    const flightId = recordIdText(execution.lease);
    const flight = this.#flights.get(flightId);
    if (flight === undefined) return;
    this.#flights.delete(flightId);
    flight.settle(settled);
  }

  #deadlines(ms: number): Deadlines {
    const known = this.#executionDeadlines.get(ms);
    if (known !== undefined) return known;
    const deadlines = new Deadlines(this.runtime, ms);
    this.#executionDeadlines.set(ms, deadlines);
    return deadlines;
  }

  #waited(arrival: Arrival, since: number, answered: boolean): void {
    const { scope, key } = arrival;
    this.events.emit({ type: "waited", scope, key, ms: this.runtime.now() - since, answered });
  }

  /** Tells the event and passes the verdict on. */
  #answer<V extends Verdict>(arrival: Arrival, verdict: V, told: { readonly joined: boolean }): V {
    if (this.events.areHeard) {
      const { scope, key } = arrival;
      this.events.emit({ type: "reserved", scope, key, outcome: outcomeOf(verdict), joined: told.joined });
    }
    return verdict;
  }

  async #ask<T>(verb: StoreVerb, call: () => Promise<T>): Promise<T> {
    const { storeTimeoutMs } = this.#options;
    try {
      const answer = await this.#storeDeadlines.within(call());
      if (answer === undefined)
        throw new StoreError(`the store did not answer "${verb}" within ${storeTimeoutMs} ms`);
      return answer;
    } catch (error) {
      this.events.emit({ type: "store_error", verb, error });
      throw error instanceof StoreError
        ? error
        : new StoreError(`the store failed at "${verb}"`, { cause: error });
    }
  }

  async #orUndefined<T>(verb: StoreVerb, call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await this.#ask(verb, call);
    } catch {
      return undefined;
    }
  }
}

const executeOutcomes: Record<ExecuteAfter, ReserveOutcome> = {
  absent: "created",
  failed_retryable: "failed_retry",
  crash: "takeover",
  expired: "expired_retry",
};

function outcomeOf(verdict: Verdict): ReserveOutcome {
  switch (verdict.kind) {
    case "execute":
      return executeOutcomes[verdict.execution.after];
    case "replay":
      return "replay";
    case "inFlight":
      return "in_progress";
    case "accepted":
      return "accepted";
    case "mismatch":
      return "key_misuse";
    case "unknown":
      return "unknown";
    case "storeDown":
      return "store_down";
    case "unprotected":
      return "unprotected";
    default:
      return verdict satisfies never;
  }
}

function storeDownVerdict(arrival: Arrival): Verdict {
  return { kind: arrival.policy.onStoreDown === "open" ? "unprotected" : "storeDown" };
}

/** 80 bits: enough that two processes of one deployment never share a name. */
function randomName(runtime: Runtime): string {
  let name = "";
  while (name.length < 16) name += Math.floor(runtime.random() * 32).toString(32);
  return name;
}
