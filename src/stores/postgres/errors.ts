import { StoreError, StoreRefusedError } from "../../core/errors.ts";

/** What went wrong in the driver, said in a way that tells what to do. */
export function storeError(cause: unknown): StoreError {
  if (cause instanceof StoreError) return cause;
  const { code, message } = cause as { code?: unknown; message?: unknown };
  if (code === undefinedTable && String(message).includes("latchkey_dist_")) {
    return new StoreError(
      "the Latchkey tables for distributed engines are not in this database, or not in its search_path: run " +
        'migrate(pool, { engine: "distributed" }) from latchkey/postgres first',
      { cause },
    );
  }
  if (code === undefinedTable) {
    return new StoreError(
      "the Latchkey tables are not in this database, or not in its search_path: run migrate(pool) from latchkey/postgres first",
      { cause },
    );
  }
  // The one function that only partitioned tables have.
  if (code === undefinedFunction && String(message).includes("latchkey_reserve(")) {
    return new StoreError(
      "the Latchkey tables in this database are not partitioned: leave out partitioned, or make them by " +
        'migrate(pool, { partitioned: "day" }) on an empty database',
      { cause },
    );
  }
  if (code === undefinedFunction && String(message).includes("latchkey_")) {
    return new StoreError(
      "the Latchkey tables in this database are of an older version: run migrate(pool) from latchkey/postgres first",
      { cause },
    );
  }
  if (code === notNullViolation && String(message).includes("bucket")) {
    return new StoreError(
      "the Latchkey tables in this database are partitioned: pass { partitioned: true } to postgresStore",
      { cause },
    );
  }
  // Data that cannot be stored, and what is larger than a limit of the server, are this one call's own.
  if (/^(22|54)/.test(String(code))) {
    return new StoreRefusedError(`Postgres cannot store what it was given: ${message || code}`, { cause });
  }
  // Where every address of a host was tried in vain, Node gives a code and no message.
  return new StoreError(`Postgres did not do what it was asked to: ${message || code || cause}`, { cause });
}

const undefinedTable = "42P01";
const undefinedFunction = "42883";
const notNullViolation = "23502";

/**
 * Whether the server has refused a statement for what it said, or for whom it met, so that nothing of it has happened
 * and its parts may be tried one by one. After anything else (a lost connection, a server that shuts down or is
 * full), that would make it worse, or nobody knows what has happened.
 */
export function isRefusal(error: unknown): boolean {
  const { cause } = error as { cause?: { code?: unknown } };
  const code = String(cause?.code);
  return refusals.has(code) || refusedClasses.has(code.slice(0, 2));
}

/**
 * Whether the server that said this only reads: a standby, or a primary that has become one. Business code may have put
 * the driver's error into one of its own.
 */
export function isReadOnly(error: unknown): boolean {
  return hasCode(error, (code) => code === readOnlyTransaction);
}

/** Whether a connection on which this happened must not be used again, whatever the driver makes of it. */
export function isOfBadServer(error: unknown): boolean {
  return hasCode(error, (code) => badServerCodes.has(code) || code.startsWith(connectionClass));
}

const readOnlyTransaction = "25006";
/** Shut down by an operator, crashed, not ready yet. */
const badServerCodes: ReadonlySet<string> = new Set([readOnlyTransaction, "57P01", "57P02", "57P03"]);
const connectionClass = "08";

/** Whether it lost against another transaction, and all of it was rolled back. */
export function isConflict(error: unknown): boolean {
  return hasCode(error, (code) => conflicts.has(code));
}

/** A serialization failure; a deadlock. */
const conflicts: ReadonlySet<string> = new Set(["40001", "40P01"]);

export function hasCode(error: unknown, matches: (code: string) => boolean): boolean {
  let said = error;
  for (let depth = 0; depth < causesMax && typeof said === "object" && said !== null; depth += 1) {
    const { code, cause } = said as { code?: unknown; cause?: unknown };
    if (typeof code === "string" && matches(code)) return true;
    said = cause;
  }
  return false;
}

/** Deeper than anybody wraps, and an end where an error is its own cause. */
const causesMax = 8;

/** Bad data, a broken rule, a deadlock or another isolation level's conflict, a limit, a lock, an exception. */
const refusedClasses: ReadonlySet<string> = new Set(["21", "22", "23", "40", "54", "55", "P0"]);
/** A time limit for statements, which one locked record may have used up; more locks than fit. */
const refusals: ReadonlySet<string> = new Set(["57014", "53200"]);
