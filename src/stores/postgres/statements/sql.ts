import { hash } from "node:crypto";
import type { RecordId } from "../../../core/record.ts";

/*
 * What the statements of this folder are made of. Parameters and results are only of types that all drivers treat
 * alike: text, int4, float8 (times and durations, in milliseconds), bool and bytea. Result columns are single
 * lower-case words, because a client may be set to rewrite names such as expires_at to camel case.
 *
 * No statement is prepared under a name, so each one is parsed and planned whenever it is sent. That costs the server
 * more than running it, and is why what most requests need is kept short, and the rest comes as a second statement.
 */

/** The store's clock. Columns hold whole milliseconds, so comparing them with now() comes to the same. */
export const now = "date_trunc('milliseconds', now())";

export const milliseconds = (time: string) => `(extract(epoch FROM ${time}) * 1000)::float8`;

export const after = (time: string, duration: string) =>
  `${time} + ${duration}::float8 * interval '1 millisecond'`;

/** From whole milliseconds, so that what is kept for an hour is kept for no millisecond more. */
export const fromNow = (duration: string) => after(now, duration);

/** With the session's number: the lock that a live session holds. Named by the table, so that schemas do not mix. */
export const lockClass = "'latchkey_records'::regclass::oid::int";

/**
 * Until when the owner of a running execution counts as alive: until its lease runs out, or until just now, if the
 * record names a session and the session's lock is free. The probe shares the lock, so that probes do not disturb each
 * other, and gives it back with the end of the statement. It is within CASE because AND promises no order, and only
 * sessions are to be probed.
 */
export const leaseUntil = `
    CASE WHEN owner_session IS NULL THEN lease_until
      WHEN pg_try_advisory_xact_lock_shared(${lockClass}, owner_session) THEN least(lease_until, ${now})
      ELSE lease_until END`;

/**
 * The session in whose name a record is reserved, or NULL if its lock is not held on this server: after a failover the
 * session may still be connected to the old one, and here everybody would take its records for abandoned. They have
 * nothing but their lease then.
 */
export const ownedHere = (session: string) => `
    CASE WHEN ${session}::int IS NULL OR pg_try_advisory_xact_lock_shared(${lockClass}, ${session}::int)
      THEN NULL ELSE ${session}::int END`;

/** The same for each element of an array. */
export const allOwnedHere = (sessions: string) => `
    ARRAY(SELECT ${ownedHere("one.session")} FROM unnest(${sessions}) WITH ORDINALITY AS one (session, place)
      ORDER BY one.place)`;

/** For SET: another state. A request that is neither under way nor done has it in the indexed column as well. */
export const becomes = (state: string) => `state = ${state}, unusual = ${unusualOf(state)}`;

/** What `unusual` is for a state: NULL on the happy path. */
export const unusualOf = (state: string) => `nullif(nullif(${state}, 'in_progress'), 'completed')`;

/** For SET: the answer is kept until `until`. As in the migration 0008_settling_in_place. */
export const keptUntil = (until: string) =>
  `expires_at = latchkey_expiry(expires_at, ${until}), kept_until = latchkey_kept(expires_at, ${until})`;

/** What may be kept until after now, by the index on expires_at: no answer is kept for longer than that past it. */
export const mayBeKept = "expires_at > now() - interval '600 seconds'";

/** When a record expires: see the migration. */
export const expiry = (r = "") => `coalesce(${r}kept_until, ${r}expires_at)`;

/** A record as `recordOf` reads it. */
export function recordColumns(r: string, lease: string): string {
  return `${r}.state, ${r}.fingerprint, ${r}.fence, ${r}.on_crash AS crash, ${r}.owner, ${r}.route, ${r}.progress,
    ${milliseconds(lease)} AS lease, ${milliseconds(`${r}.resume_after`)} AS resume,
    ${milliseconds(`${r}.reconcile_after`)} AS reconcile, ${r}.claims,
    ${r}.reconcile_ms AS reconcilems,
    ${milliseconds(`${r}.escalated_at`)} AS escalated, ${r}.reason,
    ${r}.response_status AS status, ${r}.response_head AS head, ${r}.response_body AS body,
    ${milliseconds(`${r}.created_at`)} AS created, ${milliseconds(`${r}.completed_at`)} AS completed,
    ${milliseconds(expiry(`${r}.`))} AS expires`;
}

/** $1 scope, $2 key */
export const record = `
  SELECT ${recordColumns("r", leaseUntil)}
  FROM latchkey_records AS r
  WHERE scope = $1 AND key = $2`;

/** The channel on which stores tell each other that something has changed. */
export const channel = "latchkey";

/** For RETURNING: wakes whoever waits for the record, when the statement commits. */
export function tellWatchers(name: string): string {
  return `CASE WHEN watched THEN pg_notify('${channel}', ${name})::text END AS told`;
}

/** What a record is called on the channel: its id may be longer than a payload, and is nobody's business. */
export function recordName(id: RecordId): string {
  return hash("sha256", `${id.scope}\0${id.key}`, "hex");
}

/** The same for statements that change many records. Text holds no zero byte, so no two ids have one name. */
export function recordNameInSql(r: string): string {
  return `encode(sha256(convert_to(${r}.scope, 'UTF8') || '\\x00'::bytea || convert_to(${r}.key, 'UTF8')), 'hex')`;
}
