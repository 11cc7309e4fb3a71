import { PhaseError, StoreError } from "../../core/errors.ts";
import type { MysqlConnection } from "./database.ts";
import { isDeadlock } from "./errors.ts";

/** The connection of an atomic phase, as its business code gets it. */
export interface PhaseConnection {
  readonly tx: MysqlConnection;
  /** Throws if the transaction is gone as a whole, whatever the business code made of that. */
  checkIntact(): void;
  end(): void;
}

/**
 * The connection as long as its phase lasts, without what would end the transaction. MySQL commits before a CREATE or
 * an ALTER without being asked; and after a deadlock it rolls back all of the transaction, so that whoever went on
 * would write without one, and without anybody having checked the lease. What is said here is refused before it is
 * sent. What gets by, in a comment or a procedure, is noticed by the mark in the transaction when the phase ends.
 */
export function connectionOfPhase(connection: MysqlConnection): PhaseConnection {
  let isOver = false;
  let gone: unknown;

  const checkLasts = () => {
    if (isOver) throw new PhaseError(tooLate);
  };
  const checkIntact = () => {
    if (gone === undefined) return;
    throw new StoreError(
      "the transaction of an atomic phase was rolled back because of a deadlock: let the phase throw what it was told",
      { cause: gone },
    );
  };
  const send =
    (name: "query" | "execute") =>
    async (...parameters: Parameters<MysqlConnection["query"]>) => {
      // Somebody may have kept the method, and the connection may be another request's by now.
      checkLasts();
      checkIntact();
      const [statement] = parameters;
      refuseEnding(typeof statement === "string" ? statement : (statement as { readonly sql: string }).sql);
      try {
        return await (connection[name] as MysqlConnection["query"])(...parameters);
      } catch (error) {
        if (isDeadlock(error)) gone = error;
        throw error;
      }
    };
  const own: Readonly<Record<string, unknown>> = { query: send("query"), execute: send("execute") };

  const tx = new Proxy(connection, {
    get(target, name) {
      checkLasts();
      if (typeof name === "string" && Object.hasOwn(own, name)) return own[name];
      // What is prepared goes past `send`, and after a deadlock nobody would know that the transaction is gone.
      if (name === "prepare") throw new PhaseError(notPrepared);
      if (typeof name === "string" && endings.has(name)) throw endedFromWithin();
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" && name !== "constructor" ? value.bind(target) : value;
    },
  });
  return {
    tx,
    checkIntact,
    end() {
      isOver = true;
    },
  };
}

export function endedFromWithin(cause?: unknown): PhaseError {
  return new PhaseError(
    "an atomic phase is one transaction, which Latchkey commits when the phase returns, and rolls back when it throws: " +
      "leave out COMMIT, ROLLBACK and START TRANSACTION, whatever commits without being asked, as CREATE, ALTER and " +
      "TRUNCATE do, and giving the connection back",
    { cause },
  );
}

/** Methods that end the transaction, or the connection, or begin another. */
const endings: ReadonlySet<string> = new Set([
  "beginTransaction",
  "commit",
  "rollback",
  "release",
  "destroy",
  "end",
  "changeUser",
]);

function refuseEnding(sql: unknown): void {
  if (typeof sql === "string" && endingStatement.test(sql)) throw endedFromWithin();
}

/** What ends a transaction, and what commits one without being asked. Temporary tables and savepoints do not. */
const endingStatement =
  /^\s*(?:COMMIT|ROLLBACK(?!\s+(?:WORK\s+)?TO\b)|BEGIN|START\s+TRANSACTION|SET\s+(?:(?:SESSION|LOCAL)\s+|@@(?:session|local)?\.?)?autocommit|LOCK\s+TABLES|UNLOCK\s+TABLES|TRUNCATE|RENAME|GRANT|REVOKE|(?:CREATE|DROP)(?!\s+TEMPORARY\b)|ALTER|ANALYZE|OPTIMIZE|REPAIR|XA)\b/i;

const tooLate =
  "an atomic phase used its connection after it was over: await everything that it does, and do not keep `tx`";

const notPrepared =
  "an atomic phase cannot use tx.prepare(): use tx.execute(sql, values), which prepares a statement once for each " +
  "connection by itself";
