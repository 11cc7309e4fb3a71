import type { SqliteDatabase } from "./driver.ts";

/**
 * Runs writes in transactions. All writes that are asked for in one turn of the event loop share one transaction, and
 * with it one wait for the disk, which is most of what a durable write costs.
 */
export class GroupCommit {
  readonly #database: SqliteDatabase;
  #waiting: Write[] = [];

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  /**
   * Answers with what `work` returned, after that is durable. `work` may run more than once, each time on a database
   * in which nothing of the run before is left.
   */
  write<T>(work: () => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#waiting.length === 0) setImmediate(() => this.flush());
      this.#waiting.push({ work, resolve: resolve as (answer: unknown) => void, reject });
    });
  }

  /** Writes down at once what is waiting. */
  flush(): void {
    const writes = this.#waiting;
    this.#waiting = [];
    if (writes.length > 0) this.#commit(writes);
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

interface Write {
  readonly work: () => unknown;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
}
