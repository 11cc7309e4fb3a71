import type { SqliteDatabase } from "./driver.ts";

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

  /**
   * Answers with what `work` returned, after that is durable. `work` may run more than once, each time on a database
   * in which nothing of the run before is left.
   */
  write<T>(work: () => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#waiting.length === 0) this.#flushSoon();
      this.#waiting.push({ work, resolve: resolve as (answer: unknown) => void, reject });
    });
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
    try {
      this.#database.exec("BEGIN IMMEDIATE");
    } catch (error) {
      for (const { reject } of writes) reject(error);
      return;
    }
    let answers: unknown[];
    try {
      answers = writes.map(({ work }) => work());
      this.#database.exec("COMMIT");
    } catch (error) {
      rollback(this.#database);
      // What one write cannot do must not fail the others: each gets a transaction of its own.
      if (writes.length > 1) for (const write of writes) this.#commit([write]);
      else for (const { reject } of writes) reject(error);
      return;
    }
    for (const [index, { resolve }] of writes.entries()) resolve(answers[index]);
  }
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

interface Write {
  readonly work: () => unknown;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
}
