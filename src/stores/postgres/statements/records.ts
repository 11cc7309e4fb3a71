import { audited } from "./audit.ts";
import {
  becomes,
  expiry,
  fromNow,
  keptUntil,
  leaseUntil,
  milliseconds,
  now,
  ownedHere,
  record,
  tellWatchers,
  unusualOf,
} from "./sql.ts";

/** $1 scope, $2 key */
export const read = `
SELECT ${milliseconds(now)} AS now, found.*
FROM (VALUES (1)) AS always LEFT JOIN (${record}
) AS found ON true`;

/**
 * $1 scopes, $2 keys: the places, from 1, of those that have a record. Each is looked for by itself, so that the index is
 * all that is read however many there are.
 */
export const existing = `
SELECT asked.place::int AS place
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (scope, key, place)
CROSS JOIN LATERAL (
  SELECT FROM latchkey_records AS r WHERE r.scope = asked.scope AND r.key = asked.key LIMIT 1
) AS found`;

/**
 * The columns of a new record, and what they are. $1 scope, $2 key, $3 fingerprint, $4 onCrash, $5 owner or NULL,
 * $6 session or NULL, $7 lease or NULL, $8 retention, $9 in_progress or pending, $10 route, $11 and $12 the request,
 * $13 how long after a crash reconciliation may ask. `lapses` is the lease, if it is to be listed at once.
 */
export const newRecord = ({ session = "$6::int", lapses = "NULL::timestamptz" } = {}) => ({
  columns: `scope, key, fingerprint, on_crash, owner, owner_session, lease_until, expires_at, state, route,
    request_head, request_body, reconcile_ms, fence, resume_after, created_at, unusual, lapses_at`,
  values: `$1, $2, $3::text, $4::text, $5::text, ${session}, ${fromNow("$7")}, ${fromNow("$8")}, $9::text, $10::text,
    $11::text, $12::bytea, $13::float8, CASE $9::text WHEN 'pending' THEN 0 ELSE 1 END,
    CASE $9::text WHEN 'pending' THEN ${now} END, ${now}, ${unusualOf("$9::text")}, ${lapses}`,
});

const ownRecord = newRecord({ session: ownedHere("$6") });

/**
 * Inserts a new record or finds the old one, in one round trip. An old one is only read: there is nothing to insert
 * then, so nothing is locked or written. Neither inserted nor found means that another request was inserting the
 * same key.
 *
 * Parameters as in `newRecord`.
 */
export const reserve = `
WITH found AS (${record}
),
inserted AS (
  INSERT INTO latchkey_records (${ownRecord.columns})
  SELECT ${ownRecord.values}
  WHERE NOT EXISTS (SELECT FROM found)
  ON CONFLICT DO NOTHING
  RETURNING 1
)
SELECT ${milliseconds(now)} AS now, EXISTS (SELECT FROM inserted) AS inserted, found.*
FROM (VALUES (1)) AS always LEFT JOIN found ON true`;

/**
 * Inserts a record that is under way, of a request that is executed at once, is not kept and belongs to no session. No row:
 * there is one already.
 *
 * $1 scope, $2 key, $3 fingerprint, $4 onCrash, $5 owner, $6 lease, $7 retention, $8 route, $9 how long after a crash
 * reconciliation may ask
 */
export const insertUnderWay = `
INSERT INTO latchkey_records (scope, key, fingerprint, on_crash, owner, lease_until, expires_at, route, reconcile_ms, state,
  fence, created_at)
VALUES ($1, $2, $3, $4, $5, ${fromNow("$6")}, ${fromNow("$7")}, $8, $9, 'in_progress', 1, ${now})
ON CONFLICT DO NOTHING
RETURNING ctid::text AS place, ${milliseconds("created_at")} AS now`;

/**
 * Gives a record that was found to the request that may execute it or wants it accepted, unless anybody else was
 * faster: the fence is as it was found, so is the state, and nobody has renewed a lease.
 *
 * Parameters as in `newRecord`, then $14 fence and $15 state as found, $16 whether the key is used anew, $17 the next
 * fence, $18 who and $19 why for the audit trail, or NULL
 */
export const takeOver = `
WITH taken AS (
  UPDATE latchkey_records SET
    fingerprint = $3,
    on_crash = $4,
    owner = $5,
    owner_session = ${ownedHere("$6")},
    lease_until = ${fromNow("$7")},
    lapses_at = ${fromNow("$7")},
    expires_at = ${fromNow("$8")},
    kept_until = NULL,
    ${becomes("$9")},
    route = $10,
    reconcile_ms = $13,
    claims = 0,
    request_head = CASE WHEN $16::bool OR $11::text IS NOT NULL THEN $11 ELSE request_head END,
    request_body = CASE WHEN $16::bool OR $11::text IS NOT NULL THEN $12::bytea ELSE request_body END,
    fence = $17,
    resume_after = CASE $9 WHEN 'pending' THEN ${now} END,
    progress = CASE WHEN $16::bool THEN NULL ELSE progress END,
    created_at = CASE WHEN $16::bool THEN ${now} ELSE created_at END,
    reason = NULL,
    completed_at = NULL,
    response_status = NULL,
    response_head = NULL,
    response_body = NULL
  WHERE scope = $1 AND key = $2 AND fence = $14 AND state = $15
    AND (state <> 'in_progress' OR ${leaseUntil} <= now())
  RETURNING scope, key, fence
),
audited AS (${audited("taken", { from: "$15", to: "$9", by: "$18::text", reason: "$19::text" }, "$19 IS NOT NULL")}
)
SELECT fence FROM taken`;

/**
 * Writes down that the owner is gone and may have executed, unless the record has moved on since it was found so.
 *
 * $1 scope, $2 key, $3 fence and $4 owner as found, $5 reason, $6 name, $7 who found it
 */
export const suspendCrashed = `
WITH suspended AS (
  UPDATE latchkey_records SET
    ${becomes("'unknown'")},
    reason = $5,
    reconcile_after = ${fromNow("reconcile_ms")},
    owner = NULL,
    owner_session = NULL,
    lease_until = NULL,
    lapses_at = NULL
  WHERE scope = $1 AND key = $2 AND fence = $3 AND owner = $4 AND state = 'in_progress' AND ${leaseUntil} <= now()
  RETURNING scope, key, fence, ${tellWatchers("$6")}
),
audited AS (${audited("suspended", { from: "'in_progress'", to: "'unknown'", by: "$7::text", reason: "$5::text" })}
)
SELECT fence, told FROM suspended`;

/** The record that a lease still holds. $1 scope, $2 key, $3 fence, $4 owner */
export const heldByLease = "scope = $1 AND key = $2 AND fence = $3 AND owner = $4 AND state = 'in_progress'";

/**
 * Ends a lease with its outcome. No row: it did not hold the record any more.
 *
 * $1 scope, $2 key, $3 fence, $4 owner, $5 status, $6 head, $7 body, $8 retention
 */
const completing = ({ also = "", where = "", told = "" }) => `
UPDATE latchkey_records SET
  state = 'completed',
  response_status = $5,
  response_head = $6,
  response_body = $7,
  completed_at = ${now},
  ${keptUntil(fromNow("$8"))},${also}
  owner_session = NULL,
  lease_until = NULL,
  lapses_at = NULL,
  request_head = NULL,
  request_body = NULL
WHERE ${where}${heldByLease}
RETURNING ${milliseconds(expiry())} AS expires${told}`;

/** $9 name */
export const complete = completing({ told: `, ${tellWatchers("$9")}` });

/** For a row that is still where it was reserved. $9 place */
export const completeAtPlace = completing({
  also: "\n  watched = CASE WHEN watched THEN latchkey_tell(scope, key) ELSE false END,",
  where: "ctid = $9::tid AND ",
});

/**
 * Ends a lease without an outcome. No row: it did not hold the record any more.
 *
 * $1 scope, $2 key, $3 fence, $4 owner, $5 state, $6 reason, $7 retention or NULL to leave it, $8 when to resume or
 * NULL, $9 when to reconcile or NULL, $10 name
 */
export const giveUpLease = `
WITH settled AS (
  UPDATE latchkey_records SET
    ${becomes("$5")},
    reason = $6,
    expires_at = coalesce(${fromNow("$7")}, expires_at),
    resume_after = ${fromNow("$8")},
    reconcile_after = ${fromNow("$9")},
    owner_session = NULL,
    lease_until = NULL,
    lapses_at = NULL
  WHERE ${heldByLease}
  RETURNING scope, key, fence, expires_at, ${tellWatchers("$10")}
),
audited AS (${audited("settled", { from: "'in_progress'", to: "$5", by: "$4", reason: "$6" })}
)
SELECT ${milliseconds("expires_at")} AS expires, told FROM settled`;

/**
 * What a lease was settled as before. Asked for after a settlement that changed nothing, with a later snapshot: it
 * may have waited for the same settlement, told twice at once.
 *
 * $1 scope, $2 key, $3 fence, $4 owner
 */
export const settledBefore = `
SELECT state, ${milliseconds(expiry())} AS expires
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
  UPDATE latchkey_records AS r SET lease_until = ${fromNow("$5")}, lapses_at = ${fromNow("$5")}
  FROM lease
  WHERE r.scope = lease.scope AND r.key = lease.key AND r.fence = lease.fence AND r.owner = lease.owner
    AND r.state = 'in_progress'
  RETURNING r.scope, r.key, r.fence, r.owner
)
SELECT renewed.fence IS NOT NULL AS held
FROM lease LEFT JOIN renewed USING (scope, key, fence, owner)
ORDER BY lease.position`;

/** Marks a record for which somebody waits, unless it is settled. $1 scope, $2 key */
export const watch = "SELECT latchkey_watch($1, $2) AS running";
