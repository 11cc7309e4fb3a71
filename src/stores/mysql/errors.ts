import { StoreError, StoreRefusedError } from "../../core/errors.ts";

/** What the driver tells of an error; `fatal` where the connection is of no more use. */
interface DriverError {
  readonly errno?: unknown;
  readonly code?: unknown;
  readonly message?: unknown;
  readonly fatal?: unknown;
}

/** What went wrong in the driver, said in a way that tells what to do. */
export function storeError(cause: unknown): StoreError {
  if (cause instanceof StoreError) return cause;
  const { errno, code, message } = told(cause);
  if (errno === noSuchTable || (errno === noSuchRoutine && String(message).includes("latchkey_"))) {
    return new StoreError(
      "the Latchkey tables and procedures are not in this database, or not all of them: run migrate(pool) from " +
        "latchkey/mysql first",
      { cause },
    );
  }
  if (isReadOnly(errno)) {
    return new StoreError(
      "MySQL takes no writes: it is a replica, or was the primary before a failover; the connection was closed, and the " +
        "pool has to lead to the primary",
      { cause },
    );
  }
  if (errno === packetTooLarge) return packetError(undefined, cause);
  return new StoreError(`MySQL did not do what it was asked to: ${message || code || cause}`, { cause });
}

export function packetError(bytes: number | undefined, cause?: unknown): StoreError {
  return new StoreRefusedError(
    `${bytes === undefined ? "what" : `the ${bytes} bytes that`} had to be written did not fit into one packet, and nothing was ` +
      "written: raise max_allowed_packet on the server, or lower responseBytesMax of mysqlStore",
    { cause },
  );
}

/** As the driver would say it of a connection that is of no more use: an answer that came later would be the next one's. */
export function silentServer(silentMs: number): Error {
  return Object.assign(new Error(`no answer for ${silentMs} ms, and the connection was closed`), {
    code: "PROTOCOL_SEQUENCE_TIMEOUT",
    fatal: true,
  });
}

/**
 * Whether the transaction was chosen to give way to another one, and is gone as a whole, so that it can be tried again.
 * A lock that took too long to get is none of these: it has taken as long as anybody can wait already.
 */
export function isDeadlock(error: unknown): boolean {
  return told(error).errno === deadlock;
}

/** Whether the mark of a phase was gone when the phase ended. */
export function isMarkGone(error: unknown): boolean {
  const { errno, message } = told(error);
  return errno === noSuchRoutine && String(message).includes("SAVEPOINT");
}

/**
 * Whether a connection must not be used by anybody any more: it is broken, or leads to a server that somebody should not
 * talk to. A pool would hand the latter out again and again.
 */
export function isUnusable(error: unknown): boolean {
  const { errno, fatal } = told(error);
  return fatal === true || isReadOnly(errno) || brokenConnections.has(errno);
}

/** Business code may throw anything, also nothing. */
function told(error: unknown): DriverError {
  return error ?? {};
}

function isReadOnly(errno: unknown): boolean {
  return readOnlyServers.has(errno);
}

const noSuchTable = 1146;
/** Also what MySQL says of a savepoint that is gone. */
const noSuchRoutine = 1305;
const packetTooLarge = 1153;
const deadlock = 1213;

/** --read-only and --super-read-only; a read-only mode; a read-only transaction or engine. */
const readOnlyServers: ReadonlySet<unknown> = new Set([1290, 1836, 1792, 1874]);
/** Shutting down; killed; gone away; lost; a packet that was too large or out of order. */
const brokenConnections: ReadonlySet<unknown> = new Set([1053, 1927, 1317, 2006, 2013, 1153, 1156]);
