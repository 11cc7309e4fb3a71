import { isSettled } from "./reaping.ts";
import { channel, milliseconds, now } from "./sql.ts";

/**
 * What belongs to a tenant: its own scope, and all that begin with it and a space. One range of the index, which is sorted
 * by bytes: '!' is what follows the space. A scope may hold whatever means something in a pattern.
 */
export const isOfTenant = (tenantScope: string) =>
  `scope >= ${tenantScope} AND scope < ${tenantScope} || '!' AND (scope = ${tenantScope} OR starts_with(scope, ${tenantScope} || ' '))`;

const isTenants = isOfTenant("$1");

const isOver = `(state = 'expired' OR (${isSettled}))`;

const isDone = "(delivered_at IS NOT NULL OR died_at IS NOT NULL)";

/**
 * Removes what is kept of a tenant, as far as the limit goes: records, then messages, then the trail. What somebody else
 * has locked is waited for, because nothing removed means that nothing is left; in the order of the keys, so that two
 * who forget the same tenant do not wait for each other. With records go all answers that are kept elsewhere, which is
 * told once, by a new generation. Its row is locked last.
 *
 * $1 the tenant's scope, $2 limit, $3 what the channel is told
 */
export const forgetTenant = `
WITH settled AS (
  SELECT scope, key FROM latchkey_records WHERE ${isTenants} AND ${isOver}
  ORDER BY scope, key
  LIMIT $2::int
  FOR UPDATE
),
records AS (
  DELETE FROM latchkey_records AS r USING settled WHERE r.scope = settled.scope AND r.key = settled.key RETURNING 1
),
done AS (
  SELECT id FROM latchkey_outbox WHERE ${isTenants} AND ${isDone}
  ORDER BY id
  LIMIT $2::int - (SELECT count(*) FROM settled)
  FOR UPDATE
),
messages AS (
  DELETE FROM latchkey_outbox AS m USING done WHERE m.id = done.id RETURNING 1
),
told AS (
  SELECT id FROM latchkey_audit WHERE ${isTenants}
  ORDER BY id
  LIMIT $2::int - (SELECT count(*) FROM settled) - (SELECT count(*) FROM done)
  FOR UPDATE
),
entries AS (
  DELETE FROM latchkey_audit AS a USING told WHERE a.id = told.id RETURNING 1
),
renamed AS (
  UPDATE latchkey_busts SET token = gen_random_uuid() WHERE EXISTS (SELECT FROM records)
  RETURNING pg_notify('${channel}', $3::text)
)
SELECT (SELECT count(*)::int FROM records) + (SELECT count(*)::int FROM messages)
  + (SELECT count(*)::int FROM entries) AS removed`;

/** $1 the tenant's scope */
export const unsettledOf = `
SELECT (SELECT count(*)::int FROM latchkey_records WHERE ${isTenants} AND NOT ${isOver})
  + (SELECT count(*)::int FROM latchkey_outbox WHERE ${isTenants} AND NOT ${isDone}) AS unsettled`;

/** Each half from an index of its own, which holds nothing else. */
export const unknownCounts = `
SELECT (count(*) - count(escalated_at))::int AS waiting, count(escalated_at)::int AS escalated,
  greatest(0, coalesce(${milliseconds(`${now} - min(created_at)`)}, 0)) AS oldest
FROM (
  SELECT escalated_at, created_at FROM latchkey_records
  WHERE unusual = 'unknown' AND escalated_at IS NULL AND reconcile_after > '-infinity'
  UNION ALL
  SELECT escalated_at, created_at FROM latchkey_records WHERE escalated_at > '-infinity'
) AS unknown`;
