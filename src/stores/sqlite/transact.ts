import { PhaseError, StoreError } from "../../core/errors.ts";
import type { SqliteDatabase } from "./driver.ts";
import { rollback } from "./group-commit.ts";

/** What has to be done in one transaction; the caller has the connection to itself. */
export interface Transaction<Result, Commit, Answer> {
  /** Business writes. Whatever this throws is thrown on. */
  work(tx: SqliteDatabase): Result | Promise<Result>;
  /** What is to be written down with them. Whatever this throws is thrown on. */
  prepare(result: Result): Commit;
  /** Writes it down; undefined if that must not be, and then everything is rolled back. */
  write(commit: Commit, result: Result): Answer | undefined;
}

/** Answers with what `write` returned, after it and the business writes are durable. */
export async function transact<Result, Commit, Answer>(
  database: SqliteDatabase,
  { work, prepare, write }: Transaction<Result, Commit, Answer>,
): Promise<Answer | undefined> {
  ours(() => database.exec(`BEGIN IMMEDIATE; SAVEPOINT ${savepoint}`));
  const { tx, end } = connectionOfPhase(database);
  try {
    const result = await withinThisTurn(() => work(tx)).finally(end);
    checkStillOpen(database);
    const commit = prepare(result);
    return ours(() => {
      const answer = write(commit, result);
      if (answer === undefined) rollback(database);
      else database.exec("COMMIT");
      return answer;
    });
  } catch (error) {
    rollback(database);
    throw error;
  }
}

/**
 * The connection as long as its phase lasts. A phase that was rolled back because it waited may go on after that, and
 * would write without a transaction, and without anybody having checked its lease.
 */
function connectionOfPhase(database: SqliteDatabase): { readonly tx: SqliteDatabase; end(): void } {
  let isOver = false;
  const tx = new Proxy(database, {
    get(target, name) {
      if (isOver) throw new PhaseError(tooLate);
      const value: unknown = Reflect.get(target, name, target);
      // The drivers' methods know only the real connection.
      return typeof value === "function" && name !== "constructor" ? value.bind(target) : value;
    },
  });
  return {
    tx,
    end() {
      isOver = true;
    },
  };
}

/** A mark in the transaction that is gone as soon as anybody ends it. */
const savepoint = "latchkey_phase";

function checkStillOpen(database: SqliteDatabase): void {
  try {
    database.exec(`RELEASE ${savepoint}`);
  } catch (error) {
    throw new PhaseError(
      "the transaction of an atomic phase was ended from within: leave out BEGIN, COMMIT and ROLLBACK, Latchkey " +
        "commits when the phase returns, and rolls back when it throws",
      { cause: error },
    );
  }
}

/**
 * Everything in this process that writes waits for the transaction, and statements of others on the same connection
 * would become a part of it. So the work may await its own promises, but nothing that comes from outside. A tick comes
 * when all promises have gone as far as they can, and before any timer or I/O: whether a phase is refused does not
 * depend on how fast an answer was.
 */
async function withinThisTurn<T>(work: () => T | Promise<T>): Promise<T> {
  const outcome = work();
  const over = new Promise<never>((_, reject) => {
    process.nextTick(() => reject(new PhaseError(waited)));
  });
  return Promise.race([outcome, over]);
}

const waited =
  "an atomic phase on SQLite must not wait for anything but its own statements, and was rolled back: " +
  "do I/O before or after it, for example in an effect";

const tooLate =
  "an atomic phase used its connection after it was over: await everything that it does, and do not keep `tx`";

/** What Latchkey itself could not do is the store's failure, and never the handler's. */
function ours<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new StoreError(`SQLite could not carry out an atomic phase: ${reason}`, { cause: error });
  }
}
