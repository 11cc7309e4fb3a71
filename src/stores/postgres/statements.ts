import { createHash } from "node:crypto";
import type { RecordId } from "../../core/record.ts";

/*
 * Every statement that the store sends. Parameters and results are only of types that all drivers treat alike: text,
 * int4, float8 (times and durations, in milliseconds), bool and bytea. Result columns are single lower-case words,
 * because a client may be set to rewrite names such as expires_at to camel case.
 */

/** Whole milliseconds: what a statement compares must be what `decide` is told. */
const now = "date_trunc('milliseconds', now())";

/** The process that owns the session holds this lock exclusively. Named by the table, so that schemas do not mix. */
const lockClass = "'latchkey_records'::regclass::oid::int";

/**
 * Until when the owner of a record counts as alive: until its lease runs out, or until just now, if the record names
 * a session and that session's lock is free. Probing shares the lock, so that probes do not disturb each other, and
 * gives it back with the end of the statement. CASE, because AND promises no order, and only this one must be asked.
 */
const leaseUntil = (r: string) => `
    CASE WHEN ${r}.state = 'in_progress' AND ${r}.owner_session IS NOT NULL
      THEN CASE WHEN pg_try_advisory_xact_lock_shared(${lockClass}, ${r}.owner_session)
        THEN least(${r}.lease_until, ${now}) ELSE ${r}.lease_until END
      ELSE ${r}.lease_until END`;

/** Where `decide` answers "execute" to a record that is there. The fingerprint of the request is $3. */
const takeable = (r: string, until: string) => `
    CASE ${r}.state
      WHEN 'expired' THEN true
      WHEN 'completed' THEN ${r}.expires_at <= ${now}
      WHEN 'failed_retryable' THEN ${r}.expires_at <= ${now} OR ${r}.fingerprint = $3
      WHEN 'in_progress' THEN ${r}.fingerprint = $3 AND ${r}.on_crash <> 'reconcile' AND ${until} <= ${now}
      ELSE false END`;

/** What the key of a record that is being taken was before, as `decide` calls it. */
const takenAfter = (r: string) => `
    CASE WHEN ${r}.state = 'in_progress' THEN 'crash'
      WHEN ${r}.state = 'failed_retryable' AND ${r}.expires_at > ${now} THEN 'failed_retryable'
      ELSE 'expired' END`;

const milliseconds = (time: string) => `(extract(epoch FROM ${time}) * 1000)::float8`;

const fromNow = (duration: string) => `${now} + ${duration}::float8 * interval '1 millisecond'`;

/** A record as `recordOf` reads it. */
const recordColumns = (r: string) => `
  ${r}.state, ${r}.fingerprint, ${r}.fence, ${r}.on_crash AS crash, ${r}.owner,
  ${milliseconds(`${r}.lease_until`)} AS lease, ${milliseconds(`${r}.reconcile_after`)} AS reconcile, ${r}.reason,
  ${r}.response_status AS status, ${r}.response_head AS head, ${r}.response_body AS body,
  ${milliseconds(`${r}.created_at`)} AS created, ${milliseconds(`${r}.completed_at`)} AS completed,
  ${milliseconds(`${r}.expires_at`)} AS expires`;

/** The same, as it was found and with what is known about its owner. */
const foundRecord = `
  SELECT r.state, r.fingerprint, r.fence, r.on_crash, r.owner, ${leaseUntil("r")} AS lease_until,
    r.reconcile_after, r.reason, r.response_status, r.response_head, r.response_body,
    r.created_at, r.completed_at, r.expires_at
  FROM latchkey_records AS r
  WHERE r.scope = $1 AND r.key = $2`;

/** The channel on which stores tell each other that a record has changed. */
export const channel = "latchkey";

/** What a record is called on the channel: its id may be longer than a payload, and is nobody's business. */
export function recordName(id: RecordId): string {
  return createHash("sha256").update(id.scope).update("\0").update(id.key).digest("hex");
}

/** The same in SQL. Text holds no zero byte, so no two ids have one name. */
const recordNameOf = (r: string) =>
  `encode(sha256(convert_to(${r}.scope, 'UTF8') || '\\x00'::bytea || convert_to(${r}.key, 'UTF8')), 'hex')`;

/** Wakes whoever waits for what was changed. It counts, because a SELECT that nobody refers to is not executed. */
const told = (changed: string) => `
  told AS (
    SELECT count(pg_notify('${channel}', ${recordNameOf(changed)}))::int AS count
    FROM ${changed} WHERE ${changed}.watched
  )`;

/**
 * Answers an arriving request in one round trip. What may not be executed is only read: the INSERT has no row to
 * insert, so nothing is locked or written. Otherwise it inserts, or takes the record over, if it is still takeable
 * when its lock is held. `taken` is NULL where somebody else was faster; `state` too, where they came after the
 * snapshot.
 *
 * $1 scope, $2 key, $3 fingerprint, $4 onCrash, $5 owner, $6 session or NULL, $7 lease, $8 retention
 */
export const reserve = `
WITH found AS (${foundRecord}
),
taken AS (
  INSERT INTO latchkey_records AS r (
    scope, key, state, fingerprint, fence, on_crash, owner, owner_session,
    lease_until, reason, created_at, expires_at)
  SELECT $1, $2, 'in_progress', $3::text, 1, $4::text, $5::text, $6::int,
    ${fromNow("$7")}, 'absent', ${now}, ${fromNow("$8")}
  WHERE NOT EXISTS (SELECT FROM found WHERE NOT (${takeable("found", "found.lease_until")}))
  ON CONFLICT (scope, key) DO UPDATE SET
    state = excluded.state,
    fingerprint = excluded.fingerprint,
    fence = r.fence + 1,
    on_crash = excluded.on_crash,
    owner = excluded.owner,
    owner_session = excluded.owner_session,
    lease_until = excluded.lease_until,
    reason = ${takenAfter("r")},
    created_at = CASE WHEN ${takenAfter("r")} = 'expired' THEN excluded.created_at ELSE r.created_at END,
    expires_at = excluded.expires_at,
    completed_at = NULL,
    response_status = NULL,
    response_head = NULL,
    response_body = NULL
  WHERE ${takeable("r", leaseUntil("r"))}
  RETURNING r.fence, r.reason
)
SELECT ${milliseconds(now)} AS now, taken.fence AS taken, taken.reason AS after, ${recordColumns("found")}
FROM (VALUES (1)) AS always
LEFT JOIN taken ON true
LEFT JOIN found ON taken.fence IS NULL`;

/**
 * Writes down that an owner is gone and may have executed, unless it has moved on since it was found so.
 *
 * $1 scope, $2 key, $3 fence, $4 owner, $5 reason, $6 when to reconcile
 */
export const suspendCrashed = `
WITH suspended AS (
  UPDATE latchkey_records AS r SET
    state = 'unknown',
    reason = $5,
    reconcile_after = ${fromNow("$6")},
    owner = NULL,
    owner_session = NULL,
    lease_until = NULL
  WHERE r.scope = $1 AND r.key = $2 AND r.fence = $3 AND r.owner = $4 AND r.state = 'in_progress'
    AND ${leaseUntil("r")} <= ${now}
  RETURNING r.scope, r.key, r.watched
),${told("suspended")}
SELECT told.count AS told FROM suspended, told`;

/**
 * Ends a lease. Answers the record's state and expiry as they are with this lease: the new ones, or, if nothing was
 * changed, the ones in which the lease stands. No row: the lease is lost.
 *
 * $1 scope, $2 key, $3 fence, $4 owner, $5 state, $6 reason, $7 status, $8 head, $9 body, $10 retention or NULL to
 * leave it, $11 when to reconcile or NULL
 */
export const settle = `
WITH settled AS (
  UPDATE latchkey_records AS r SET
    state = $5,
    reason = $6,
    response_status = $7,
    response_head = $8,
    response_body = $9,
    completed_at = CASE WHEN $5 = 'completed' THEN ${now} END,
    expires_at = coalesce(${fromNow("$10")}, r.expires_at),
    reconcile_after = ${fromNow("$11")},
    owner_session = NULL,
    lease_until = NULL
  WHERE r.scope = $1 AND r.key = $2 AND r.fence = $3 AND r.owner = $4 AND r.state = 'in_progress'
  RETURNING r.scope, r.key, r.state, r.expires_at, r.watched
),${told("settled")}
SELECT state, ${milliseconds("expires_at")} AS expires, told.count AS told FROM settled, told
UNION ALL
SELECT state, ${milliseconds("expires_at")}, 0 FROM latchkey_records
WHERE scope = $1 AND key = $2 AND fence = $3 AND owner = $4 AND NOT EXISTS (SELECT FROM settled)`;

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

/** $1 scope, $2 key */
export const read = `
WITH found AS (${foundRecord}
)
SELECT ${milliseconds(now)} AS now, ${recordColumns("found")}
FROM (VALUES (1)) AS always LEFT JOIN found ON true`;

/**
 * Ends executions whose owner is gone, as their onCrash says. Looks at every execution under way, which are few,
 * because a session can end long before the leases that it owned.
 *
 * $1 limit, $2 reason, $3 when to reconcile
 */
export const sweep = `
WITH gone AS (
  SELECT r.scope, r.key FROM latchkey_records AS r
  WHERE r.state = 'in_progress' AND ${leaseUntil("r")} <= ${now}
  ORDER BY r.lease_until
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
  RETURNING r.scope, r.key, r.state, r.watched
),${told("swept")}
SELECT
  (count(*) FILTER (WHERE state = 'unknown'))::int AS unknown,
  (count(*) FILTER (WHERE state = 'failed_retryable'))::int AS retryable,
  (SELECT count FROM told) AS told
FROM swept`;

/** Deletes settled records past their retention, and what was kept for audit. $1 limit */
export const reapDeleting = `
WITH settled AS (
  SELECT scope, key FROM latchkey_records
  WHERE state IN ('completed', 'failed_retryable') AND expires_at <= ${now}
  LIMIT $1
  FOR UPDATE SKIP LOCKED
),
kept AS (
  SELECT scope, key FROM latchkey_records
  WHERE state = 'expired' AND expires_at <= ${now}
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
  WHERE state IN ('completed', 'failed_retryable') AND expires_at <= ${now}
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
