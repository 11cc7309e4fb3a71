import { milliseconds, now } from "./sql.ts";

/** What is there, in no order, and the time in any case. $1 names: an array literal */
export const readNotes = `
SELECT ${milliseconds(now)} AS now, n.name, n.version, n.value
FROM (VALUES (1)) AS always LEFT JOIN latchkey_notes AS n
  ON n.name = ANY($1::text::text[]) AND (n.expires_at IS NULL OR n.expires_at > now())`;

/**
 * Looks at the next notes by their names, and removes those whose time is over: an index by time would have to be
 * written with every change of a note. What somebody writes at this moment is passed by, so nobody waits for another.
 *
 * $1 limit, $2 after which name
 */
export const reapNotes = `
WITH looked AS MATERIALIZED (
  SELECT name, expires_at FROM latchkey_notes WHERE name > $2 ORDER BY name LIMIT $1::int
),
over AS (
  SELECT name FROM latchkey_notes
  WHERE name = ANY (ARRAY (SELECT name FROM looked WHERE expires_at <= now())) AND expires_at <= now()
  FOR UPDATE SKIP LOCKED
),
removed AS (
  DELETE FROM latchkey_notes AS n USING over WHERE n.name = over.name
)
SELECT count(*)::int AS looked, max(name) AS last FROM looked`;
