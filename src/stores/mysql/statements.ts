import { recordColumns } from "../record-row.ts";

/*
 * Statements on records and on the audit trail. Those that most requests need are procedures, and stand in
 * migrations/0001_records.sql.
 *
 * Whoever looks for work reads without locking anything, and then locks what was found by its primary key, in its
 * order: at the default isolation level, looking for rows and locking them at once would lock the gaps between them,
 * too, and new records would have to wait. FORCE INDEX, because while a table is small the server would rather go
 * through all of it, and lock all of it.
 */

/** The store's clock, in whole milliseconds. */
export const now = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)";

/** The last time that a JavaScript Date can hold. */
const momentMax = 8_640_000_000_000_000;

/** So many milliseconds from now, but never later than there are dates. */
export const fromNow = (duration: string) => `LEAST(${now} + ${duration}, ${momentMax})`;

const placeholders = (count: number) => Array.from({ length: count }, () => "?").join(", ");

/** Begins a transaction that reads one snapshot, and nothing that is not committed. */
export const beginRead = "CALL latchkey_begin_read()";
/** Parameters: id, scope, key, and what the record is to be if there is none. */
export const reserve = `CALL latchkey_reserve(${placeholders(14)})`;
/** Parameters: id, fence, owner, the response's status, head and body, the retention. */
export const complete = `CALL latchkey_complete(${placeholders(7)})`;
/** Parameters: id, scope, key. */
export const read = `CALL latchkey_read(${placeholders(3)})`;
/** Parameters: id, scope, key. */
export const lock = `CALL latchkey_lock(${placeholders(3)})`;
export const beginPhase = "CALL latchkey_begin_phase()";
/** Parameters: id, fence, owner, progress, onCrash; the response's status, head and body, the retention. */
export const endPhase = `CALL latchkey_end_phase(${placeholders(9)})`;

/** Parameters: the values of `recordColumns`, the job, when it is due; the body of the request; the id. */
export const writeRecord = ({ withRequest }: { readonly withRequest: boolean }) => `
  UPDATE latchkey_records
     SET ${recordColumns.map((column) => `${column} = ?`).join(", ")}, job = ?, due_at = ?${
       withRequest ? ", request_body = ?" : ""
     }
   WHERE id = ?`;

/** Parameters: the lease's duration, twice; then id, fence and owner of each lease. */
export const renew = (count: number) => `
  UPDATE latchkey_records FORCE INDEX (PRIMARY)
     SET lease_until = ${fromNow("?")}, due_at = ${fromNow("?")}
   WHERE state = 'in_progress'
     AND (${Array.from({ length: count }, () => "(id = ? AND fence = ? AND owner = ?)").join(" OR ")})`;

/** Parameters: the ids. */
export const readHolders = (list: string) => `
  SELECT id, fence, owner
    FROM latchkey_records
   WHERE id IN (${list}) AND state = 'in_progress'`;

/** Parameters: progress, onCrash, id, fence, owner. */
export const advance = `
  UPDATE latchkey_records
     SET progress = ?, on_crash = ?
   WHERE id = ? AND fence = ? AND owner = ? AND state = 'in_progress'`;

export type Job = "lease" | "unclaimed" | "settled" | "expired" | "unknown";

/** Parameters: the job. */
export const findDue = (limit: number) => `
  SELECT id
    FROM latchkey_records
   WHERE job = ? AND due_at <= ${now}
   ORDER BY due_at
   LIMIT ${limit}`;

export const findResumable = (limit: number) => `
  SELECT id
    FROM latchkey_records
   WHERE resume_after <= ${now} AND request_head IS NOT NULL AND (state <> 'pending' OR expires_at > ${now})
   ORDER BY resume_after
   LIMIT ${limit}`;

/** What others have locked is being worked on. Parameters: the ids. */
export const lockFound = (list: string) => `
  SELECT ${now} AS clock, id, scope, record_key, request_body, ${recordColumns.join(", ")}
    FROM latchkey_records FORCE INDEX (PRIMARY)
   WHERE id IN (${list})
   ORDER BY id
     FOR UPDATE SKIP LOCKED`;

/** Parameters: the ids. */
export const deleteDue = (list: string, job: Job) => `
  DELETE r
    FROM latchkey_records AS r FORCE INDEX (PRIMARY)
   WHERE r.id IN (${list}) AND r.job = '${job}' AND r.due_at <= ${now}`;

/** What `expired` says in core/transition.ts, without reading any body. Parameters: the ids. */
export const markExpired = (list: string) => `
  UPDATE latchkey_records FORCE INDEX (PRIMARY)
     SET state = 'expired', owner = NULL, reason = NULL, completed_at = NULL, response_status = NULL,
         response_head = NULL, response_body = NULL, progress = NULL, claims = 0, request_head = NULL,
         request_body = NULL, job = 'expired'
   WHERE id IN (${list}) AND job = 'settled' AND due_at <= ${now}`;

/** Parameters of each: at, record id, scope's id, scope, key, fence, from, to, by, reason. */
export const insertAudit = (count: number) => `
  INSERT INTO latchkey_audit (
         at, record_id, scope_id, scope, record_key, fence, from_state, to_state, actor, reason)
  VALUES ${Array.from({ length: count }, () => `(${placeholders(10)})`).join(", ")}`;

export const readAudit = (where: string, limit: number) => `
  SELECT id AS number, at, scope, record_key, fence, from_state, to_state, actor, reason
    FROM latchkey_audit
   WHERE ${where}
   ORDER BY id DESC
   LIMIT ${limit}`;
