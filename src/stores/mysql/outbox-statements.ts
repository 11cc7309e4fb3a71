import { fromNow, now } from "./statements.ts";

/*
 * Statements on messages and lanes. As with records, whoever looks for something locks nothing, and whoever locks goes
 * by the primary key. What is done with messages is done by whoever has their lane.
 */

const columns =
  "id AS number, topic, partition_key, payload, message_key, correlation_id, scope, traceparent, attempts, due_at, " +
  "created_at";

/** Parameters of each: lane, twice, topic, partition's id, partition, key, correlation, scope, trace, delay, payload. */
export const insertMessages = (count: number) => `
  INSERT INTO latchkey_outbox (
         lane, waiting_lane, topic, partition_id, partition_key, message_key, correlation_id, scope, traceparent, due_at,
         created_at, payload)
  VALUES ${Array.from({ length: count }, () => `(?, ?, ?, ?, ?, ?, ?, ?, ?, ${fromNow("?")}, ${now}, ?)`).join(", ")}`;

/** The first message of each partition, as far as it is due: what comes behind it waits for it. */
const readyPartitions = (where: string) => `
  SELECT m.waiting_lane AS lane, m.partition_id, m.due_at
    FROM (SELECT MIN(id) AS first_id
            FROM latchkey_outbox
           WHERE ${where} AND partition_id IS NOT NULL
           GROUP BY waiting_lane, partition_id) AS heads
         JOIN latchkey_outbox AS m ON m.id = heads.first_id
   WHERE m.due_at <= ${now}`;

/** The first message of each lane that is in no partition. */
const readyLanes = (where: string) => `
  SELECT waiting_lane AS lane, NULL AS partition_id, MIN(due_at) AS due_at
    FROM latchkey_outbox
   WHERE ${where} AND partition_id IS NULL
   GROUP BY waiting_lane
  HAVING MIN(due_at) <= ${now}`;

const readyIn = (where: string) => `${readyPartitions(where)} UNION ALL ${readyLanes(where)}`;

const readyAnywhere = readyIn("waiting_lane IS NOT NULL");

/** May be claimed. Parameters: the relay. */
const isFree = `(claimed_until IS NULL OR claimed_until <= ${now} OR owner = ?)`;

/**
 * Lanes with something due that are free, or belong to this relay already: its own first, then those in which something
 * has been due for the longest time. Parameters: the relay, twice.
 */
export const findLanes = (limit: number) => `
  SELECT lanes.lane
    FROM latchkey_lanes AS lanes
         JOIN (${readyAnywhere}) AS ready ON ready.lane = lanes.lane
   WHERE ${isFree}
   GROUP BY lanes.lane, lanes.owner
   ORDER BY CASE WHEN lanes.owner = ? THEN 0 ELSE 1 END, MIN(ready.due_at)
   LIMIT ${limit}`;

/** Parameters: the lanes, the relay. */
export const lockLanes = (list: string) => `
  SELECT lane
    FROM latchkey_lanes FORCE INDEX (PRIMARY)
   WHERE lane IN (${list}) AND ${isFree}
   ORDER BY lane
     FOR UPDATE SKIP LOCKED`;

/** Parameters: the relay, for how long, the lanes. */
export const takeLanes = (list: string) => `
  UPDATE latchkey_lanes FORCE INDEX (PRIMARY)
     SET owner = ?, claimed_until = ${fromNow("?")}
   WHERE lane IN (${list})`;

/** What is ready in these lanes, the longest due first. Parameters: the lanes, twice. */
export const findReady = (list: string, limit: number) => `
  SELECT ready.lane, ready.partition_id
    FROM (${readyIn(`waiting_lane IN (${list})`)}) AS ready
   ORDER BY ready.due_at
   LIMIT ${limit}`;

/** The first messages of one partition. Parameters: the lane, the partition's id. */
export const readPartition = (limit: number) => `
  SELECT ${columns}, due_at <= ${now} AS is_due
    FROM latchkey_outbox
   WHERE waiting_lane = ? AND partition_id = ?
   ORDER BY id
   LIMIT ${limit}`;

/** What is due in one lane and in no partition. Parameters: the lane. */
export const readLane = (limit: number) => `
  SELECT ${columns}, TRUE AS is_due
    FROM latchkey_outbox
   WHERE waiting_lane = ? AND partition_id IS NULL AND due_at <= ${now}
   ORDER BY due_at
   LIMIT ${limit}`;

/** Parameters: the relay. */
export const readLanesOf = "SELECT lane FROM latchkey_lanes WHERE owner = ?";

/** Parameters: the lanes, the relay. */
export const lockLanesOf = (list: string) => `
  SELECT lane
    FROM latchkey_lanes FORCE INDEX (PRIMARY)
   WHERE lane IN (${list}) AND owner = ?
   ORDER BY lane
     FOR UPDATE`;

/** Parameters: the lanes. */
export const freeLanes = (list: string) => `
  UPDATE latchkey_lanes FORCE INDEX (PRIMARY)
     SET owner = NULL, claimed_until = NULL
   WHERE lane IN (${list})`;

/** Parameters: the messages, the lanes. */
export const deleteDelivered = (messages: string, lanes: string) => `
  DELETE m
    FROM latchkey_outbox AS m FORCE INDEX (PRIMARY)
   WHERE m.id IN (${messages}) AND m.waiting_lane IN (${lanes})`;

/** Parameters: the reference, the message, the lanes. */
export const keepDelivered = (lanes: string) => `
  UPDATE latchkey_outbox FORCE INDEX (PRIMARY)
     SET delivered_at = ${now}, reference = ?, waiting_lane = NULL
   WHERE id = ? AND waiting_lane IN (${lanes})`;

/** Parameters: after how long to try again, the error, the message, the lanes. */
export const postpone = (lanes: string) => `
  UPDATE latchkey_outbox FORCE INDEX (PRIMARY)
     SET attempts = attempts + 1, due_at = ${fromNow("?")}, error = ?
   WHERE id = ? AND waiting_lane IN (${lanes})`;

/** Parameters: the error, the message, the lanes. */
export const bury = (lanes: string) => `
  UPDATE latchkey_outbox FORCE INDEX (PRIMARY)
     SET attempts = attempts + 1, died_at = ${now}, error = ?, waiting_lane = NULL
   WHERE id = ? AND waiting_lane IN (${lanes})`;

export const countMessages = `
  SELECT ${now} AS clock,
         (SELECT COUNT(*) FROM latchkey_outbox WHERE waiting_lane IS NOT NULL) AS waiting,
         (SELECT MIN(ready.due_at) FROM (${readyAnywhere}) AS ready) AS first_due_at,
         (SELECT COUNT(*) FROM latchkey_outbox WHERE died_at IS NOT NULL) AS dead`;

/** Parameters: the last id of the page before. */
export const readDead = (limit: number) => `
  SELECT ${columns}, error, died_at
    FROM latchkey_outbox
   WHERE died_at IS NOT NULL AND id > ?
   ORDER BY id
   LIMIT ${limit}`;

/** Parameters: the messages. */
export const findDead = (list: string) => `
  SELECT id AS number
    FROM latchkey_outbox
   WHERE id IN (${list}) AND died_at IS NOT NULL`;

/** Parameters: the messages. */
export const lockDead = (list: string) => `
  SELECT ${now} AS clock, ${columns}
    FROM latchkey_outbox FORCE INDEX (PRIMARY)
   WHERE id IN (${list}) AND died_at IS NOT NULL
   ORDER BY id
     FOR UPDATE`;

/** Parameters: the messages. */
export const revive = (list: string) => `
  UPDATE latchkey_outbox FORCE INDEX (PRIMARY)
     SET died_at = NULL, error = NULL, attempts = 0, due_at = ${now}, waiting_lane = lane
   WHERE id IN (${list})`;

/** Parameters: for how long they are kept. */
export const findDelivered = (limit: number) => `
  SELECT id AS number
    FROM latchkey_outbox
   WHERE delivered_at <= ${now} - ?
   ORDER BY delivered_at
   LIMIT ${limit}`;

/** Parameters: the messages. */
export const deleteMessages = (list: string) => `
  DELETE m
    FROM latchkey_outbox AS m FORCE INDEX (PRIMARY)
   WHERE m.id IN (${list}) AND m.delivered_at IS NOT NULL`;
