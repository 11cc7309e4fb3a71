import { type SqliteDatabase, Statement } from "./driver.ts";

/** Every statement on messages and lanes, prepared once for each connection. */
export function prepareOutboxStatements(database: SqliteDatabase) {
  const prepare = (sql: string) => new Statement(database, sql);
  return {
    insertMessage: prepare(insertMessage),
    findLanes: prepare(findLanes),
    takeLane: prepare(takeLane),
    freeLanes: prepare(freeLanes),
    findHeads: prepare(findHeads),
    readPartition: prepare(readPartition),
    promoteHead: prepare(promoteHead),
    demoteHead: prepare(demoteHead),
    deleteDelivered: prepare(deleteDelivered),
    keepDelivered: prepare(keepDelivered),
    postpone: prepare(postpone),
    bury: prepare(bury),
    countMessages: prepare(countMessages),
    readDead: prepare(readDead),
    findDead: prepare(findDead),
    revive: prepare(revive),
    pruneDelivered: prepare(pruneDelivered),
  };
}

export type OutboxStatements = ReturnType<typeof prepareOutboxStatements>;

/** Neither delivered nor dead: as the partial indexes say it, so that they are used. */
const waits = "delivered_at IS NULL AND died_at IS NULL";

const columns =
  "id, topic, partition_key, payload, message_key, correlation_id, scope, traceparent, attempts, due_at, created_at";

/** The message is the head of its partition if no other one waits in it. The partition comes three times. */
const insertMessage = `
  INSERT INTO latchkey_outbox (
           lane, topic, payload, message_key, correlation_id, scope, traceparent, due_at, created_at, partition_key,
           is_head)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
          ? IS NULL OR NOT EXISTS (SELECT 1 FROM latchkey_outbox WHERE partition_key = ? AND ${waits}))`;

/**
 * Lanes with something due that are free, or belong to this relay already; the longest due first, so that none is
 * always passed over. Parameters: the time, the relay, the time.
 */
export const findLanes = `
  SELECT lane,
         (SELECT min(due_at)
            FROM latchkey_outbox
           WHERE is_head = 1 AND lane = lanes.lane AND ${waits}) AS due_at
    FROM latchkey_lanes AS lanes
   WHERE (claimed_until IS NULL OR claimed_until <= ? OR owner = ?)
     AND due_at <= ?
   ORDER BY due_at`;

/** Parameters: the relay, until when, the lane. */
const takeLane = `
  UPDATE latchkey_lanes
     SET owner = ?, claimed_until = ?
   WHERE lane = ?`;

const freeLanes = `
  UPDATE latchkey_lanes
     SET owner = NULL, claimed_until = NULL
   WHERE owner = ?`;

/** Parameters: the lane, the time, the limit. */
export const findHeads = `
  SELECT ${columns}
    FROM latchkey_outbox
   WHERE is_head = 1 AND lane = ? AND due_at <= ? AND ${waits}
   ORDER BY due_at
   LIMIT ?`;

/** Parameters: the partition, the limit. */
export const readPartition = `
  SELECT ${columns}
    FROM latchkey_outbox
   WHERE partition_key = ? AND ${waits}
   ORDER BY id
   LIMIT ?`;

/** Makes the first message that waits in a partition its head. */
export const promoteHead = `
  UPDATE latchkey_outbox
     SET is_head = 1
   WHERE id = (SELECT min(id) FROM latchkey_outbox WHERE partition_key = ? AND ${waits})
     AND is_head = 0`;

const demoteHead = `
  UPDATE latchkey_outbox
     SET is_head = 0
   WHERE id = ?`;

/** Only whoever still has the lane may say what became of a message. Parameters: the message, the relay. */
const claimedBy = `id = ? AND ${waits} AND lane IN (SELECT lane FROM latchkey_lanes WHERE owner = ?)`;

const deleteDelivered = `
  DELETE FROM latchkey_outbox
   WHERE ${claimedBy}
RETURNING partition_key`;

/** Parameters: the time, the reference, and as in `claimedBy`. */
const keepDelivered = `
  UPDATE latchkey_outbox
     SET delivered_at = ?, reference = ?
   WHERE ${claimedBy}
RETURNING partition_key`;

/** Parameters: when to try again, the error, and as in `claimedBy`. */
const postpone = `
  UPDATE latchkey_outbox
     SET attempts = attempts + 1, due_at = ?, error = ?
   WHERE ${claimedBy}`;

/** Parameters: the time, the error, and as in `claimedBy`. */
const bury = `
  UPDATE latchkey_outbox
     SET attempts = attempts + 1, died_at = ?, error = ?
   WHERE ${claimedBy}
RETURNING partition_key`;

/** Only from indexes: counting must not read the messages. */
export const countMessages = `
  SELECT (SELECT count(*) FROM latchkey_outbox WHERE ${waits}) AS waiting,
         (SELECT min(due_at) FROM latchkey_outbox WHERE ${waits}) AS first_due_at,
         (SELECT count(*) FROM latchkey_outbox WHERE died_at IS NOT NULL) AS dead`;

/** Parameters: the last id of the page before, the limit. */
export const readDead = `
  SELECT ${columns}, error, died_at
    FROM latchkey_outbox
   WHERE died_at IS NOT NULL AND id > ?
   ORDER BY id
   LIMIT ?`;

/** Parameter: the message. */
const findDead = `
  SELECT ${columns}
    FROM latchkey_outbox
   WHERE id = ? AND died_at IS NOT NULL`;

/** Parameters: the time, the message. */
const revive = `
  UPDATE latchkey_outbox
     SET died_at = NULL, error = NULL, attempts = 0, due_at = ?
   WHERE id = ?`;

/** Parameters: the time before which they were delivered, the limit. */
export const pruneDelivered = `
  DELETE FROM latchkey_outbox
   WHERE id IN (
           SELECT id
             FROM latchkey_outbox
            WHERE delivered_at IS NOT NULL AND delivered_at <= ?
            ORDER BY delivered_at
            LIMIT ?)`;
