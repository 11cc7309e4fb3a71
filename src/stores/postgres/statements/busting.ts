import { audited } from "./audit.ts";
import { expire, isSettled } from "./reaping.ts";
import { channel, milliseconds, now } from "./sql.ts";

/**
 * Takes the answer of a settled record away, and tells every process that may have kept it. No row: it is not settled,
 * or the attempt is another. Busts take turns, because each changes the generation; its row is locked last, so that
 * nobody waits for a record meanwhile.
 *
 * $1 scope, $2 key, $3 attempt or NULL, $4 who, $5 why, $6 what the channel is told
 */
export const bust = `
WITH found AS (
  SELECT scope, key, state FROM latchkey_records
  WHERE scope = $1 AND key = $2 AND ${isSettled} AND ($3::int IS NULL OR fence = $3::int)
  FOR UPDATE
),
busted AS (
  UPDATE latchkey_records AS r SET ${expire}
  FROM found
  WHERE r.scope = found.scope AND r.key = found.key
  RETURNING r.scope, r.key, r.fence, found.state AS was, pg_notify('${channel}', $6::text)::text AS told
),
renamed AS (
  UPDATE latchkey_busts SET token = gen_random_uuid() WHERE EXISTS (SELECT FROM busted)
),
audited AS (${audited("busted", { from: "was", to: "'expired'", by: "$4::text", reason: "$5::text" })}
)
SELECT fence, told FROM busted`;

/** The timeline is read with every statement, and the token with the statement's snapshot. */
export const bustGeneration = `SELECT latchkey_bust_generation() AS generation, ${milliseconds(now)} AS now`;
