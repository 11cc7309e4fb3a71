import { listedColumns } from "../../listed-row.ts";
import { wordOf } from "./statements.ts";
import type { Match } from "./tenant-statements.ts";

/** What a list shows of a record. */
const shown = `scope, key, ${listedColumns
  .map((column) => (column.includes("_") ? `${column} AS ${wordOf(column)}` : column))
  .join(", ")}`;

/*
 * What is asked for of the records that these find is told by the process: so there are five statements, and not one for each
 * combination of conditions.
 */
export const lists = {
  /** $1 scope, or a pattern, $2 limit */
  ofTenant: (match: Match) => `
SELECT ${shown} FROM latchkey_dist_records WHERE scope ${match} $1 LIMIT $2::int4`,

  /** $1 key, $2 limit */
  ofKey: `
SELECT ${shown} FROM latchkey_dist_records WHERE key = $1 LIMIT $2::int4`,

  /** $1 state, $2 limit */
  inState: `
SELECT ${shown} FROM latchkey_dist_records WHERE state = $1 LIMIT $2::int4`,

  /** The latest first. $1 from when, $2 until when, $3 and $4 after which scope and key of that last moment, $5 limit */
  next: `
SELECT ${shown} FROM latchkey_dist_records
WHERE created_at >= $1::float8 AND created_at <= $2::float8
  AND (created_at < $2::float8 OR scope < $3 OR (scope = $3 AND key < $4))
ORDER BY created_at DESC, scope DESC, key DESC LIMIT $5::int4`,
} as const;
