import { heldByLease } from "./records.ts";
import { after, channel, expiry, keptUntil, milliseconds, tellWatchers } from "./sql.ts";

/**
 * Writes down how far an execution has come. No row: the lease is lost.
 *
 * $1 scope, $2 key, $3 fence, $4 owner, $5 progress, $6 onCrash
 */
export const advance = `
UPDATE latchkey_records SET progress = $5, on_crash = $6 WHERE ${heldByLease} RETURNING fence`;

/** A setting that ends with its transaction. */
const setting = "latchkey.phase";

/** Sent with BEGIN, so that `phase` can tell whether it is still in that transaction. `mark` is a UUID. */
export const markTransaction = (mark: string) => `SET LOCAL ${setting} = '${mark}'`;

/** What a relay that sleeps is woken by. */
export const outboxName = "outbox";

/** Within a transaction now() is when it began, which may be long ago. */
const clock = "date_trunc('milliseconds', clock_timestamp())";

/**
 * The last statement of a transaction. It checks that the lease is still held and that the transaction is still the
 * one that was begun, and writes down what commits with the business writes, all or nothing.
 *
 * $1 scope, $2 key, $3 fence, $4 owner, $5 mark, $6 progress, $7 onCrash,
 * then if it completes: status, head, body, retention, name; then if it enqueues: the messages, as JSON
 */
export function phase({ completes, enqueues }: PhaseParts): string {
  const messages = completes ? "$13" : "$8";
  return `
WITH held AS (
  UPDATE latchkey_records SET progress = $6, on_crash = $7${completes ? completion : ""}
  WHERE ${heldByLease} AND current_setting('${setting}', true) = $5::text
  RETURNING ${expiry()} AS expires_at${completes ? `, ${tellWatchers("$12")}` : ""}
)${enqueues ? enqueuing(messages) : ""}
SELECT current_setting('${setting}', true) IS NOT DISTINCT FROM $5::text AS intact,
  ${milliseconds("held.expires_at")} AS expires${completes ? ", held.told" : ""}
FROM (VALUES (1)) AS always LEFT JOIN held ON true`;
}

export interface PhaseParts {
  readonly completes: boolean;
  readonly enqueues: boolean;
}

const completion = `,
    state = 'completed',
    response_status = $8,
    response_head = $9,
    response_body = $10,
    completed_at = ${clock},
    ${keptUntil(after(clock, "$11"))},
    owner_session = NULL,
    lease_until = NULL,
    lapses_at = NULL,
    request_head = NULL,
    request_body = NULL`;

/** A row that another transaction is just waking is passed by: one wake-up is enough, and a missed one allowed. */
const enqueuing = (messages: string) => `,
enqueued AS (
  INSERT INTO latchkey_outbox (
    lane, topic, partition_key, payload, message_key, correlation_id, scope, traceparent, due_at, created_at)
  SELECT m.lane, m.topic, m.partition, m.payload, m.key, m.correlation, m.scope, m.trace,
    ${after(clock, "m.delay")}, ${clock}
  FROM held, ROWS FROM (json_to_recordset(${messages}::text::json) AS (
    lane int, topic text, partition text, payload text, key text, correlation text, scope text, trace text, delay float8
  )) WITH ORDINALITY AS m (lane, topic, partition, payload, key, correlation, scope, trace, delay, position)
  ORDER BY m.position
),
woken AS (
  UPDATE latchkey_relays SET asleep = false
  WHERE id = (SELECT id FROM latchkey_relays WHERE asleep AND EXISTS (SELECT FROM held) FOR UPDATE SKIP LOCKED)
  RETURNING pg_notify('${channel}', '${outboxName}')
)`;
