import { StoreError } from "../../core/errors.ts";

/** What went wrong in the driver, said in a way that tells what to do. */
export function storeError(cause: unknown): StoreError {
  if (cause instanceof StoreError) return cause;
  const { code, message } = cause as { code?: unknown; message?: unknown };
  if (code === undefinedTable) {
    return new StoreError(
      "the Latchkey tables are not in this database, or not in its search_path: run migrate(pool) from latchkey/postgres first",
      { cause },
    );
  }
  if (code === undefinedFunction && String(message).includes("latchkey_reserve")) {
    return new StoreError(
      "the Latchkey tables in this database are not partitioned: leave out partitioned, or make them by " +
        'migrate(pool, { partitioned: "day" }) on an empty database',
      { cause },
    );
  }
  if (code === notNullViolation && String(message).includes("bucket")) {
    return new StoreError(
      "the Latchkey tables in this database are partitioned: pass { partitioned: true } to postgresStore",
      { cause },
    );
  }
  // Where every address of a host was tried in vain, Node gives a code and no message.
  return new StoreError(`Postgres did not do what it was asked to: ${message || code || cause}`, { cause });
}

const undefinedTable = "42P01";
const undefinedFunction = "42883";
const notNullViolation = "23502";
