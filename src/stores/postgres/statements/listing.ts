import { listedColumns } from "../../listed-row.ts";
import { wordOf } from "../distributed/statements.ts";
import { expiry, leaseUntil, milliseconds } from "./sql.ts";

/*
 * The latest first, and those of one moment in the order of their scopes and keys, backwards: as the indexes
 * latchkey_records_latest and latchkey_records_unusual have them. Each statement says by itself which index it is for, and leaves
 * the planner no other: what it believes of a table that has just grown would be wrong.
 */

/** The condition of the index latchkey_records_latest: always true, and nobody else may use that index. */
const isListed = "created_at > '-infinity'";

/** The columns of a record that are needed until it is shown. */
const columns = ["scope", "key", ...listedColumns, "owner_session", "kept_until"].join(", ");

const latestFirst = "ORDER BY created_at DESC, scope DESC, key DESC";

const times: ReadonlySet<string> = new Set(listedColumns.filter((name) => /_(at|until|after)$/.test(name)));

const shownTimes: ReadonlyMap<string, string> = new Map([
  ["lease_until", leaseUntil],
  ["expires_at", expiry()],
]);

/** What is shown of it. Asking whether an owner lives comes last, for those on the page only. */
const shown = `scope, key, ${listedColumns
  .map((name) => `${times.has(name) ? milliseconds(shownTimes.get(name) ?? name) : name} AS ${wordOf(name)}`)
  .join(", ")}`;

/** In the order of an index. `where` are conditions on its columns, or on few others. */
export const inOrder = (where: string, limit: string) => `
SELECT ${shown} FROM (
  SELECT ${columns} FROM latchkey_records WHERE ${isListed} AND ${where} ${latestFirst} LIMIT ${limit}::int
) AS found ${latestFirst}`;

/** Whether there are more than so many candidates. */
export const isMoreThan = (candidates: string, most: string) => `
SELECT EXISTS (SELECT FROM latchkey_records WHERE ${candidates} OFFSET ${most}::int) AS more`;

/** Those of the candidates that are asked for. */
export const amongFew = (candidates: string, where: string, limit: string) => `
WITH candidates AS MATERIALIZED (SELECT ${columns} FROM latchkey_records WHERE ${candidates})
SELECT ${shown} FROM (
  SELECT * FROM candidates WHERE ${where} ${latestFirst} LIMIT ${limit}::int
) AS found ${latestFirst}`;

/** A key in one scope after the other. The first row tells how many scopes were looked at, also if it was in none. */
export const inScopes = (asked: {
  readonly scopes: string;
  readonly key: string;
  readonly where: string;
  readonly most: string;
  readonly limit: string;
}) => `
WITH RECURSIVE scopes (scope, place) AS (
  (SELECT scope, 1 FROM latchkey_records WHERE ${asked.scopes} ORDER BY scope LIMIT 1)
  UNION ALL
  SELECT (SELECT r.scope FROM latchkey_records AS r WHERE r.scope > scopes.scope AND ${asked.scopes} ORDER BY r.scope LIMIT 1),
    place + 1
  FROM scopes WHERE scopes.scope IS NOT NULL AND place <= ${asked.most}::int
),
candidates AS MATERIALIZED (
  SELECT r.* FROM scopes CROSS JOIN LATERAL (
    SELECT ${columns} FROM latchkey_records AS r WHERE r.scope = scopes.scope AND r.key = ${asked.key} LIMIT 1
  ) AS r
)
SELECT (SELECT count(scope)::int FROM scopes) AS scopes, found.*
FROM (VALUES (1)) AS always LEFT JOIN (
  SELECT ${shown} FROM (
    SELECT * FROM candidates WHERE ${asked.where} ${latestFirst} LIMIT ${asked.limit}::int
  ) AS wanted
) AS found ON true
ORDER BY found.createdat DESC, found.scope DESC, found.key DESC`;

/** Looks at so many records from a place on. The last of them comes in any case, so that the next look begins there. */
export const nextOnes = (asked: {
  readonly from: string;
  readonly where: string;
  readonly count: string;
  readonly limit: string;
}) => `
SELECT ${shown}, place, isasked FROM (
  SELECT * FROM (
    SELECT *, row_number() OVER (${latestFirst})::int AS place, (${asked.where}) AS isasked FROM (
      SELECT ${columns} FROM latchkey_records WHERE ${isListed} AND ${asked.from} ${latestFirst} LIMIT ${asked.count}::int
    ) AS looked
  ) AS numbered
  WHERE isasked OR place = ${asked.count}::int
  ${latestFirst} LIMIT ${asked.limit}::int
) AS found ${latestFirst}`;

/** When the first of all records was reserved, and the time now. */
export const oldest = `
SELECT ${milliseconds("now()")} AS now, (
  SELECT ${milliseconds("created_at")} FROM latchkey_records WHERE ${isListed} ORDER BY created_at LIMIT 1
) AS oldest`;

export const currentTime = `SELECT ${milliseconds("date_trunc('milliseconds', now())")} AS now`;
