import { audited } from "./audit.ts";
import { fromNow, milliseconds, now } from "./sql.ts";

const isWaiting = (m: string) => `${m}.delivered_at IS NULL AND ${m}.died_at IS NULL`;

/** A message as `messageOf` reads it. */
const message = (
  m: string,
) => `${m}.id::text AS id, ${m}.topic, ${m}.partition_key AS partition, ${m}.payload,
  ${m}.message_key AS key, ${m}.correlation_id AS correlation, ${m}.scope, ${m}.traceparent AS trace, ${m}.attempts,
  ${milliseconds(`${m}.created_at`)} AS created`;

/**
 * Takes lanes in which something can be delivered and that nobody else holds. Those come first that were not served
 * for the longest time.
 *
 * $1 owner, $2 lease, $3 lanes at most
 */
export const claimLanes = `
WITH free AS (
  SELECT lane FROM latchkey_lanes AS l
  WHERE (owner = $1 OR claimed_until IS NULL OR claimed_until <= now())
    AND (
      EXISTS (
        SELECT FROM latchkey_outbox AS m
        WHERE m.lane = l.lane AND m.partition_key IS NULL AND m.due_at <= now() AND ${isWaiting("m")})
      OR EXISTS (SELECT FROM latchkey_ready_partitions(l.lane, 1)))
  ORDER BY owner IS DISTINCT FROM $1, claimed_until NULLS FIRST, lane
  LIMIT $3::int
  FOR UPDATE SKIP LOCKED
)
UPDATE latchkey_lanes AS l SET owner = $1, claimed_until = ${fromNow("$2")}
FROM free WHERE l.lane = free.lane
RETURNING l.lane`;

/** Of each of so many lanes or partitions, up to twice its share of the limit: some have less than theirs. */
const share = (sources: string) =>
  `LIMIT ceil(2.0 * $2::int / greatest(1, (SELECT count(*) FROM ${sources})))::int`;

/**
 * What can be delivered in lanes that are ours by now. A statement of its own, because its snapshot must be later than
 * the commit of whoever had these lanes before. A partition is read from its first message up to the first that is not
 * due; what has no partition comes as it is due.
 *
 * $1 lanes: an array literal, $2 limit
 */
export const dueMessages = `
WITH claimed AS (SELECT unnest($1::text::int[]) AS lane),
ready AS MATERIALIZED (
  SELECT lane, name FROM claimed CROSS JOIN latchkey_ready_partitions(lane, $2::int) LIMIT $2::int
),
due AS (
  SELECT m.id FROM ready CROSS JOIN LATERAL (
    SELECT first.id, bool_and(first.due_at <= now()) OVER (ORDER BY first.id) AS isdue
    FROM (
      SELECT m.id, m.due_at FROM latchkey_outbox AS m
      WHERE m.lane = ready.lane AND m.partition_key = ready.name AND ${isWaiting("m")}
      ORDER BY m.id ${share("ready")}
    ) AS first
  ) AS m WHERE m.isdue
  UNION ALL
  SELECT m.id FROM claimed CROSS JOIN LATERAL (
    SELECT m.id FROM latchkey_outbox AS m
    WHERE m.lane = claimed.lane AND m.partition_key IS NULL AND m.due_at <= now() AND ${isWaiting("m")}
    ORDER BY m.due_at ${share("claimed")}
  ) AS m
  ORDER BY id
  LIMIT $2::int
)
SELECT ${message("m")} FROM due JOIN latchkey_outbox AS m USING (id) ORDER BY due.id`;

/**
 * Writes down what became of messages, as far as their lanes still belong to the owner, and frees those lanes. The ids
 * are handed over as arrays: about a table without statistics Postgres believes that it is nearly empty, and would
 * read all of it for every batch of a burst.
 *
 * $1 owner, $2 deliveries, as JSON
 */
export const settleMessages = `
WITH mine AS (
  SELECT lane FROM latchkey_lanes WHERE owner = $1 ORDER BY lane FOR UPDATE
),
told AS (
  SELECT told.* FROM json_to_recordset($2::text::json) AS told (
    id bigint, kind text, reference text, error text, retry float8)
),
removed AS (
  DELETE FROM latchkey_outbox AS m USING mine
  WHERE m.id = ANY (ARRAY (SELECT id FROM told WHERE kind = 'delivered' AND reference IS NULL))
    AND m.lane = mine.lane AND ${isWaiting("m")}
),
changed AS (
  UPDATE latchkey_outbox AS m SET
    delivered_at = CASE told.kind WHEN 'delivered' THEN ${now} END,
    reference = told.reference,
    died_at = CASE told.kind WHEN 'dead' THEN ${now} END,
    attempts = CASE told.kind WHEN 'delivered' THEN m.attempts ELSE m.attempts + 1 END,
    due_at = coalesce(${fromNow("told.retry")}, m.due_at),
    error = told.error
  FROM told, mine
  WHERE m.id = ANY (ARRAY (SELECT id FROM told WHERE kind <> 'delivered' OR reference IS NOT NULL))
    AND m.id = told.id AND m.lane = mine.lane AND ${isWaiting("m")}
)
UPDATE latchkey_lanes AS l SET owner = NULL, claimed_until = ${now} FROM mine WHERE l.lane = mine.lane`;

/** What waits behind a message that is not due is not due either. */
export const outboxCounts = `
WITH due AS (
  SELECT due AS due_at FROM latchkey_lanes CROSS JOIN latchkey_ready_partitions(lane, 1000000)
  UNION ALL
  SELECT first.due_at FROM latchkey_lanes AS l CROSS JOIN LATERAL (
    SELECT m.due_at FROM latchkey_outbox AS m
    WHERE m.lane = l.lane AND m.partition_key IS NULL AND ${isWaiting("m")}
    ORDER BY m.due_at LIMIT 1
  ) AS first
)
SELECT
  (SELECT count(*)::int FROM latchkey_outbox AS m WHERE ${isWaiting("m")}) AS waiting,
  (SELECT count(*)::int FROM latchkey_outbox WHERE died_at IS NOT NULL) AS dead,
  greatest(0, coalesce((SELECT ${milliseconds(`${now} - min(due_at)`)} FROM due), 0)) AS oldest`;

/** The oldest first. $1 limit, $2 after which id, or NULL */
export const deadLetters = `
SELECT ${message("m")}, m.error, ${milliseconds("m.died_at")} AS died
FROM latchkey_outbox AS m
WHERE m.died_at IS NOT NULL AND m.id > coalesce($2::text::bigint, 0)
ORDER BY m.id
LIMIT $1::int`;

/**
 * The row is locked before it is looked at, since only what it was before tells how many deliveries had failed.
 *
 * $1 ids: an array literal, $2 who, $3 why
 */
export const requeue = `
WITH dead AS (
  SELECT id, attempts FROM latchkey_outbox
  WHERE id = ANY($1::text::bigint[]) AND died_at IS NOT NULL
  ORDER BY id
  FOR UPDATE
),
revived AS (
  UPDATE latchkey_outbox AS m SET died_at = NULL, error = NULL, attempts = 0, due_at = ${now}
  FROM dead WHERE m.id = dead.id
  RETURNING coalesce(m.scope, '') AS scope, m.message_key AS key, dead.attempts AS fence
),
trail AS (${audited("revived", { from: "'dead_letter'", to: "'requeued'", by: "$2", reason: "$3" })}
)
SELECT count(*)::int AS revived FROM revived`;

/** $1 limit, $2 retention */
export const prune = `
WITH old AS (
  SELECT id FROM latchkey_outbox
  WHERE delivered_at <= now() - $2::float8 * interval '1 millisecond'
  ORDER BY delivered_at
  LIMIT $1::int
  FOR UPDATE SKIP LOCKED
),
pruned AS (
  DELETE FROM latchkey_outbox AS m USING old WHERE m.id = old.id RETURNING 1
)
SELECT count(*)::int AS pruned FROM pruned`;

/** A row: no relay was asleep before. */
export const fallAsleep = "UPDATE latchkey_relays SET asleep = true WHERE NOT asleep RETURNING id";
