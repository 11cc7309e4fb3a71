import { becomes, expiry, milliseconds } from "./sql.ts";

/** As core's `isSettled` says it, of what is not expired yet. What waits to be finished, or is half done, is not. */
export const isSettled = `
  state IN ('completed', 'failed_retryable') AND resume_after IS NULL
  AND (state = 'completed' OR progress IS NULL)`;

/** Answers past their retention, by the index that has those and what is under way. */
const isPast = `unusual IS NULL AND state = 'completed' AND expires_at <= now() AND ${expiry()} <= now()`;

/** Failures past theirs, which nobody has to finish. */
const isPastFailure = `
  unusual IN ('pending', 'failed_retryable') AND state = 'failed_retryable' AND resume_after IS NULL AND progress IS NULL
  AND expires_at <= now()`;

/** As core's `expired` says it: what is kept for audit, and for its fence. */
export const expire = `
    ${becomes("'expired'")},
    expires_at = ${expiry("r.")},
    kept_until = NULL,
    owner = NULL,
    reason = NULL,
    progress = NULL,
    request_head = NULL,
    request_body = NULL,
    completed_at = NULL,
    response_status = NULL,
    response_head = NULL,
    response_body = NULL`;

/**
 * Where the last batch ended. Without it every batch would first walk through the index entries of all that were
 * deleted before it and are not vacuumed yet. $2 milliseconds, or NULL to begin at the beginning
 */
const goingOn = "expires_at >= coalesce(to_timestamp($2::float8 / 1000), '-infinity')";

/** What is due, oldest answers first. */
const settled = (table: string, where: string) => `
answers AS (
  SELECT scope, key, expires_at FROM ${table}
  WHERE ${isPast} AND ${goingOn} AND ${where}
  ORDER BY expires_at
  LIMIT $1::int
  FOR UPDATE SKIP LOCKED
),
failures AS (
  SELECT scope, key, expires_at FROM ${table}
  WHERE ${isPastFailure} AND ${where}
  LIMIT $1::int - (SELECT count(*) FROM answers)
  FOR UPDATE SKIP LOCKED
)`;

/**
 * The last net below `latchkey_list_leases`: what is under way for longer than answers are kept, and is on no list, is
 * listed, so that the sweeper looks at it.
 */
const listed = (table: string) => `
unlisted AS (
  SELECT scope, key FROM ${table}
  WHERE unusual IS NULL AND state = 'in_progress' AND lapses_at IS NULL AND expires_at <= now() AND ${goingOn}
  LIMIT $1::int
  FOR UPDATE SKIP LOCKED
),
listed AS (
  UPDATE ${table} AS r SET lapses_at = r.lease_until FROM unlisted
  WHERE r.scope = unlisted.scope AND r.key = unlisted.key
)`;

const counted = `
SELECT (SELECT count(*)::int FROM reaped) AS reaped, (SELECT ${milliseconds("max(expires_at)")} FROM answers) AS until`;

/** Deletes settled records past their retention, and what was kept for audit. $1 limit, $2 where to go on */
export function reapDeleting(table = "latchkey_records", where = "true"): string {
  return `
WITH ${settled(table, where)},
kept AS (
  SELECT scope, key, expires_at FROM ${table}
  WHERE unusual = 'expired' AND expires_at <= now() AND ${where}
  LIMIT $1::int - (SELECT count(*) FROM answers) - (SELECT count(*) FROM failures)
  FOR UPDATE SKIP LOCKED
),
due AS (
  SELECT * FROM answers UNION ALL SELECT * FROM failures UNION ALL SELECT * FROM kept
),
reaped AS (
  DELETE FROM ${table} AS r USING due WHERE r.scope = due.scope AND r.key = due.key RETURNING 1
),${listed(table)}
${counted}`;
}

/** Keeps settled records past their retention for audit, without their response. $1 limit, $2 where to go on */
export const reapMarking = `
WITH ${settled("latchkey_records", "true")},
due AS (
  SELECT * FROM answers UNION ALL SELECT * FROM failures
),
reaped AS (
  UPDATE latchkey_records AS r SET ${expire}
  FROM due
  WHERE r.scope = due.scope AND r.key = due.key
  RETURNING 1
),${listed("latchkey_records")}
${counted}`;
