import { type SqliteDatabase, Statement } from "./driver.ts";

/** Every statement that runs while requests are served, prepared once for each connection. */
export function prepareStatements(database: SqliteDatabase) {
  const prepare = (sql: string) => new Statement(database, sql);
  return {
    readRecord: prepare(readRecord),
    writeRecord: prepare(writeRecord),
    renewLease: prepare(renewLease),
    endDeadExecutions: prepare(endDeadExecutions),
    markExpired: prepare(markExpired),
    deleteSettled: prepare(deleteSettled),
    deleteExpired: prepare(deleteExpired),
  };
}

export type Statements = ReturnType<typeof prepareStatements>;

const readRecord = `
  SELECT state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, reconcile_after, reason,
         completed_at, response_status, response_head, response_body
    FROM latchkey_records
   WHERE scope = ? AND key = ?`;

const writeRecord = `
  INSERT INTO latchkey_records (
           scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until,
           reconcile_after, reason, completed_at, response_status, response_head, response_body)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
      ON CONFLICT (scope, key) DO UPDATE
     SET state = excluded.state,
         fingerprint = excluded.fingerprint,
         fence = excluded.fence,
         on_crash = excluded.on_crash,
         created_at = excluded.created_at,
         expires_at = excluded.expires_at,
         owner = excluded.owner,
         lease_until = excluded.lease_until,
         reconcile_after = excluded.reconcile_after,
         reason = excluded.reason,
         completed_at = excluded.completed_at,
         response_status = excluded.response_status,
         response_head = excluded.response_head,
         response_body = excluded.response_body`;

/** Parameters: the new end of the lease, then the lease. */
const renewLease = `
  UPDATE latchkey_records
     SET lease_until = ?
   WHERE scope = ? AND key = ? AND fence = ? AND owner = ? AND state = 'in_progress'`;

/**
 * What `crashed` says in core/transition.ts, for many records at once.
 * Parameters: the reason, when reconciliation may ask, the time, the limit.
 */
export const endDeadExecutions = `
  UPDATE latchkey_records
     SET state = CASE on_crash WHEN 'reconcile' THEN 'unknown' ELSE 'failed_retryable' END,
         reason = ?,
         reconcile_after = CASE on_crash WHEN 'reconcile' THEN ? END,
         lease_until = NULL,
         owner = NULL
   WHERE rowid IN (
           SELECT rowid
             FROM latchkey_records
            WHERE state = 'in_progress' AND lease_until <= ?
            ORDER BY lease_until
            LIMIT ?)
RETURNING state`;

/**
 * What `expired` says in core/transition.ts, for many records at once and without reading their bodies.
 * Parameters: the time, the limit.
 */
export const markExpired = `
  UPDATE latchkey_records
     SET state = 'expired',
         owner = NULL,
         reason = NULL,
         completed_at = NULL,
         response_status = NULL,
         response_head = NULL,
         response_body = NULL
   WHERE rowid IN (
           SELECT rowid
             FROM latchkey_records
            WHERE state IN ('completed', 'failed_retryable') AND expires_at <= ?
            ORDER BY expires_at
            LIMIT ?)`;

/** Parameters: the time, the limit. */
export const deleteSettled = `
  DELETE FROM latchkey_records
   WHERE rowid IN (
           SELECT rowid
             FROM latchkey_records
            WHERE state IN ('completed', 'failed_retryable') AND expires_at <= ?
            ORDER BY expires_at
            LIMIT ?)`;

/** Parameters: the time, the limit. */
export const deleteExpired = `
  DELETE FROM latchkey_records
   WHERE rowid IN (
           SELECT rowid
             FROM latchkey_records
            WHERE state = 'expired' AND expires_at <= ?
            ORDER BY expires_at
            LIMIT ?)`;
