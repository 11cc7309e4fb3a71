import { type SqliteDatabase, Statement } from "./driver.ts";

/** Every statement that runs while requests are served, prepared once for each connection. */
export function prepareStatements(database: SqliteDatabase) {
  const prepare = (sql: string) => new Statement(database, sql);
  const bySize = (sql: (count: number) => string): ReadonlyMap<number, Statement> =>
    new Map(bunchSizes.map((size) => [size, prepare(sql(size))]));
  return {
    readRecord: prepare(readRecord),
    insertReservation: prepare(insertReservation),
    insertReservations: bySize(insertReservations),
    readInserted: prepare(readInserted),
    writeRecord: prepare(writeRecord),
    readRequestBody: prepare(readRequestBody),
    writeRequestBody: prepare(writeRequestBody),
    renewLease: prepare(renewLease),
    completeLease: prepare(completeLease),
    completeLeases: bySize(completeLeases),
    completePlacedLeases: bySize(completePlacedLeases),
    completeLeaseOfKeptRequest: prepare(completeLeaseOfKeptRequest),
    findDeadExecutions: prepare(findDeadExecutions),
    findUnclaimed: prepare(findUnclaimed),
    findResumable: prepare(findResumable),
    findUnknown: prepare(findUnknown),
    markExpired: prepare(markExpired),
    deleteSettled: prepare(deleteSettled),
    deleteExpired: prepare(deleteExpired),
  };
}

export type Statements = ReturnType<typeof prepareStatements>;

const readRecord = `
  SELECT state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, reconcile_after, reason,
         completed_at, response_status, response_head, response_body, route, progress, request_head, resume_after,
         claims, escalated_at, reconcile_ms
    FROM latchkey_records
   WHERE scope = ? AND key = ?`;

/**
 * What `reserved` says of a new request in core/transition.ts, without looking for its record first: this is on the
 * path of every request, and each parameter more costs half a microsecond. Changes nothing where there is a record.
 */
const insertReservation = `
  INSERT INTO latchkey_records (
           scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, route,
           reconcile_ms)
  VALUES (?, ?, 'in_progress', ?, ?, ?, ?, ?, ?, ?, ?, ?)
      ON CONFLICT (scope, key) DO NOTHING`;

/**
 * How many rows one statement may write, the most first. Calling the driver and handing over parameters cost as much as
 * the rest of a write: at 64 rows about a third of the time is saved, at 8 a sixth, and completing 4 at once gains nothing.
 */
export const bunchSizes = [64, 16, 8] as const;

const rows = (count: number, row: string) => Array.from({ length: count }, () => row).join(", ");

/**
 * Many reservations under the same terms. Parameters: fence, what a crash means, the three times, route and
 * reconciliation; then scope, key, fingerprint and owner of each. No `?1`: some drivers take it for a name.
 *
 * What breaks a rule of the table takes the whole transaction back, here and below. That is what the caller does anyway,
 * and SQLite would else copy each page before it changes it, to be able to take back this one statement: for random keys
 * that is a page each, and was a quarter of the time of an insertion.
 */
export const insertReservations = (count: number) => `
  INSERT OR ROLLBACK INTO latchkey_records (
           fence, on_crash, created_at, expires_at, lease_until, route, reconcile_ms, state, scope, key, fingerprint,
           owner)
  SELECT ?, ?, ?, ?, ?, ?, ?, 'in_progress', column1, column2, column3, column4
    FROM (VALUES ${rows(count, "(?, ?, ?, ?)")})
   WHERE true
      ON CONFLICT (scope, key) DO NOTHING`;

/** What was inserted after this row. Each new row has the number that follows the highest one. */
const readInserted = `
  SELECT rowid AS row, scope, key
    FROM latchkey_records
   WHERE rowid > ?`;

const writeRecord = `
  INSERT INTO latchkey_records (
           scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until,
           reconcile_after, reason, completed_at, response_status, response_head, response_body, route, progress,
           request_head, resume_after, claims, escalated_at, reconcile_ms)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
         response_body = excluded.response_body,
         route = excluded.route,
         progress = excluded.progress,
         request_head = excluded.request_head,
         resume_after = excluded.resume_after,
         claims = excluded.claims,
         escalated_at = excluded.escalated_at,
         reconcile_ms = excluded.reconcile_ms`;

const readRequestBody = `
  SELECT body
    FROM latchkey_request_bodies
   WHERE scope = ? AND key = ?`;

/** Nothing deletes it: a trigger does, when the head of the request is taken from the record. */
const writeRequestBody = `
  INSERT INTO latchkey_request_bodies (scope, key, body)
  VALUES (?, ?, ?)
      ON CONFLICT (scope, key) DO UPDATE
     SET body = excluded.body`;

/** Parameters: the new end of the lease, then the lease. */
const renewLease = `
  UPDATE latchkey_records
     SET lease_until = ?
   WHERE scope = ? AND key = ? AND fence = ? AND owner = ? AND state = 'in_progress'`;

/**
 * What `settled` says of a completion in core/transition.ts, without reading the record first: this is on the path of
 * every request. Parameters: the response's status, head and body, the time, the end of retention, then the lease.
 */
const completion = {
  columns: `
         state = 'completed',
         response_status = ?,
         response_head = ?,
         response_body = ?,
         completed_at = ?,
         expires_at = ?,
         lease_until = NULL`,
  lease: "scope = ? AND key = ? AND fence = ? AND owner = ? AND state = 'in_progress'",
};

/** Does not touch the head of the request: a third of the time would go to the trigger that follows it. */
const completeLease = `
  UPDATE latchkey_records
     SET ${completion.columns}
   WHERE ${completion.lease} AND request_head IS NULL`;

/**
 * Many completions with the same terms. Parameters: the response's status and head, the time and the end of retention; then
 * scope, key, owner and the response's body of each; then the fence. Each record is found in an expression: left to
 * itself, SQLite may rather go through all records of the scope than through the list.
 */
export const completeLeases = (count: number) => `
  ${completionOfEach}
    FROM (VALUES ${rows(count, "(?, ?, ?, ?)")}) AS done
   WHERE latchkey_records.rowid = (
           SELECT rowid
             FROM latchkey_records AS found
            WHERE found.scope = done.column1 AND found.key = done.column2)
     AND ${leaseOfEach}`;

/**
 * The same for leases that know their row, which is the fifth parameter of each. That is only where to look: records may
 * have moved since (VACUUM), and the row of one that was removed is given to another. The plus signs leave SQLite no other
 * way than to go through the list.
 */
export const completePlacedLeases = (count: number) => `
  ${completionOfEach}
    FROM (VALUES ${rows(count, "(?, ?, ?, ?, ?)")}) AS done
   WHERE latchkey_records.rowid = +done.column5
     AND +latchkey_records.scope = +done.column1 AND +latchkey_records.key = +done.column2
     AND ${leaseOfEach}`;

const completionOfEach = `
  UPDATE OR ROLLBACK latchkey_records
     SET state = 'completed',
         response_status = ?,
         response_head = ?,
         completed_at = ?,
         expires_at = ?,
         response_body = done.column4,
         lease_until = NULL`;

const leaseOfEach = `latchkey_records.owner = +done.column3 AND latchkey_records.fence = ?
     AND +latchkey_records.state = 'in_progress' AND request_head IS NULL`;

const completeLeaseOfKeptRequest = `
  UPDATE latchkey_records
     SET ${completion.columns},
         request_head = NULL
   WHERE ${completion.lease} AND request_head IS NOT NULL`;

/** Whoever has a lease is in progress. Parameters: the time, the limit. */
export const findDeadExecutions = `
  SELECT scope, key
    FROM latchkey_records
   WHERE lease_until <= ?
   ORDER BY lease_until
   LIMIT ?`;

/** The first condition is the index's, which is used only where it is said. Parameters: the time, the limit. */
export const findUnclaimed = `
  SELECT scope, key
    FROM latchkey_records
   WHERE coalesce(resume_after, reason) IS NOT NULL
     AND (state = 'pending' OR (state = 'failed_retryable' AND progress IS NOT NULL AND resume_after IS NULL))
     AND expires_at <= ?
   ORDER BY expires_at
   LIMIT ?`;

/** Parameters: the time, twice, and the limit. */
export const findResumable = `
  SELECT scope, key
    FROM latchkey_records
   WHERE resume_after <= ? AND request_head IS NOT NULL AND (state <> 'pending' OR expires_at > ?)
   ORDER BY resume_after
   LIMIT ?`;

/** Only what is unknown has a time to ask. Parameters: the time, the limit. */
export const findUnknown = `
  SELECT scope, key
    FROM latchkey_records
   WHERE escalated_at IS NULL AND reconcile_after <= ?
   ORDER BY reconcile_after
   LIMIT ?`;

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
         response_body = NULL,
         progress = NULL,
         claims = 0,
         request_head = NULL
   WHERE rowid IN (
           SELECT rowid
             FROM latchkey_records
            WHERE state IN ('completed', 'failed_retryable') AND resume_after IS NULL
              AND (state = 'completed' OR progress IS NULL) AND expires_at <= ?
            ORDER BY expires_at
            LIMIT ?)`;

/** Parameters: the time, the limit. */
export const deleteSettled = `
  DELETE FROM latchkey_records
   WHERE rowid IN (
           SELECT rowid
             FROM latchkey_records
            WHERE state IN ('completed', 'failed_retryable') AND resume_after IS NULL
              AND (state = 'completed' OR progress IS NULL) AND expires_at <= ?
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
