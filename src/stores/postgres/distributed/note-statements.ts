import { list, now } from "./statements.ts";

/** A note, however old it is. */
const note = `name, version, value, expires_at AS expires, ${now} AS now`;

export const notes = {
  /** What is there, in no order. */
  read: (count: number) => `SELECT ${note} FROM latchkey_dist_notes WHERE name IN (${list(1, count)})`,

  /** No row: there is one already. $1 name, $2 version, $3 value, $4 how long it lasts or NULL */
  insert: `
INSERT INTO latchkey_dist_notes (name, version, value, expires_at) VALUES ($1, $2, $3, ${now} + $4::float8)
ON CONFLICT DO NOTHING
RETURNING name`,

  /** No row: somebody else was faster. $1 name, $2 version, $3 value, $4 how long it lasts or NULL, $5 version as found */
  change: `
UPDATE latchkey_dist_notes SET version = $2, value = $3, expires_at = ${now} + $4::float8
WHERE name = $1 AND version = $5
RETURNING name`,

  /** $1 name, $2 version as found */
  remove: "DELETE FROM latchkey_dist_notes WHERE name = $1 AND version = $2 RETURNING name",

  /** Notes whose time is over. $1 limit */
  over: `
SELECT name, version FROM latchkey_dist_notes WHERE expires_at <= ${now} ORDER BY expires_at LIMIT $1::int4`,
} as const;
