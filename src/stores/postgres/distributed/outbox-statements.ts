import { list, now, tick } from "./statements.ts";

/** A message as `messageOf` reads it. */
const message = `id, topic, partition_key AS partition, payload, message_key AS key, correlation_id AS correlation, scope,
  traceparent AS trace, attempts, created_at AS created`;

const clock = "floor(extract(epoch FROM clock_timestamp()) * 1000)::float8";

/** Nothing that comes before it in its partition has yet to become due. */
const isFirst = `(m.partition_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM latchkey_dist_outbox AS ahead
    WHERE ahead.state = 'waiting' AND ahead.lane = m.lane AND ahead.partition_key = m.partition_key
      AND ahead.id < m.id AND ahead.due_at > ${now}))`;

/** How many parameters a message takes in `enqueue`. */
export const messageParameters = 10;

export const outbox = {
  /** For each message: $1 what its id ends with, $2 lane, $3 topic, $4 partition, $5 payload, $6 key, $7 correlation, $8 scope, $9 trace, $10 delay */
  enqueue(count: number): string {
    const rows = Array.from({ length: count }, (_, index) => {
      const $ = (place: number) => `$${index * messageParameters + place}`;
      return `(${tick} || ${$(1)}::text, 'waiting', ${$(2)}::int4, ${$(3)}, ${$(4)}, ${$(5)}, ${$(6)}, ${$(7)}, ${$(8)}, ${$(9)}, 0,
  ${clock} + ${$(10)}::float8, ${clock})`;
    });
    return `
INSERT INTO latchkey_dist_outbox (id, state, lane, topic, partition_key, payload, message_key, correlation_id, scope,
  traceparent, attempts, due_at, created_at)
VALUES ${rows.join(", ")}`;
  },

  /** In which lanes something can be delivered. */
  busyLanes: `
SELECT DISTINCT m.lane FROM latchkey_dist_outbox AS m
WHERE m.state = 'waiting' AND m.due_at <= ${now} AND ${isFirst}`,

  lanes: `SELECT lane, owner, claimed_until AS until, ${now} AS now FROM latchkey_dist_lanes`,

  /** $1 owner, $2 lease, then the lanes */
  claimLanes: (count: number) => `
UPDATE latchkey_dist_lanes SET owner = $1, claimed_until = ${now} + $2::float8
WHERE lane IN (${list(3, count)}) AND (owner = $1 OR claimed_until IS NULL OR claimed_until <= ${now})
RETURNING lane`,

  /** $1 owner */
  freeLanes: `
UPDATE latchkey_dist_lanes SET owner = NULL, claimed_until = ${now} WHERE owner = $1 RETURNING lane`,

  /** $1 limit, then the lanes */
  due: (count: number) => `
SELECT ${message} FROM latchkey_dist_outbox AS m
WHERE m.state = 'waiting' AND m.lane IN (${list(2, count)}) AND m.due_at <= ${now} AND ${isFirst}
ORDER BY m.id LIMIT $1::int4`,

  /** What was delivered and has no reference to keep. First the ids, then the lanes */
  remove: (ids: number, lanes: number) => `
DELETE FROM latchkey_dist_outbox
WHERE id IN (${list(1, ids)}) AND state = 'waiting' AND lane IN (${list(ids + 1, lanes)})`,

  /**
   * What became of a message that stays. $1 id, $2 state, $3 the delay before the next attempt or NULL, $4 reference,
   * $5 error, $6 failures to add, then the lanes
   */
  change: (lanes: number) => `
UPDATE latchkey_dist_outbox SET state = $2::text,
  delivered_at = CASE $2::text WHEN 'delivered' THEN ${now} END,
  died_at = CASE $2::text WHEN 'dead' THEN ${now} END,
  due_at = coalesce(${now} + $3::float8, due_at), reference = $4, error = $5, attempts = attempts + $6::int4
WHERE id = $1 AND state = 'waiting' AND lane IN (${list(7, lanes)})`,

  counts: `
SELECT count(*)::int4 AS waiting, ${now} AS now FROM latchkey_dist_outbox WHERE state = 'waiting'`,

  deadCount: "SELECT count(*)::int4 AS dead FROM latchkey_dist_outbox WHERE state = 'dead'",

  /** What waits behind a message that is not due is not due either. */
  oldest: `
SELECT min(m.due_at) AS due FROM latchkey_dist_outbox AS m
WHERE m.state = 'waiting' AND m.due_at <= ${now} AND ${isFirst}`,

  /** The oldest first. $1 limit, $2 after which id */
  deadLetters: `
SELECT ${message}, error, died_at AS died FROM latchkey_dist_outbox
WHERE state = 'dead' AND id > $2 ORDER BY id LIMIT $1::int4`,

  /** What is about to be requeued: how many deliveries had failed is not known any more after it. */
  dead: (count: number) => `
SELECT id, scope, message_key AS key, attempts FROM latchkey_dist_outbox WHERE id IN (${list(1, count)}) AND state = 'dead'`,

  requeue: (count: number) => `
UPDATE latchkey_dist_outbox SET state = 'waiting', died_at = NULL, error = NULL, attempts = 0, due_at = ${now}
WHERE id IN (${list(1, count)}) AND state = 'dead'
RETURNING id`,

  /** $1 limit, $2 retention */
  delivered: `
SELECT id FROM latchkey_dist_outbox WHERE state = 'delivered' AND delivered_at <= ${now} - $2::float8
ORDER BY id LIMIT $1::int4`,

  prune: (count: number) => `
DELETE FROM latchkey_dist_outbox WHERE id IN (${list(1, count)}) AND state = 'delivered' RETURNING id`,
} as const;
