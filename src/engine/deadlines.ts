import { isPending, type Listener, type Pending } from "../core/pending.ts";
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

  /** Calls `miss` when the time is up, unless the deadline was met before. */
  set(miss: () => void): Deadline {
    const deadline = new Call(miss);
    this.add(deadline);
    return deadline;
  }

  /** The same for one that was made before. Whoever knows what time it is may say so. */
  add(deadline: Deadline, now = this.#runtime.now()): void {
    deadline.isOpen = true;
    deadline.dueAt = now + this.#ms;
    deadline.dueBefore = this.#last;
    if (this.#last === undefined) this.#first = deadline;
    else this.#last.dueAfter = deadline;
    this.#last = deadline;
    if (this.#cancelTimer === undefined && Number.isFinite(this.#ms)) this.#wait(this.#ms);
  }

  meet(deadline: Deadline): void {
    if (!deadline.isOpen) return;
    const { dueBefore, dueAfter } = deadline;
    deadline.isOpen = false;
    if (dueBefore === undefined) this.#first = dueAfter;
    else dueBefore.dueAfter = dueAfter;
    if (dueAfter === undefined) this.#last = dueBefore;
    else dueAfter.dueBefore = dueBefore;
    // Whoever keeps a deadline that was met must not keep all those that came after it.
    deadline.dueBefore = undefined;
    deadline.dueAfter = undefined;
  }

  /** The promise's value, or `undefined` when the time is up first. The promise itself goes on. */
  within<T>(promise: Promise<T>): Promise<T | undefined> {
    return this.outcome<T, T | undefined>(promise, itself);
  }

  /**
   * What an answer means, or that the time is up first, or its failure. One promise for all of it: this is on the path of every
   * request, and a chain would make three.
   */
  outcome<T, Outcome>(answer: Promise<T> | Pending<T>, meaning: Meaning<T, Outcome>): Promise<Outcome> {
    const waiting = new Wait(this, meaning);
    const promise = new Promise<Outcome>((resolve, reject) => {
      waiting.resolve = resolve;
      waiting.reject = reject;
    });
    this.add(waiting);
    if (isPending<T>(answer)) answer.tell(waiting);
    else {
      answer.then(
        (value) => waiting.answered(value),
        (error) => waiting.failed(error),
      );
    }
    return promise;
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
      this.meet(first);
      first.missed();
    }
    if (this.#first === undefined) this.#cancelTimer = undefined;
    else this.#wait(this.#first.dueAt - now);
  }
}

/** One place in the list, and whom to tell when its time is up. */
export abstract class Deadline {
  dueAt = 0;
  /** Its place in the list; the list's to set. */
  dueBefore: Deadline | undefined = undefined;
  dueAfter: Deadline | undefined = undefined;
  /** Whether it is neither met nor missed. */
  isOpen = false;
  abstract missed(): void;
}

class Call extends Deadline {
  readonly #miss: () => void;

  constructor(miss: () => void) {
    super();
    this.#miss = miss;
  }

  missed(): void {
    this.#miss();
  }
}

/** What is made of an answer. */
export interface Meaning<T, Outcome> {
  /** `undefined` where the time was up first. */
  answered(answer: T | undefined): Outcome | Promise<Outcome>;
  failed(error: unknown): Outcome | Promise<Outcome>;
}

/** Waits for one answer, within its time. What comes after that counts no more. */
class Wait<T, Outcome> extends Deadline implements Listener<T> {
  resolve: (outcome: Outcome | Promise<Outcome>) => void = doNothing;
  reject: (error: unknown) => void = doNothing;
  readonly #deadlines: Deadlines;
  readonly #meaning: Meaning<T, Outcome>;

  constructor(deadlines: Deadlines, meaning: Meaning<T, Outcome>) {
    super();
    this.#deadlines = deadlines;
    this.#meaning = meaning;
  }

  answered(value: T): void {
    if (!this.isOpen) return;
    this.#deadlines.meet(this);
    this.#answered(value);
  }

  failed(error: unknown): void {
    if (!this.isOpen) return;
    this.#deadlines.meet(this);
    try {
      this.resolve(this.#meaning.failed(error));
    } catch (thrown) {
      this.reject(thrown);
    }
  }

  missed(): void {
    this.#answered(undefined);
  }

  #answered(value: T | undefined): void {
    try {
      this.resolve(this.#meaning.answered(value));
    } catch (error) {
      this.reject(error);
    }
  }
}

const itself: Meaning<never, never> = {
  answered: (value) => value as never,
  failed(error) {
    throw error;
  },
};

function doNothing(): void {}

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
