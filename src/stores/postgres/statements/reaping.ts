import { milliseconds } from "./sql.ts";

/** As core's `isSettled` says it, of what is not expired yet. What waits to be finished, or is half done, is not. */
export const isSettled = `
  state IN ('completed', 'failed_retryable') AND resume_after IS NULL
  AND (state = 'completed' OR progress IS NULL)`;

const isExpired = `${isSettled} AND expires_at <= now()`;

/** As core's `expired` says it: what is kept for audit, and for its fence. */
export const expire = `
    state = 'expired',
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

/** Deletes settled records past their retention, and what was kept for audit. $1 limit, $2 where to go on */
export function reapDeleting(table = "latchkey_records", where = "true"): string {
  return `
WITH settled AS (
  SELECT scope, key, expires_at FROM ${table}
  WHERE ${isExpired} AND ${goingOn} AND ${where}
  ORDER BY expires_at
  LIMIT $1::int
  FOR UPDATE SKIP LOCKED
),
kept AS (
  SELECT scope, key, expires_at FROM ${table}
  WHERE state = 'expired' AND expires_at <= now() AND ${where}
  LIMIT $1::int - (SELECT count(*) FROM settled)
  FOR UPDATE SKIP LOCKED
),
due AS (
  SELECT * FROM settled UNION ALL SELECT * FROM kept
),
reaped AS (
  DELETE FROM ${table} AS r USING due WHERE r.scope = due.scope AND r.key = due.key RETURNING 1
)
SELECT (SELECT count(*)::int FROM reaped) AS reaped, (SELECT ${milliseconds("max(expires_at)")} FROM settled) AS until`;
}

/** Keeps settled records past their retention for audit, without their response. $1 limit, $2 where to go on */
export const reapMarking = `
WITH due AS (
  SELECT scope, key, expires_at FROM latchkey_records
  WHERE ${isExpired} AND ${goingOn}
  ORDER BY expires_at
  LIMIT $1::int
  FOR UPDATE SKIP LOCKED
),
reaped AS (
  UPDATE latchkey_records AS r SET ${expire}
  FROM due
  WHERE r.scope = due.scope AND r.key = due.key
  RETURNING 1
)
SELECT (SELECT count(*)::int FROM reaped) AS reaped, (SELECT ${milliseconds("max(expires_at)")} FROM due) AS until`;
