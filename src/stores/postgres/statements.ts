import { hash } from "node:crypto";
import type { RecordId } from "../../core/record.ts";

/*
 * Every statement that the store sends. Parameters and results are only of types that all drivers treat alike: text,
 * int4, float8 (times and durations, in milliseconds), bool and bytea. Result columns are single lower-case words,
 * because a client may be set to rewrite names such as expires_at to camel case.
 *
 * No statement is prepared under a name, so each one is parsed and planned whenever it is sent. That costs the server
 * more than running it, and is why what most requests need is kept short, and the rest comes as a second statement.
 */

/** The store's clock. Columns hold whole milliseconds, so comparing them with now() comes to the same. */
const now = "date_trunc('milliseconds', now())";

const milliseconds = (time: string) => `(extract(epoch FROM ${time}) * 1000)::float8`;

const fromNow = (duration: string) => `now() + ${duration}::float8 * interval '1 millisecond'`;

/** With the session's number: the lock that a live session holds. Named by the table, so that schemas do not mix. */
const lockClass = "'latchkey_records'::regclass::oid::int";

/**
 * Until when the owner of a running execution counts as alive: until its lease runs out, or until just now, if the
 * record names a session and the session's lock is free. The probe shares the lock, so that probes do not disturb each
 * other, and gives it back with the end of the statement. It is within CASE because AND promises no order, and only
 * sessions are to be probed.
 */
const leaseUntil = `
    CASE WHEN owner_session IS NULL THEN lease_until
      WHEN pg_try_advisory_xact_lock_shared(${lockClass}, owner_session) THEN least(lease_until, ${now})
      ELSE lease_until END`;

/** One record as `recordOf` reads it. $1 scope, $2 key */
const record = `
  SELECT state, fingerprint, fence, on_crash AS crash, owner, ${milliseconds(leaseUntil)} AS lease,
    ${milliseconds("reconcile_after")} AS reconcile, reason,
    response_status AS status, response_head AS head, response_body AS body,
    ${milliseconds("created_at")} AS created, ${milliseconds("completed_at")} AS completed,
    ${milliseconds("expires_at")} AS expires
  FROM latchkey_records
  WHERE scope = $1 AND key = $2`;

/** The channel on which stores tell each other that a record has changed. */
export const channel = "latchkey";

/** For RETURNING: wakes whoever waits for the record, when the statement commits. */
function tellWatchers(name: string): string {
  return `CASE WHEN watched THEN pg_notify('${channel}', ${name})::text END AS told`;
}

/** What a record is called on the channel: its id may be longer than a payload, and is nobody's business. */
export function recordName(id: RecordId): string {
  return hash("sha256", `${id.scope}\0${id.key}`, "hex");
}

/** The same for statements that change many records. Text holds no zero byte, so no two ids have one name. */
function recordNameInSql(r: string): string {
  return `encode(sha256(convert_to(${r}.scope, 'UTF8') || '\\x00'::bytea || convert_to(${r}.key, 'UTF8')), 'hex')`;
}

/** $1 scope, $2 key */
export const read = `
SELECT ${milliseconds(now)} AS now, found.*
FROM (VALUES (1)) AS always LEFT JOIN (${record}
) AS found ON true`;

/**
 * Inserts a new record or finds the old one, in one round trip. An old one is only read: there is nothing to insert
 * then, so nothing is locked or written. Neither inserted nor found means that another request was inserting the
 * same key.
 *
 * $1 scope, $2 key, $3 fingerprint, $4 onCrash, $5 owner, $6 session or NULL, $7 lease, $8 retention
 */
export const reserve = `
WITH found AS (${record}
),
inserted AS (
  INSERT INTO latchkey_records (
    scope, key, state, fingerprint, fence, on_crash, owner, owner_session, lease_until, created_at, expires_at)
  SELECT $1, $2, 'in_progress', $3::text, 1, $4::text, $5::text, $6::int, ${fromNow("$7")}, ${now}, ${fromNow("$8")}
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT DO NOTHING
  RETURNING 1
)
SELECT ${milliseconds(now)} AS now, EXISTS (SELECT FROM inserted) AS inserted, found.*
FROM (VALUES (1)) AS always LEFT JOIN found ON true`;

/**
 * Gives a record that was found to the request that may execute it, unless anybody else was faster: the fence is as
 * it was found, so is the state, and nobody has renewed a lease.
 *
 * $1 scope, $2 key, $3 fingerprint, $4 onCrash, $5 owner, $6 session or NULL, $7 lease, $8 retention,
 * $9 fence and $10 state as found, $11 whether the key is used anew
 */
export const takeOver = `
UPDATE latchkey_records SET
  state = 'in_progress',
  fingerprint = $3,
  fence = fence + 1,
  on_crash = $4,
  owner = $5,
  owner_session = $6,
  lease_until = ${fromNow("$7")},
  created_at = CASE WHEN $11::bool THEN ${now} ELSE created_at END,
  expires_at = ${fromNow("$8")},
  reason = NULL,
  completed_at = NULL,
  response_status = NULL,
  response_head = NULL,
  response_body = NULL
WHERE scope = $1 AND key = $2 AND fence = $9 AND state = $10
  AND (state <> 'in_progress' OR ${leaseUntil} <= now())
RETURNING fence`;

/**
 * Writes down that the owner is gone and may have executed, unless the record has moved on since it was found so.
 *
 * $1 scope, $2 key, $3 fence and $4 owner as found, $5 reason, $6 when to reconcile, $7 name
 */
export const suspendCrashed = `
UPDATE latchkey_records SET
  state = 'unknown',
  reason = $5,
  reconcile_after = ${fromNow("$6")},
  owner = NULL,
  owner_session = NULL,
  lease_until = NULL
WHERE scope = $1 AND key = $2 AND fence = $3 AND owner = $4 AND state = 'in_progress' AND ${leaseUntil} <= now()
RETURNING ${tellWatchers("$7")}`;

/**
 * Ends a lease. No row: it did not hold the record any more.
 *
 * $1 scope, $2 key, $3 fence, $4 owner, $5 state, $6 reason, $7 status, $8 head, $9 body, $10 retention or NULL to
 * leave it, $11 when to reconcile or NULL, $12 name
 */
export const settle = `
UPDATE latchkey_records SET
  state = $5,
  reason = $6,
  response_status = $7,
  response_head = $8,
  response_body = $9,
  completed_at = CASE WHEN $5 = 'completed' THEN ${now} END,
  expires_at = coalesce(${fromNow("$10")}, expires_at),
  reconcile_after = ${fromNow("$11")},
  owner_session = NULL,
  lease_until = NULL
WHERE scope = $1 AND key = $2 AND fence = $3 AND owner = $4 AND state = 'in_progress'
RETURNING ${milliseconds("expires_at")} AS expires, ${tellWatchers("$12")}`;

/**
 * What a lease was settled as before. Asked for after a settlement that changed nothing, with a later snapshot: it
 * may have waited for the same settlement, told twice at once.
 *
 * $1 scope, $2 key, $3 fence, $4 owner
 */
export const settledBefore = `
SELECT state, ${milliseconds("expires_at")} AS expires
FROM latchkey_records
WHERE scope = $1 AND key = $2 AND fence = $3 AND owner = $4`;

/**
 * Extends leases, and says of each, in order, whether it is still held.
 *
 * $1 scopes, $2 keys, $3 fences, $4 owners: array literals of one length; $5 lease
 */
export const renew = `
WITH lease AS (
  SELECT * FROM unnest($1::text::text[], $2::text::text[], $3::text::int[], $4::text::text[])
    WITH ORDINALITY AS lease (scope, key, fence, owner, position)
),
renewed AS (
  UPDATE latchkey_records AS r SET lease_until = ${fromNow("$5")}
  FROM lease
  WHERE r.scope = lease.scope AND r.key = lease.key AND r.fence = lease.fence AND r.owner = lease.owner
    AND r.state = 'in_progress'
  RETURNING r.scope, r.key, r.fence, r.owner
)
SELECT renewed.fence IS NOT NULL AS held
FROM lease LEFT JOIN renewed USING (scope, key, fence, owner)
ORDER BY lease.position`;

/**
 * Ends executions whose owner is gone, as their onCrash says. Looks at every execution under way, which are few,
 * because a session can end long before the leases that it owned.
 *
 * $1 limit, $2 reason, $3 when to reconcile
 */
export const sweep = `
WITH gone AS (
  SELECT scope, key FROM latchkey_records
  WHERE state = 'in_progress' AND ${leaseUntil} <= now()
  ORDER BY lease_until
  LIMIT $1
  FOR UPDATE SKIP LOCKED
),
swept AS (
  UPDATE latchkey_records AS r SET
    state = CASE r.on_crash WHEN 'reconcile' THEN 'unknown' ELSE 'failed_retryable' END,
    reason = $2,
    reconcile_after = CASE r.on_crash WHEN 'reconcile' THEN ${fromNow("$3")} END,
    owner = NULL,
    owner_session = NULL,
    lease_until = NULL
  FROM gone
  WHERE r.scope = gone.scope AND r.key = gone.key
  RETURNING r.state, ${tellWatchers(recordNameInSql("r"))}
)
SELECT
  (count(*) FILTER (WHERE state = 'unknown'))::int AS unknown,
  (count(*) FILTER (WHERE state = 'failed_retryable'))::int AS retryable
FROM swept`;

/** Deletes settled records past their retention, and what was kept for audit. $1 limit */
export const reapDeleting = `
WITH settled AS (
  SELECT scope, key FROM latchkey_records
  WHERE state IN ('completed', 'failed_retryable') AND expires_at <= now()
  LIMIT $1
  FOR UPDATE SKIP LOCKED
),
kept AS (
  SELECT scope, key FROM latchkey_records
  WHERE state = 'expired' AND expires_at <= now()
  LIMIT $1
  FOR UPDATE SKIP LOCKED
),
due AS (
  SELECT * FROM settled UNION ALL SELECT * FROM kept LIMIT $1
),
reaped AS (
  DELETE FROM latchkey_records AS r USING due WHERE r.scope = due.scope AND r.key = due.key RETURNING 1
)
SELECT count(*)::int AS reaped FROM reaped`;

/** Keeps settled records past their retention for audit, without their response. $1 limit */
export const reapMarking = `
WITH due AS (
  SELECT scope, key FROM latchkey_records
  WHERE state IN ('completed', 'failed_retryable') AND expires_at <= now()
  LIMIT $1
  FOR UPDATE SKIP LOCKED
),
reaped AS (
  UPDATE latchkey_records AS r SET
    state = 'expired',
    owner = NULL,
    reason = NULL,
    completed_at = NULL,
    response_status = NULL,
    response_head = NULL,
    response_body = NULL
  FROM due
  WHERE r.scope = due.scope AND r.key = due.key
  RETURNING 1
)
SELECT count(*)::int AS reaped FROM reaped`;

/** Marks a record for which somebody waits. Only what is under way can change on its own. $1 scope, $2 key */
export const watch = `
UPDATE latchkey_records SET watched = true
WHERE scope = $1 AND key = $2 AND state = 'in_progress' AND NOT watched`;

/** Begins to own: a new number, and the lock that says that its session lives. */
export const ownSession = `
WITH numbered AS MATERIALIZED (SELECT nextval('latchkey_sessions')::int AS session)
SELECT session, pg_advisory_lock(${lockClass}, session) AS locked FROM numbered`;

/** Whether the session answers, and from which server process. */
export const pingSession = "SELECT pg_backend_pid() AS pid";

export const listen = `LISTEN ${channel}`;
