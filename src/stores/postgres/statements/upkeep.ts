import { audited } from "./audit.ts";
import {
  after,
  becomes,
  fromNow,
  leaseUntil,
  milliseconds,
  now,
  recordColumns,
  recordNameInSql,
  tellWatchers,
} from "./sql.ts";

/** Lists the leases of what is under way, so that the index has them; and whether it has all of them now. */
export const listLeases = "SELECT latchkey_list_leases() AS complete";

/**
 * Ends executions whose owner is gone, as their onCrash says, and then what has waited for too long: accepted requests
 * that nobody executed are answered, and what is half done is asked about. Looks at every lease that is listed, which
 * are few, because a session can end long before the leases that it owned.
 *
 * $1 limit, $2 reason, $3 who, $4 the reason for the unclaimed, $5 for the abandoned, $6 status, $7 head, $8 body
 */
export const sweep = `
WITH gone AS (
  SELECT scope, key FROM latchkey_records
  WHERE lapses_at IS NOT NULL AND ${leaseUntil} <= now()
  ORDER BY lapses_at
  LIMIT $1::int
  FOR UPDATE SKIP LOCKED
),
swept AS (
  UPDATE latchkey_records AS r SET
    ${becomes("CASE r.on_crash WHEN 'reconcile' THEN 'unknown' ELSE 'failed_retryable' END")},
    reason = $2,
    resume_after = CASE WHEN r.on_crash <> 'reconcile' AND r.request_head IS NOT NULL THEN ${now} END,
    reconcile_after = CASE r.on_crash WHEN 'reconcile' THEN ${fromNow("r.reconcile_ms")} END,
    owner = NULL,
    owner_session = NULL,
    lease_until = NULL,
    lapses_at = NULL
  FROM gone
  WHERE r.scope = gone.scope AND r.key = gone.key
  RETURNING r.scope, r.key, r.fence, r.state, ${tellWatchers(recordNameInSql("r"))}
),
late AS (
  SELECT scope, key, state AS was, CASE state WHEN 'pending' THEN $4::text ELSE $5::text END AS why
  FROM latchkey_records
  WHERE unusual IN ('pending', 'failed_retryable') AND expires_at <= now()
    AND (state = 'pending' OR (progress IS NOT NULL AND resume_after IS NULL))
  ORDER BY expires_at
  LIMIT $1::int - (SELECT count(*) FROM gone)
  FOR UPDATE SKIP LOCKED
),
unclaimed AS (
  UPDATE latchkey_records AS r SET
    ${becomes("'completed'")},
    resume_after = NULL,
    claims = 0,
    completed_at = ${now},
    expires_at = ${now} + (r.expires_at - r.created_at),
    response_status = $6,
    response_head = $7,
    response_body = $8,
    request_head = NULL,
    request_body = NULL
  FROM late
  WHERE r.scope = late.scope AND r.key = late.key AND r.progress IS NULL
  RETURNING r.scope, r.key, r.fence, late.was, r.state, late.why, ${tellWatchers(recordNameInSql("r"))}
),
halfdone AS (
  UPDATE latchkey_records AS r SET
    ${becomes("'unknown'")},
    reason = late.why,
    resume_after = NULL,
    claims = 0,
    reconcile_after = ${now},
    owner = NULL
  FROM late
  WHERE r.scope = late.scope AND r.key = late.key AND r.progress IS NOT NULL
  RETURNING r.scope, r.key, r.fence, late.was, r.state, late.why, ${tellWatchers(recordNameInSql("r"))}
),
ended AS (
  SELECT scope, key, fence, was, state, why FROM unclaimed
  UNION ALL
  SELECT scope, key, fence, was, state, why FROM halfdone
),
sweptaudit AS (${audited("swept", { from: "'in_progress'", to: "state", by: "$3::text", reason: "$2::text" })}
),
endedaudit AS (${audited("ended", { from: "was", to: "state", by: "$3::text", reason: "why" })}
)
SELECT
  (SELECT count(*)::int FROM swept WHERE state = 'unknown')
    + (SELECT count(*)::int FROM ended WHERE was = 'failed_retryable') AS unknown,
  (SELECT count(*)::int FROM swept WHERE state = 'failed_retryable') AS retryable,
  (SELECT count(*)::int FROM ended WHERE was = 'pending') AS unclaimed`;

/** How long what was claimed stays hidden, as core's `backoffMs` says it. */
const backoff = (base: string, cap: string, attempts: string, doublingsMax: string) =>
  `least(${cap}::float8, ${base}::float8 * 2 ^ least(${attempts}, ${doublingsMax}::int))`;

/** As core's `gaveUp` says it. */
const mayBeHalfDone = "r.on_crash = 'resume' OR r.progress IS NOT NULL";

/**
 * Hands out what a worker may execute or finish now, or gives it up.
 *
 * $1 limit, $2 base and $3 cap of the back-off, $4 how often it doubles at most, $5 attempts at most, $6 who, $7 why
 */
export const claimResumable = `
WITH due AS (
  SELECT scope, key, state = 'failed_retryable' AND greatest(fence, claims) >= $5::int AS hopeless
  FROM latchkey_records
  WHERE resume_after <= now() AND request_head IS NOT NULL AND (state <> 'pending' OR expires_at > now())
  ORDER BY resume_after
  LIMIT $1::int
  FOR UPDATE SKIP LOCKED
),
claimed AS (
  UPDATE latchkey_records AS r SET
    resume_after = ${after(now, backoff("$2", "$3", "r.fence + r.claims", "$4"))},
    claims = r.claims + 1
  FROM due
  WHERE r.scope = due.scope AND r.key = due.key AND NOT due.hopeless
  RETURNING r.scope, r.key, ${recordColumns("r", "NULL::timestamptz")}, r.request_head AS requesthead,
    r.request_body AS requestbody
),
gaveup AS (
  UPDATE latchkey_records AS r SET
    ${becomes(`CASE WHEN ${mayBeHalfDone} THEN 'unknown' ELSE r.state END`)},
    reason = $7,
    resume_after = NULL,
    reconcile_after = CASE WHEN ${mayBeHalfDone} THEN ${now} END,
    claims = CASE WHEN ${mayBeHalfDone} THEN 0 ELSE r.claims END,
    owner = NULL
  FROM due
  WHERE r.scope = due.scope AND r.key = due.key AND due.hopeless
  RETURNING r.scope, r.key, r.fence, r.state, ${tellWatchers(recordNameInSql("r"))}
),
audited AS (${audited("gaveup", { from: "'failed_retryable'", to: "state", by: "$6::text", reason: "$7::text" })}
)
SELECT (SELECT count(*)::int FROM gaveup) AS hopeless, claimed.*
FROM (VALUES (1)) AS always LEFT JOIN claimed ON true
ORDER BY claimed.resume`;

/**
 * Hands out unknown outcomes that may be asked about now.
 *
 * $1 limit, $2 base and $3 cap of the back-off, $4 how often it doubles at most
 */
export const claimUnknown = `
WITH due AS (
  SELECT scope, key FROM latchkey_records
  WHERE unusual = 'unknown' AND escalated_at IS NULL AND reconcile_after <= now()
  ORDER BY reconcile_after
  LIMIT $1::int
  FOR UPDATE SKIP LOCKED
)
UPDATE latchkey_records AS r SET
  reconcile_after = ${after(now, backoff("$2", "$3", "r.claims", "$4"))},
  claims = r.claims + 1
FROM due
WHERE r.scope = due.scope AND r.key = due.key
RETURNING r.scope, r.key, ${recordColumns("r", "NULL::timestamptz")}`;

/**
 * Says what became of an unknown outcome. No row: it is not unknown at this fence.
 *
 * $1 scope, $2 key, $3 fence, $4 who, $5 why, $6 state, $7 retention or NULL to leave it, $8 when to resume or NULL,
 * $9 whether there is new progress and $10 that progress, $11 status, $12 head, $13 body, $14 name
 */
export const resolve = `
WITH resolved AS (
  UPDATE latchkey_records SET
    ${becomes("$6")},
    reason = CASE WHEN $6 <> 'completed' THEN $5::text END,
    owner = NULL,
    expires_at = coalesce(${fromNow("$7")}, expires_at),
    resume_after = CASE WHEN request_head IS NOT NULL THEN ${fromNow("$8")} END,
    progress = CASE WHEN $9::bool THEN $10::text ELSE progress END,
    reconcile_after = CASE WHEN $6 = 'unknown' THEN reconcile_after END,
    claims = CASE WHEN $6 = 'unknown' THEN claims ELSE 0 END,
    escalated_at = CASE WHEN $6 = 'unknown' THEN ${now} END,
    completed_at = CASE WHEN $6 = 'completed' THEN ${now} END,
    response_status = $11,
    response_head = $12,
    response_body = $13,
    request_head = CASE WHEN $6 <> 'completed' THEN request_head END,
    request_body = CASE WHEN $6 <> 'completed' THEN request_body END
  WHERE scope = $1 AND key = $2 AND fence = $3 AND state = 'unknown'
  RETURNING scope, key, fence, expires_at, ${tellWatchers("$14")}
),
audited AS (${audited("resolved", { from: "'unknown'", to: "$6", by: "$4::text", reason: "$5::text" })}
)
SELECT ${milliseconds("expires_at")} AS expires, told FROM resolved`;

/** $1 scope, $2 key */
export const stateOf = "SELECT state FROM latchkey_records WHERE scope = $1 AND key = $2";
