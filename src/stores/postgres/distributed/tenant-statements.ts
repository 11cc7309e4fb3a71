import { list, now } from "./statements.ts";

/*
 * What belongs to one tenant: its own scope, and all that begin with it and a space. Two statements each, because an index
 * finds either, and seldom both at once. No range, because not every engine sorts by bytes; LIKE says the same in any order, and
 * is a range for those that do.
 */
export type Match = "=" | "LIKE";

/** As core's `isSettled` says it. */
const isOver =
  "(state IN ('completed', 'expired') OR (state = 'failed_retryable' AND resume_after IS NULL AND progress IS NULL))";

const isDone = "state IN ('delivered', 'dead')";

/** $1 scope, or a pattern, $2 limit */
export const tenants = {
  records: (match: Match) => `
SELECT scope, key, revision FROM latchkey_dist_records WHERE scope ${match} $1 AND ${isOver} LIMIT $2::int4`,

  messages: (match: Match) => `
SELECT id FROM latchkey_dist_outbox WHERE scope ${match} $1 AND ${isDone} LIMIT $2::int4`,

  removeMessages: (count: number) => `
DELETE FROM latchkey_dist_outbox WHERE id IN (${list(1, count)}) AND ${isDone} RETURNING id`,

  trail: (match: Match) => `
SELECT scope, key, id FROM latchkey_dist_audit WHERE scope ${match} $1 LIMIT $2::int4`,

  /** $1 scope, $2 key, $3 id */
  removeEntry: "DELETE FROM latchkey_dist_audit WHERE scope = $1 AND key = $2 AND id = $3 RETURNING id",

  unsettledRecords: (match: Match) => `
SELECT count(*)::int4 AS unsettled FROM latchkey_dist_records WHERE scope ${match} $1 AND NOT ${isOver}`,

  unsettledMessages: (match: Match) => `
SELECT count(*)::int4 AS unsettled FROM latchkey_dist_outbox WHERE scope ${match} $1 AND NOT ${isDone}`,
} as const;

export const unknownCounts = `
SELECT count(*)::int4 AS total, count(escalated_at)::int4 AS escalated, min(created_at) AS oldest, ${now} AS now
FROM latchkey_dist_records WHERE state = 'unknown'`;
