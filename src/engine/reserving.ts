import { StoreBusyError, StoreError, UnreadableError } from "../core/errors.ts";
import type { Reservation } from "../core/store.ts";
import type { Events } from "./events.ts";
import type { CacheTicket, ReplayCache } from "./replay-cache.ts";
import type { Runtime } from "./runtime.ts";
import { assertOpened, type Late, type ReservationMeaning, type StoreLine } from "./store-line.ts";
import type { Unheard } from "./unheard.ts";
import { type Arrival, storeDownVerdict, type Verdict } from "./verdict.ts";

/** What a question for a reservation needs of the engine that asks. */
export interface ReservingHost {
  readonly line: StoreLine;
  readonly unheard: Unheard;
  readonly events: Events;
  readonly runtime: Runtime;
  readonly cache: ReplayCache | undefined;
  readonly leaseMs: number;
  verdictOf(reservation: Reservation, asking: Reserving): Verdict;
}

/**
 * One question for a reservation, and what becomes of its answer. An object and not a handful of functions: this is on the path
 * of every request, and as many of them are alive as there are requests under way.
 */
export class Reserving implements ReservationMeaning<Verdict> {
  readonly arrival: Arrival;
  /** Who executes, if it is granted. */
  readonly owner: string;
  /** When it was sent: a lease cannot have begun earlier. */
  readonly reservedAt: number;
  /** When it was granted. */
  grantedAt: number;
  late: Late | undefined = undefined;
  readonly #host: ReservingHost;
  readonly #next: (verdict: Verdict) => Verdict | Promise<Verdict>;
  /** What the breaker said to it. */
  readonly #entered: number;
  readonly #ticket: CacheTicket | undefined;

  constructor(
    host: ReservingHost,
    {
      arrival,
      owner,
      reservedAt,
      entered,
      next,
    }: {
      readonly arrival: Arrival;
      readonly owner: string;
      readonly reservedAt: number;
      readonly entered: number;
      readonly next: (verdict: Verdict) => Verdict | Promise<Verdict>;
    },
  ) {
    this.arrival = arrival;
    this.owner = owner;
    this.reservedAt = reservedAt;
    this.grantedAt = reservedAt;
    this.#host = host;
    this.#next = next;
    this.#entered = entered;
    this.#ticket = host.cache?.ticket();
  }

  answered(reservation: Reservation | undefined): Verdict | Promise<Verdict> {
    const { line, cache, runtime, leaseMs, verdictOf } = this.#host;
    if (reservation === undefined) return this.failed(line.tooLate("reserve"));
    if (this.late !== undefined) this.grantedAt = runtime.now();
    const tookMs = this.grantedAt - this.reservedAt;
    if (reservation.kind === "execute" && tookMs >= leaseMs) {
      // It has come, so what it granted can be given back at once.
      this.late = Promise.resolve();
      return this.failed(new StoreError("the store's answer took as long as the lease that it granted"));
    }
    line.breaker?.succeeded(this.#entered, tookMs, this.grantedAt);
    if (reservation.kind === "replay") {
      try {
        assertOpened(reservation.response);
      } catch (error) {
        return this.failed(error);
      }
      cache?.keep(this.#ticket, this.arrival, reservation);
    }
    return this.#next(verdictOf(reservation, this));
  }

  failed(error: unknown): Verdict | Promise<Verdict> {
    const { line, unheard, events, runtime } = this.#host;
    const { arrival, owner, reservedAt } = this;
    line.breaker?.failed(this.#entered, runtime.now() - reservedAt, error);
    // What was never sent cannot have been granted, and what could not be read has been given back.
    if (!(error instanceof StoreBusyError || error instanceof UnreadableError)) {
      const { scope, key, policy } = arrival;
      unheard.addReservation({ scope, key, owner, policy, since: reservedAt }, this.late);
    }
    events.emit({ type: "store_error", verb: "reserve", error });
    return this.#next(storeDownVerdict(arrival, { error, retryAfterMs: line.retryAfterMs }));
  }
}
