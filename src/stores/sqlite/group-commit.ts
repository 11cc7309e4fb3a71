import { type Listener, type Pending, promised } from "../../core/pending.ts";
import { isBusy, isOutsideTransaction, type SqliteDatabase } from "./driver.ts";

/** Writes of one kind, which can be carried out one by one, or in fewer statements when there are many. */
export interface Verb<Call, Answer> {
  alone(call: Call): Answer;
  /** The same in one statement; undefined if that was not enough, and then nothing was written. */
  atOnce?(call: Call): Answer | undefined;
  /** Answers in the order of the calls, as if they had come one after the other. */
  together(calls: readonly Call[]): readonly Answer[];
  /** What can be told, if anything, while another process has the lock. */
  withoutLock?(call: Call): Answer | undefined;
}

/**
 * Runs writes in transactions. All writes that are asked for in one turn of the event loop share one transaction, and
 * with it one wait for the disk, which is most of what a durable write costs; unless each is to have its own.
 */
export class GroupCommit {
  readonly #database: SqliteDatabase;
  #waiting: Write[] = [];
  /** Settles when whoever has, or waits for, the connection to itself has given it back. */
  #lastTurn: Promise<void> = Promise.resolve();
  #isTaken = false;
  readonly #shares: boolean;

  constructor(database: SqliteDatabase, options: { readonly shares: boolean }) {
    this.#database = database;
    this.#shares = options.shares;
  }

  /** A transaction of this turn is about to begin, and whoever asks for a write now takes part in it. */
  get isAboutToShare(): boolean {
    return this.#shares && this.#waiting.length > 0;
  }

  /** Answers with what `work` returned, after that is durable. */
  write<T>(work: () => T): Promise<T> {
    return promised(() => this.ask<() => unknown, unknown>(anything, work)) as Promise<T>;
  }

  /**
   * Answers after what was asked for is durable. It may be carried out more than once, each time on a database in which
   * nothing of the time before is left. What is asked for before an answer came is asked for at the same time, so that
   * calls of one verb go together, past those of another.
   */
  ask<Call, Answer>(verb: Verb<Call, Answer>, call: Call): Pending<Answer> {
    const write = new Write(verb as Verb<unknown, unknown>, call);
    if (this.#waiting.length === 0) this.#flushSoon();
    this.#waiting.push(write);
    return write as Pending<unknown> as Pending<Answer>;
  }

  /**
   * Gives the connection to `use` alone: what was asked for before is written down first, and what is asked for
   * meanwhile waits until it is over.
   */
  exclusively<T>(use: () => T | Promise<T>): Promise<T> {
    const turn = this.#lastTurn.then(async () => {
      this.#flush();
      this.#isTaken = true;
      try {
        return await use();
      } finally {
        this.#isTaken = false;
        if (this.#waiting.length > 0) this.#flushSoon();
      }
    });
    // Everything else in this process gets its chance before the next in the queue: heartbeats above all.
    this.#lastTurn = turn.then(nextLoopTurn, nextLoopTurn);
    return turn;
  }

  #flushSoon(): void {
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    if (this.#isTaken) return;
    const writes = this.#waiting;
    this.#waiting = [];
    if (this.#shares && writes.length > 0) this.#commit(writes);
    else for (const write of writes) this.#commit([write]);
  }

  #commit(writes: readonly Write[]): void {
    const [first] = writes;
    if (first !== undefined && writes.length === 1 && this.#commitAtOnce(first)) return;
    try {
      this.#database.exec("BEGIN IMMEDIATE");
    } catch (error) {
      for (const write of writes) refuse(write, error);
      return;
    }
    try {
      carryOut(writes);
      this.#database.exec("COMMIT");
    } catch (error) {
      rollback(this.#database);
      // What one write cannot do must not fail the others: each gets a transaction of its own.
      if (writes.length > 1) for (const write of writes) this.#commit([write]);
      else for (const { listener } of writes) listener?.failed(error);
      return;
    }
    for (const { listener, answer } of writes) listener?.answered(answer);
  }

  /**
   * A statement is a transaction of its own, and for a lone write beginning and ending one takes a quarter of the time.
   * But if somebody has left theirs open, it would become a part of that, and be answered before it is durable.
   */
  #commitAtOnce(write: Write): boolean {
    const { verb, call } = write;
    if (verb.atOnce === undefined || !isOutsideTransaction(this.#database)) return false;
    try {
      const answer = verb.atOnce(call);
      if (answer === undefined) return false;
      write.listener?.answered(answer);
    } catch (error) {
      refuse(write, error);
    }
    return true;
  }
}

/** A write that is like no other. */
const anything: Verb<() => unknown, unknown> = {
  alone: (work) => work(),
  together: (works) => works.map((work) => work()),
};

function carryOut(writes: readonly Write[]): void {
  const [first] = writes;
  if (first !== undefined && writes.length === 1) {
    first.answer = first.verb.alone(first.call);
    return;
  }
  for (const [verb, alike] of byVerb(writes)) {
    const answers = verb.together(alike.map(({ call }) => call));
    for (const [index, write] of alike.entries()) write.answer = answers[index];
  }
}

function byVerb(writes: readonly Write[]): ReadonlyMap<Write["verb"], readonly Write[]> {
  const kinds = new Map<Write["verb"], Write[]>();
  for (const write of writes) {
    const alike = kinds.get(write.verb);
    if (alike === undefined) kinds.set(write.verb, [write]);
    else alike.push(write);
  }
  return kinds;
}

/** Nothing was written; if that is because somebody else has the lock, some things can be told all the same. */
function refuse({ verb, call, listener }: Write, error: unknown): void {
  let answer: unknown;
  try {
    answer = isBusy(error) ? verb.withoutLock?.(call) : undefined;
  } catch {
    // It is the lock that everybody waits for.
  }
  if (answer === undefined) listener?.failed(error);
  else listener?.answered(answer);
}

/** Some errors, such as a full disk, have already rolled back; then there is nothing left to undo. */
export function rollback(database: SqliteDatabase): void {
  try {
    database.exec("ROLLBACK");
  } catch {}
}

function nextLoopTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

/** Somebody who wants something written, and is told. */
class Write implements Pending<unknown> {
  readonly verb: Verb<unknown, unknown>;
  readonly call: unknown;
  /** Given out when it is durable. */
  answer: unknown = undefined;
  listener: Listener<unknown> | undefined = undefined;

  constructor(verb: Verb<unknown, unknown>, call: unknown) {
    this.verb = verb;
    this.call = call;
  }

  tell(listener: Listener<unknown>): void {
    this.listener = listener;
  }
}
