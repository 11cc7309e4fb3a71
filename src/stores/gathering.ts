import { type BriefEntry, BriefTable } from "../core/brief-table.ts";
import { StoreBusyError } from "../core/errors.ts";
import { type Listener, type Pending, promised } from "../core/pending.ts";
import type { RecordId } from "../core/record.ts";
import { atTurnEnd } from "../core/turn-end.ts";
import { Traffic } from "./traffic.ts";

/** A way to ask the database for something, one by one or many at once. */
export interface Verb<Call, Answer> {
  /** `isLeft`: a batch could not answer it, so that there is no short way. */
  alone(call: Call, options: { readonly isLeft: boolean }): Promise<Answer>;
  /** Answers in the order of the calls; undefined where one has to be asked alone. No two are about one record. */
  together(calls: readonly Call[]): Promise<readonly (Answer | undefined)[]>;
  /** About how much there is to send. */
  bytes(call: Call): number;
  /** Whether it does not matter which of two such calls about one record comes first. */
  readonly isUnordered: boolean;
  /**
   * A call that is refused has to be kept and told again, so it has twice the room, and waits for as long as it takes.
   * Anything else has cost nothing yet, and is not sent any more when whoever asked has long given up.
   */
  readonly isUrgent: boolean;
}

export interface GatheringOptions {
  /** Whether an error was about one of the calls of a batch, of which nothing has happened. */
  readonly isRefusal: (error: unknown) => boolean;
  readonly now?: () => number;
  /** As many as these are not worth a batch. */
  readonly aloneMax?: number;
  /**
   * How many batches may be under way in a crowd; two if not said. A third one fills the time in which the others wait for
   * the disk, as long as batches stay large.
   */
  readonly flightsMax?: number;
  /** So few go at once, whatever is under way: waiting for one another would only cost them time. Four if not said. */
  readonly quietMax?: number;
  /**
   * Up to how many calls there is one batch at a time; none if not said. Where every batch waits for the disk, two small ones
   * take longer than one. It holds for the few as well while they keep coming: who does not wait for one another then is in
   * one another's way.
   */
  readonly smallCrowdMax?: number;
  /** Whether batches can wait for each other's records, and so must all go through them in one order; true if not said. */
  readonly isSorted?: boolean;
}

/**
 * Group commit. What is asked for while the connections are busy is gathered, and travels in one statement as soon as
 * one of them is free; no timer holds anything up. Calls about one record go in the order in which they came, each after the
 * answer to the one before, wherever the order matters and the answer comes in reasonable time.
 */
export class Gathering {
  readonly #options: Required<GatheringOptions>;
  /** The calls that can go, by what they ask for. */
  readonly #ready = new Map<Verb<never, unknown>, Waiting[]>();
  /** The records that somebody asks about: the first of those who do, with the others behind it. */
  readonly #lines = new BriefTable<Waiting>();
  readonly #flights = new Set<Flight>();
  readonly #traffic = new Traffic();
  #isFlushing = false;
  #isLookingAgain = false;
  #waiting = 0;
  #waitingBytes = 0;

  constructor(options: GatheringOptions) {
    this.#options = {
      now: () => performance.now(),
      aloneMax: 1,
      isSorted: true,
      flightsMax: flightsOfCrowd,
      quietMax: 4,
      smallCrowdMax: 0,
      ...options,
    };
  }

  /** Rejects at once when too much is waiting already. */
  ask<Call, Answer>(verb: Verb<Call, Answer>, id: RecordId, call: Call): Promise<Answer> {
    return promised(() => this.pend(verb, id, call));
  }

  /** The same without a promise; throws at once. */
  pend<Call, Answer>(verb: Verb<Call, Answer>, id: RecordId, call: Call): Pending<Answer> {
    const bytes = verb.bytes(call);
    const room = verb.isUrgent ? 2 : 1;
    if (this.#waiting >= waitingMax * room || this.#waitingBytes + bytes > waitingBytesMax * room) {
      throw new StoreBusyError(`${this.#waiting} calls are waiting for the database already`);
    }
    const waiting = new Waiting(verb as Verb<unknown, unknown>, id, call, bytes, this.#options.now());
    this.#waiting += 1;
    this.#waitingBytes += bytes;
    this.#enqueue(waiting);
    return waiting as Pending<unknown> as Pending<Answer>;
  }

  #enqueue(waiting: Waiting): void {
    const first = this.#lines.get(waiting);
    if (first === undefined) {
      waiting.isFirst = true;
      this.#lines.add(waiting);
      this.#traffic.asked(waiting.askedAt);
      this.#makeReady(waiting);
    } else if (first.verb === waiting.verb && waiting.verb.isUnordered) {
      // A batch holds a record once, and there is no reason to wait for the next one; but whoever asks has yet to listen.
      queueMicrotask(() => void this.#carryAlone(waiting));
    } else {
      first.behind ??= [];
      first.behind.push(waiting);
      this.#passBy(first);
    }
  }

  /**
   * An answer that does not come must not hold up for ever what else is said about the record: who may say it is checked
   * in the database, and the order only spares it questions in vain.
   */
  #passBy(first: Waiting): void {
    if (first.sentAt === undefined || this.#options.now() - first.sentAt < stalledMs) return;
    this.#uncount(first);
    this.#moveUp(first);
  }

  #makeReady(waiting: Waiting): void {
    const ready = this.#ready.get(waiting.verb);
    if (ready === undefined) this.#ready.set(waiting.verb, [waiting]);
    else ready.push(waiting);
    this.#flushSoon();
  }

  /**
   * After everything that this turn of the event loop still brings, because callers come in crowds; or, while nothing is
   * under way, after what is running now.
   */
  #flushSoon(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    const flush = () => {
      this.#isFlushing = false;
      this.#flush();
    };
    if (this.#flights.size === 0) process.nextTick(flush);
    else atTurnEnd(flush);
  }

  #flush(): void {
    for (let free = this.#freeFlights(); free > 0; free -= 1) {
      const batch = this.#nextBatch(free);
      if (batch.length === 0) return;
      void this.#fly(batch);
    }
    this.#lookAgain();
  }

  /** What is under way may be stuck, and nobody else may come who would notice. */
  #lookAgain(): void {
    if (this.#isLookingAgain || this.#readyCount() === 0) return;
    this.#isLookingAgain = true;
    setTimeout(() => {
      this.#isLookingAgain = false;
      this.#flush();
    }, slowMs).unref();
  }

  /** A flight that takes for ever must not keep everybody else on the ground. */
  #freeFlights(): number {
    const { now, quietMax, smallCrowdMax, flightsMax } = this.#options;
    const moment = now();
    let busy = 0;
    let calls = this.#readyCount();
    let isSlow = false;
    for (const flight of this.#flights) {
      const flownMs = moment - flight.since;
      if (flownMs >= stalledMs) continue;
      busy += 1;
      calls += flight.calls;
      isSlow ||= flownMs >= slowMs;
    }
    const isSmallCrowd = calls <= smallCrowdMax && !isSlow;
    const isQuiet = calls <= quietMax && !(isSmallCrowd && this.#traffic.callsAtOnce >= denseCalls);
    if (isQuiet) return Math.max(1, flightsOfCrowd - busy);
    if (isSmallCrowd) return 1 - busy;
    return Math.min(Math.max(flightsOfCrowd, Math.floor(calls / callsOfFlight)), flightsMax) - busy;
  }

  #readyCount(): number {
    let count = 0;
    for (const ready of this.#ready.values()) count += ready.length;
    return count;
  }

  /** A fair share of what is ready, of the kind that has waited longest. */
  #nextBatch(free: number): Waiting[] {
    this.#refuseLate();
    let longest: Waiting[] = [];
    for (const ready of this.#ready.values()) {
      if (ready[0] !== undefined && ready[0].askedAt < (longest[0]?.askedAt ?? Number.POSITIVE_INFINITY)) {
        longest = ready;
      }
    }
    const share = Math.min(batchMax, Math.ceil(this.#readyCount() / free));
    let bytes = 0;
    let count = 0;
    for (const waiting of longest) {
      bytes += waiting.bytes;
      if (count > 0 && (count >= share || bytes > batchBytesMax)) break;
      count += 1;
    }
    return longest.splice(0, count);
  }

  #refuseLate(): void {
    const givenUpSince = this.#options.now() - patienceMs;
    for (const [verb, ready] of this.#ready) {
      if (verb.isUrgent || (ready[0]?.askedAt ?? givenUpSince) >= givenUpSince) continue;
      const late = ready.filter(({ askedAt }) => askedAt < givenUpSince);
      this.#ready.set(
        verb,
        ready.filter(({ askedAt }) => askedAt >= givenUpSince),
      );
      for (const waiting of late) {
        this.#reject(waiting, new StoreBusyError(`a call has waited for the database for ${patienceMs} ms`));
      }
    }
  }

  async #fly(batch: Waiting[]): Promise<void> {
    const since = this.#options.now();
    const flight = { since, calls: batch.length };
    this.#flights.add(flight);
    for (const waiting of batch) waiting.sentAt = since;
    await this.#carry(batch);
    this.#flights.delete(flight);
    this.#traffic.landed(this.#options.now() - since);
    if (this.#waiting > 0) this.#flushSoon();
  }

  /** Never rejects. */
  #carry(batch: Waiting[]): Promise<unknown> {
    const [first] = batch;
    if (first !== undefined && batch.length > this.#options.aloneMax) {
      return this.#carryTogether(first.verb, batch);
    }
    if (first !== undefined && batch.length === 1) return this.#carryAlone(first);
    return Promise.all(batch.map((waiting) => this.#carryAlone(waiting)));
  }

  async #carryTogether(verb: Waiting["verb"], batch: Waiting[]): Promise<void> {
    if (this.#options.isSorted) batch.sort(byRecord);
    try {
      const answers = await verb.together(batch.map(({ call }) => call));
      for (const [index, waiting] of batch.entries()) {
        const answer = answers[index];
        if (answer === undefined) void this.#carryAlone(waiting, { isLeft: true });
        else this.#resolve(waiting, answer);
      }
    } catch (error) {
      // Nothing of a refused batch has happened, and which call it was about is found out by asking one by one. Where
      // the connection is lost instead, anything may have happened.
      for (const waiting of batch) {
        if (this.#options.isRefusal(error)) void this.#carryAlone(waiting);
        else this.#reject(waiting, error);
      }
    }
  }

  async #carryAlone(waiting: Waiting, options = { isLeft: false }): Promise<void> {
    waiting.sentAt ??= this.#options.now();
    try {
      this.#resolve(waiting, await waiting.verb.alone(waiting.call, options));
    } catch (error) {
      this.#reject(waiting, error);
    }
  }

  #resolve(waiting: Waiting, answer: unknown): void {
    this.#leave(waiting);
    waiting.listener?.answered(answer);
  }

  #reject(waiting: Waiting, error: unknown): void {
    this.#leave(waiting);
    waiting.listener?.failed(error);
  }

  #leave(waiting: Waiting): void {
    this.#uncount(waiting);
    // One that was passed by is not the first any more.
    if (waiting.isFirst) this.#moveUp(waiting);
  }

  /** The next one of its record takes the place of the first. */
  #moveUp(first: Waiting): void {
    const { behind } = first;
    first.isFirst = false;
    first.behind = undefined;
    this.#lines.delete(first);
    const next = behind?.shift();
    if (next === undefined) return;
    next.isFirst = true;
    next.behind = behind;
    this.#lines.add(next);
    this.#makeReady(next);
  }

  #uncount(waiting: Waiting): void {
    if (!waiting.isCounted) return;
    waiting.isCounted = false;
    this.#waiting -= 1;
    this.#waitingBytes -= waiting.bytes;
  }
}

/** Enough to keep the server busy while answers are read here; with more of them the batches only get smaller. */
const flightsOfCrowd = 2;

/** More are under way only if each has as many calls as this. */
const callsOfFlight = 64;

/** From so many on, calls that would else be under way at once gain by waiting for one another. */
const denseCalls = 0.8;

/** Far more than one batch gains anything by. */
const batchMax = 512;
const batchBytesMax = 1024 * 1024;

/** What fits into memory on any machine, and takes seconds to write down. */
const waitingMax = 10_000;
const waitingBytesMax = 64 * 1024 * 1024;

/** Long against a disk's time to write. Whoever waits for something else must not hold up a small crowd. */
const slowMs = 20;

/** Long against any statement here, short against anybody's patience. */
const stalledMs = 1_000;

/** Below the time within which the engine wants an answer, unless it was told otherwise. */
const patienceMs = 4_000;

interface Flight {
  readonly since: number;
  readonly calls: number;
}

/** Somebody who asks, and is told. */
class Waiting implements BriefEntry<Waiting>, Pending<unknown> {
  readonly scope: string;
  readonly key: string;
  readonly verb: Verb<unknown, unknown>;
  readonly call: unknown;
  readonly bytes: number;
  readonly askedAt: number;
  hash = 0;
  nextInBucket: Waiting | undefined = undefined;
  /** Undefined while it is here. */
  sentAt: number | undefined = undefined;
  /** Whether those who ask about its record are behind it. Never, if it goes alone, past everybody else. */
  isFirst = false;
  /** Made on demand: most are alone. */
  behind: Waiting[] | undefined = undefined;
  isCounted = true;
  listener: Listener<unknown> | undefined = undefined;

  constructor(
    verb: Verb<unknown, unknown>,
    { scope, key }: RecordId,
    call: unknown,
    bytes: number,
    askedAt: number,
  ) {
    this.scope = scope;
    this.key = key;
    this.verb = verb;
    this.call = call;
    this.bytes = bytes;
    this.askedAt = askedAt;
  }

  tell(listener: Listener<unknown>): void {
    this.listener = listener;
  }
}

/** Every process locks records in this order, so that no two wait for each other. */
export function byRecord(a: RecordId, b: RecordId): number {
  return compare(a.scope, b.scope) || compare(a.key, b.key);
}

/** Not localeCompare: the order must be the same on every machine. */
function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
