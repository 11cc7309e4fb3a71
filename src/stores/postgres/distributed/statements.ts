import { recordColumns } from "../../record-row.ts";

/*
 * The statements for engines that speak the Postgres protocol and are not Postgres. Each reads or writes one table, and
 * each that writes a record names its scope and key: no locks, no functions of our own, no writes within a WITH, no
 * function of the time beside a column, and nothing but columns in RETURNING. docs/distributed-sql.md lists them.
 */

/** The engine's clock, in whole milliseconds. */
export const now = "floor(extract(epoch FROM now()) * 1000)::float8";

/** What a column is called in an answer: a client may be set to rewrite names such as expires_at to camel case. */
export const wordOf = (column: string) => column.replaceAll("_", "");

/** A record as `entryOf` reads it. */
const entry = `scope, key, revision, ${[...recordColumns, "request_body"]
  .map((column) => (column.includes("_") ? `${column} AS ${wordOf(column)}` : column))
  .join(", ")}, ${now} AS now`;

/** So many parameters, from this number on. */
export const list = (from: number, count: number) =>
  Array.from({ length: count }, (_, index) => `$${from + index}`).join(", ");

const one = "scope = $1 AND key = $2";

/** The record that a lease still holds. */
const held = `${one} AND fence = $3 AND owner = $4 AND state = 'in_progress'`;

/** As core's `isSettled` says it, of what is not expired yet. */
const isSettled = "resume_after IS NULL AND (state = 'completed' OR progress IS NULL)";

/** What a change sets, in the order of its parameters from $4 on. */
const changed = ["revision", ...recordColumns, "request_body"];

export const records = {
  /** The time, where there is no record to tell it. */
  now: `SELECT ${now} AS now`,

  /** $1 scope, $2 key */
  read: `SELECT ${entry} FROM latchkey_dist_records WHERE ${one}`,

  /**
   * No row: there is a record already. $1 scope, $2 key, $3 revision, $4 state, $5 fingerprint, $6 fence, $7 onCrash,
   * $8 retention, $9 owner, $10 lease, $11 route, $12 and $13 the request, $14 0 if it waits for a worker or NULL,
   * $15 how long after a crash reconciliation may ask
   */
  insert: `
INSERT INTO latchkey_dist_records (scope, key, revision, state, fingerprint, fence, on_crash, created_at, expires_at,
  owner, lease_until, route, request_head, request_body, resume_after, claims, reconcile_ms)
VALUES ($1, $2, $3, $4, $5, $6::int4, $7, ${now}, ${now} + $8::float8,
  $9, ${now} + $10::float8, $11, $12, $13, ${now} + $14::float8, 0, $15::float8)
ON CONFLICT DO NOTHING
RETURNING created_at AS created`,

  /** No row: somebody else was faster. $1 scope, $2 key, $3 revision as found, then the revision that it gets, what `rowOf` makes of the record, and the body of its request */
  change: `
UPDATE latchkey_dist_records SET ${changed.map((column, index) => `${column} = $${index + 4}`).join(", ")}
WHERE ${one} AND revision = $3
RETURNING fence`,

  /** $1 scope, $2 key, $3 revision as found */
  remove: `DELETE FROM latchkey_dist_records WHERE ${one} AND revision = $3 RETURNING fence`,

  /** $1 scope, $2 key, $3 fence, $4 owner, $5 revision, $6 status, $7 head, $8 body, $9 retention */
  complete: `
UPDATE latchkey_dist_records SET revision = $5, state = 'completed', response_status = $6::int4, response_head = $7,
  response_body = $8, completed_at = ${now}, expires_at = ${now} + $9::float8, lease_until = NULL, request_head = NULL,
  request_body = NULL
WHERE ${held}
RETURNING expires_at AS expires`,

  /** $1 scope, $2 key, $3 fence, $4 owner, $5 revision, $6 lease */
  renew: `
UPDATE latchkey_dist_records SET revision = $5, lease_until = ${now} + $6::float8 WHERE ${held} RETURNING fence`,

  /** $1 scope, $2 key, $3 fence, $4 owner, $5 revision, $6 progress, $7 onCrash */
  advance: `
UPDATE latchkey_dist_records SET revision = $5, progress = $6, on_crash = $7 WHERE ${held}
RETURNING expires_at AS expires`,

  /** When this transaction began; within one it is the same from the first statement to the last. */
  began: "SELECT extract(epoch FROM now())::text AS began",

  /** As `advance`, in the transaction of a phase. $8 when it began */
  phase: `
UPDATE latchkey_dist_records SET revision = $5, progress = $6, on_crash = $7
WHERE ${held} AND extract(epoch FROM now())::text = $8
RETURNING expires_at AS expires`,

  /** As `complete`, in the same transaction. */
  respond: `
UPDATE latchkey_dist_records SET revision = $5, state = 'completed', response_status = $6::int4, response_head = $7,
  response_body = $8, completed_at = $10::float8, expires_at = $10::float8 + $9::float8, lease_until = NULL,
  request_head = NULL, request_body = NULL
WHERE ${held}
RETURNING expires_at AS expires`,

  /** The time by now, where `now` is when the transaction began. */
  clock: "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now",
} as const;

/** What workers look for, in all scopes. $1 limit */
export const scans = {
  /** Executions whose lease has run out. */
  dead: `
SELECT ${entry} FROM latchkey_dist_records
WHERE lease_until <= ${now} AND state = 'in_progress' ORDER BY lease_until LIMIT $1::int4`,

  /** Accepted requests that nobody executed in time, and what is half done and nobody goes on with. */
  late: `
SELECT ${entry} FROM latchkey_dist_records
WHERE state IN ('pending', 'failed_retryable') AND expires_at <= ${now}
  AND (state = 'pending' OR (progress IS NOT NULL AND resume_after IS NULL))
ORDER BY expires_at LIMIT $1::int4`,

  /** What a worker may execute or finish. */
  resumable: `
SELECT ${entry} FROM latchkey_dist_records
WHERE resume_after <= ${now} AND request_head IS NOT NULL AND (state <> 'pending' OR expires_at > ${now})
ORDER BY resume_after LIMIT $1::int4`,

  /** Unknown outcomes that may be asked about. */
  unknown: `
SELECT ${entry} FROM latchkey_dist_records
WHERE reconcile_after <= ${now} AND state = 'unknown' AND escalated_at IS NULL
ORDER BY reconcile_after LIMIT $1::int4`,

  /** Settled records past their retention. */
  over: `
SELECT ${entry} FROM latchkey_dist_records
WHERE state IN ('completed', 'failed_retryable') AND expires_at <= ${now} AND ${isSettled}
ORDER BY expires_at LIMIT $1::int4`,

  /** What was kept for audit. */
  kept: `
SELECT ${entry} FROM latchkey_dist_records
WHERE state = 'expired' AND expires_at <= ${now} ORDER BY expires_at LIMIT $1::int4`,
} as const;

/** The time in microseconds as text of one length, for centuries to come. */
export const tick = "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text";

export const audit = {
  /** $1 scope, $2 key, $3 something random, $4 fence, $5 from, $6 to, $7 who, $8 why */
  write: `
INSERT INTO latchkey_dist_audit (scope, key, id, at, fence, from_state, to_state, actor, reason)
VALUES ($1, $2, ${tick} || $3::text, ${now}, $4::int4, $5, $6, $7, $8)`,

  /** The latest first. $1 limit, then what `asked` names: before which id, scope, key */
  read(asked: readonly AuditCondition[]): string {
    const conditions = asked.map((condition, index) => `${auditConditions[condition]} $${index + 2}`);
    return `
SELECT id, at, scope, key, fence, from_state AS origin, to_state AS target, actor, reason
FROM latchkey_dist_audit ${conditions.length > 0 ? `WHERE ${conditions.join(" AND ")}` : ""}
ORDER BY id DESC LIMIT $1::int4`;
  },
} as const;

export type AuditCondition = keyof typeof auditConditions;

const auditConditions = { before: "id <", scope: "scope =", key: "key =" } as const;
