import { asked, askedShortly } from "../core/at-once.ts";
import { ConfigError, StoreError, UnreadableError } from "../core/errors.ts";
import { isPending, type Pending } from "../core/pending.ts";
import type { RecordId } from "../core/record.ts";
import { isSealed, type StoredResponse } from "../core/response.ts";
import type {
  Lease,
  PhaseCommit,
  Reading,
  Reservation,
  ReserveRequest,
  SettleAnswer,
  Settlement,
  Store,
  TransactAnswer,
} from "../core/store.ts";
import { isPromiseLike } from "../core/when-known.ts";
import { Breaker, type BreakerOptions } from "./breaker.ts";
import { Deadlines, type Meaning } from "./deadlines.ts";
import type { Events, StoreVerb } from "./events.ts";
import type { Sealing } from "./options.ts";
import type { Runtime } from "./runtime.ts";

/** How the store is asked: within a time limit, not while it is sick, and every failure is told. */
export class StoreLine {
  readonly deadlines: Deadlines;
  readonly breaker: Breaker | undefined;
  readonly #store: Store;
  readonly #runtime: Runtime;
  readonly #events: Events;
  readonly #timeoutMs: number;
  readonly #sealing: Sealing | undefined;
  readonly #mayTellShortly: () => boolean;

  constructor(options: {
    readonly store: Store;
    readonly runtime: Runtime;
    readonly events: Events;
    readonly storeTimeoutMs: number;
    readonly breaker?: BreakerOptions | false | undefined;
    readonly sealing?: Sealing | undefined;
    /** Whether it does not matter on whose behalf answers are told: no code of the application's hears of them. */
    readonly mayTellShortly: () => boolean;
  }) {
    this.#store = options.store;
    this.#runtime = options.runtime;
    this.#events = options.events;
    this.#timeoutMs = options.storeTimeoutMs;
    this.#sealing = options.sealing;
    this.#mayTellShortly = options.mayTellShortly;
    this.deadlines = new Deadlines(options.runtime, options.storeTimeoutMs);
    this.breaker = options.breaker === false ? undefined : new Breaker(options.breaker ?? {}, options);
  }

  /**
   * Asks for a reservation, with its time limit, and gives what came to `meaning`: at once where the store answers at once. There
   * is one promise for all of it: this is on the path of every request.
   */
  reserve<Outcome>(
    request: ReserveRequest,
    meaning: ReservationMeaning<Outcome>,
  ): Outcome | Promise<Outcome> {
    const sealing = this.#sealing;
    if (sealing !== undefined) return this.#reserveSealed(sealing, request, meaning);
    let answer: Reservation | Promise<Reservation> | Pending<Reservation>;
    try {
      const ask = this.#mayTellShortly() ? askedShortly : asked;
      answer = ask(this.#store, this.#store.reserve, request);
    } catch (error) {
      return meaning.failed(error);
    }
    if (!isToCome(answer)) return meaning.answered(answer);
    meaning.late = answer;
    return this.deadlines.outcome(answer, meaning);
  }

  /** The same where what is stored has to be opened first. */
  #reserveSealed<Outcome>(
    sealing: Sealing,
    request: ReserveRequest,
    meaning: ReservationMeaning<Outcome>,
  ): Outcome | Promise<Outcome> {
    let answer: Reservation | Promise<Reservation>;
    try {
      answer = sealing.reserveSealed(request);
    } catch (error) {
      return meaning.failed(error);
    }
    const stored = (reservation: Reservation | undefined) => {
      if (reservation === undefined) return meaning.answered(undefined);
      let open: Reservation | Promise<Reservation>;
      try {
        open = sealing.openReservation(request, reservation);
      } catch (error) {
        return meaning.failed(error);
      }
      return isPromiseLike(open) ? this.deadlines.outcome(open, meaning) : meaning.answered(open);
    };
    if (!isPromiseLike(answer)) return stored(answer);
    meaning.late = answer;
    return this.deadlines.outcome(answer, { answered: stored, failed: (error) => meaning.failed(error) });
  }

  /** Tells an outcome, within the time limit. Whoever listens to the execution's signal may be told that it is lost. */
  settle<Outcome>(
    { lease, hasSignal }: { readonly lease: Lease; readonly hasSignal: boolean },
    settlement: Settlement,
    meaning: Meaning<SettleAnswer, Outcome>,
  ): Outcome | Promise<Outcome> {
    let answer: SettleAnswer | Promise<SettleAnswer> | Pending<SettleAnswer>;
    try {
      const ask = !hasSignal && this.#mayTellShortly() ? askedShortly : asked;
      answer = ask(this.#store, this.#store.settle, lease, settlement);
    } catch (error) {
      return meaning.failed(error);
    }
    return isToCome(answer) ? this.deadlines.outcome(answer, meaning) : meaning.answered(answer);
  }

  /** One question, with its time limit; rejects with a StoreError and nothing else. */
  ask<T>(verb: StoreVerb, call: () => Promise<T>): Promise<T> {
    return this.askForLong(verb, async () => {
      const answer = await this.deadlines.within(call());
      if (answer === undefined) throw this.tooLate(verb);
      return answer;
    });
  }

  /** One question that takes as long as it takes, because everything is gone through for it. */
  async askForLong<T>(verb: StoreVerb, call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      this.#events.emit({ type: "store_error", verb, error });
      throw error instanceof StoreError
        ? error
        : new StoreError(`the store failed at "${verb}"`, { cause: error });
    }
  }

  async orUndefined<T>(verb: StoreVerb, call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await this.ask(verb, call);
    } catch {
      return undefined;
    }
  }

  /** Looks at a record, unless the store is sick. Undefined if it was not asked, or did not answer. */
  look(id: RecordId, onError?: (error: unknown) => void): Promise<Reading | undefined> {
    return this.#look(() => this.#read(id), onError);
  }

  /** Which of these have a record, from a store that can tell of many at once; undefined as above. */
  exist(ids: readonly RecordId[]): Promise<readonly boolean[] | undefined> {
    return this.#look(async () => (await this.#store.exist?.(ids)) ?? []);
  }

  async #look<T>(call: () => Promise<T>, onError?: (error: unknown) => void): Promise<T | undefined> {
    const entered = this.breaker?.enter() ?? noBreaker;
    if (entered === 0) return undefined;
    const askedAt = this.#runtime.now();
    try {
      const answer = await this.ask("read", call);
      this.breaker?.succeeded(entered, this.#runtime.now() - askedAt);
      return answer;
    } catch (error) {
      this.breaker?.failed(entered, this.#runtime.now() - askedAt, error);
      onError?.(error);
      return undefined;
    }
  }

  /**
   * A business transaction lasts as long as it lasts: the handler's own time limit is the one that counts. What the
   * user's code throws is the user's; what the store throws is told.
   */
  async transact<T>(
    lease: Lease,
    work: (tx: unknown) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<TransactAnswer<T>> {
    try {
      if (this.#store.transact === undefined) throw new ConfigError(noTransactions);
      return await this.#store.transact(lease, work, commit);
    } catch (error) {
      if (error instanceof StoreError) this.#events.emit({ type: "store_error", verb: "transact", error });
      throw error;
    }
  }

  /** When those who were not answered should come again; undefined unless it is known. */
  get retryAfterMs(): number | undefined {
    return this.breaker?.isClosed === false ? this.breaker.retryAfterMs() : undefined;
  }

  tooLate(verb: StoreVerb): StoreError {
    return new StoreError(`the store did not answer "${verb}" within ${this.#timeoutMs} ms`);
  }

  async #read({ scope, key }: RecordId): Promise<Reading> {
    const reading = await this.#store.read({ scope, key });
    const { record } = reading;
    if (record?.state === "completed") assertOpened(record.response);
    return reading;
  }
}

/** An answer that may still come, when nobody waits for it any more. */
export type Late = Promise<unknown> | Pending<unknown>;

/** What a reservation means to whoever has asked for it. */
export interface ReservationMeaning<Outcome> extends Meaning<Reservation, Outcome> {
  /** Set where the store does not answer at once. */
  late: Late | undefined;
}

function isToCome<Answer>(
  answer: Answer | Promise<Answer> | Pending<Answer>,
): answer is Promise<Answer> | Pending<Answer> {
  return isPending(answer) || isPromiseLike(answer);
}

/** In place of what a breaker says to those who enter; no breaker ever says it. */
export const noBreaker = -1;

/** Throws if another process encrypts what it stores, and this one was not told how. */
export function assertOpened(response: StoredResponse): void {
  if (response.kind !== "full" || !isSealed(response.headers)) return;
  throw new UnreadableError(
    "a stored answer is sealed, and this process has no keys: pass the same encryption to createLatchkey",
  );
}

/** Said when a handler uses what this store cannot do. */
const noTransactions =
  "op.atomic needs a store whose transactions can hold your business writes: use sqliteStore, postgresStore, mysqlStore or dynamodbStore";
