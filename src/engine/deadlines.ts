import type { Cancel, Runtime } from "./runtime.ts";

/**
 * Many deadlines of one length, kept by one timer. Nearly all of them are met, so setting and meeting one must cost
 * next to nothing: it is a place in a list that is in order by itself, because all are equally long.
 */
export class Deadlines {
  readonly #runtime: Runtime;
  readonly #ms: number;
  #first: Deadline | undefined;
  #last: Deadline | undefined;
  #cancelTimer: Cancel | undefined;

  constructor(runtime: Runtime, ms: number) {
    this.#runtime = runtime;
    this.#ms = ms;
  }

  /** Calls `miss` when the time is up, unless the deadline was met before. Whoever knows what time it is may say so. */
  set(miss: () => void, now = this.#runtime.now()): Deadline {
    const deadline: Deadline = {
      dueAt: now + this.#ms,
      miss,
      before: this.#last,
      after: undefined,
    };
    if (this.#last === undefined) this.#first = deadline;
    else this.#last.after = deadline;
    this.#last = deadline;
    if (this.#cancelTimer === undefined && Number.isFinite(this.#ms)) this.#wait(this.#ms);
    return deadline;
  }

  meet(deadline: Deadline): void {
    const { before, after, miss } = deadline;
    if (miss === undefined) return;
    deadline.miss = undefined;
    if (before === undefined) this.#first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    // Whoever keeps a deadline that was met must not keep all those that came after it.
    deadline.before = undefined;
    deadline.after = undefined;
  }

  /** The promise's value, or `undefined` when the time is up first. The promise itself goes on. */
  within<T>(promise: Promise<T>): Promise<T | undefined> {
    return this.outcome(
      promise,
      (value) => value,
      (error) => {
        throw error;
      },
    );
  }

  /**
   * What `answered` makes of the promise's value, or of `undefined` when the time is up first, or `failed` of its
   * failure. One promise for all of it: this is on the path of every request, and a chain would make three.
   */
  outcome<T, Outcome>(
    promise: Promise<T>,
    answered: (value: T | undefined) => Outcome | Promise<Outcome>,
    failed: (error: unknown) => Outcome | Promise<Outcome>,
  ): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      let isConcluded = false;
      const conclude = <Known>(meaning: (known: Known) => Outcome | Promise<Outcome>, known: Known) => {
        if (isConcluded) return;
        isConcluded = true;
        this.meet(deadline);
        try {
          resolve(meaning(known));
        } catch (error) {
          reject(error);
        }
      };
      const deadline = this.set(() => conclude(answered, undefined));
      promise.then(
        (value) => conclude(answered, value),
        (error) => conclude(failed, error),
      );
    });
  }

  close(): void {
    this.#cancelTimer?.();
  }

  /** The timer is left running when a deadline is met: by then there is mostly another one. */
  #wait(ms: number): void {
    this.#cancelTimer = this.#runtime.setTimer(() => this.#expire(), ms, { background: true });
  }

  #expire(): void {
    const now = this.#runtime.now();
    for (let first = this.#first; first !== undefined && first.dueAt <= now; first = this.#first) {
      const { miss } = first;
      this.meet(first);
      miss?.();
    }
    if (this.#first === undefined) this.#cancelTimer = undefined;
    else this.#wait(this.#first.dueAt - now);
  }
}

export interface Deadline {
  readonly dueAt: number;
  /** Undefined once the deadline was met or missed. */
  miss: (() => void) | undefined;
  before: Deadline | undefined;
  after: Deadline | undefined;
}

/** One for each time limit: routes have few different ones. */
export class DeadlinesByLimit {
  readonly #runtime: Runtime;
  readonly #known = new Map<number, Deadlines>();
  /** Mostly the next request has the same limit. */
  #last: { readonly ms: number; readonly deadlines: Deadlines } | undefined;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  of(ms: number): Deadlines {
    if (this.#last?.ms === ms) return this.#last.deadlines;
    const deadlines = this.#known.get(ms) ?? new Deadlines(this.#runtime, ms);
    this.#known.set(ms, deadlines);
    this.#last = { ms, deadlines };
    return deadlines;
  }

  close(): void {
    for (const deadlines of this.#known.values()) deadlines.close();
  }
}
