import type { RecordState } from "../../core/record.ts";
import type { ListQuery, RecordPage } from "../../core/store.ts";
import { listedColumns, listedOf } from "../listed-row.ts";
import { cursorOf, isAskedFor, notAPlace, partsOf } from "../listing.ts";
import type { ColumnValue } from "../record-row.ts";
import { isOfTenant, tenantScopes } from "../tenant-scopes.ts";
import type { Database, Row, Session } from "./database.ts";
import { now } from "./statements.ts";

/**
 * The latest first, and those of one moment by their ids: the order of an index, which an offset never has to count its
 * way through. What is asked for is found through the index of the keys or of the scopes if that has few candidates; else
 * a stretch of the records is looked at, and the page has those of them that are asked for.
 */
export async function list(database: Database, query: ListQuery): Promise<RecordPage> {
  const place = query.after === undefined ? undefined : placeOf(query.after);
  return database.snapshot(async (session) => {
    const looking = (await lookingAtCandidates(session, query, place)) ?? lookingAtAll(query, place);
    const rows = await session.rows(readLooked(looking), [
      ...looking.looked.parameters,
      ...looking.filter.parameters,
    ]);
    const [clock] = await session.rows(`SELECT ${now} AS clock`);
    return { ...pageOf(rows, looking, query), now: Number(clock?.clock) };
  });
}

/** Where a list goes on: after the record that has this time and this id. */
interface Place {
  readonly createdAt: number;
  readonly id: Buffer;
}

/** A part of a statement, with what its question marks stand for. */
interface Sql {
  readonly sql: string;
  readonly parameters: readonly ColumnValue[];
}

interface Looking {
  /** Selects the id and the time of up to `looksMax` records, in order. */
  readonly looked: Sql;
  readonly looksMax: number;
  /** Which of them are wanted. */
  readonly filter: Sql;
}

/** Undefined if no index names them, or if there are more than can be sorted within a moment. */
async function lookingAtCandidates(
  session: Session,
  query: ListQuery,
  place: Place | undefined,
): Promise<Looking | undefined> {
  const index = query.key !== undefined ? keyIndex : query.tenantScope !== undefined ? scopeIndex : undefined;
  if (index === undefined) return undefined;
  const narrow = together(index === keyIndex ? [ofKey(query)] : [ofTenant(query)]);
  const [row] = await session.rows(countCandidates(index, narrow), narrow.parameters);
  if (Number(row?.candidates) > candidatesMax) return undefined;
  const looksMax = query.limit + 1;
  const where = together([
    ofKey(query),
    ofTenant(query),
    ofRoute(query),
    ofState(query.state),
    ...within(query, place),
  ]);
  return { looked: looked(index, where, looksMax), looksMax, filter: everything };
}

/** A stretch of all records, or of those of one state. */
function lookingAtAll(query: ListQuery, place: Place | undefined): Looking {
  const filter = together([ofKey(query), ofTenant(query), ofRoute(query)]);
  const looksMax = filter === everything ? query.limit + 1 : Math.max(query.limit + 1, looksMaxOfMany);
  const of = query.state === undefined ? states : [query.state];
  const stretches = of.map((state) =>
    looked(listedIndex, together([ofState(state), ...within(query, place)]), looksMax),
  );
  const sql = `${stretches.map((stretch) => `(${stretch.sql})`).join(" UNION ALL ")} ${latestFirst(looksMax)}`;
  return { looked: { sql, parameters: stretches.flatMap(({ parameters }) => parameters) }, looksMax, filter };
}

const keyIndex = "latchkey_records_key";
const scopeIndex = "latchkey_records_scope";
const listedIndex = "latchkey_records_listed";

const states: readonly RecordState[] = [
  "in_progress",
  "completed",
  "pending",
  "failed_retryable",
  "unknown",
  "expired",
];

/** Each is a row to be read and sorted: some ten milliseconds in all. */
const candidatesMax = 5_000;

/** Each is a row to be read, of which perhaps none is wanted. */
const looksMaxOfMany = 1_000;

/** The columns are named, because ids of both tables are in sight. */
const latestFirst = (limit: number) => `ORDER BY created_at DESC, id DESC LIMIT ${limit}`;

const countCandidates = (index: string, { sql }: Sql) => `
  SELECT COUNT(*) AS candidates
    FROM (SELECT 1 FROM latchkey_records FORCE INDEX (${index}) WHERE ${sql} LIMIT ${candidatesMax + 1}) AS some`;

/** FORCE INDEX, because the server would rather go through all of a table that it takes for a small one. */
function looked(index: string, { sql, parameters }: Sql, limit: number): Sql {
  const from = `SELECT id, created_at FROM latchkey_records FORCE INDEX (${index})`;
  return { sql: `${from} WHERE ${sql} ${latestFirst(limit)}`, parameters };
}

/** Of each record that was looked at its place, and the rest only if it is wanted. */
const readLooked = ({ looked, filter }: Looking) => `
  SELECT looked.id, looked.created_at AS looked_at, r.scope, r.record_key,
         ${listedColumns.map((column) => `r.${column}`).join(", ")}
    FROM (${looked.sql}) AS looked
         LEFT JOIN latchkey_records AS r ON r.id = looked.id AND ${filter.sql}
   ORDER BY looked.created_at DESC, looked.id DESC`;

const everything: Sql = { sql: "TRUE", parameters: [] };

function together(conditions: readonly (Sql | undefined)[]): Sql {
  const said = conditions.filter((condition) => condition !== undefined);
  if (said.length === 0) return everything;
  return {
    sql: said.map(({ sql }) => sql).join(" AND "),
    parameters: said.flatMap(({ parameters }) => parameters),
  };
}

function ofKey({ key }: ListQuery): Sql | undefined {
  return key === undefined ? undefined : { sql: "record_key = ?", parameters: [key] };
}

function ofTenant({ tenantScope }: ListQuery): Sql | undefined {
  return tenantScope === undefined ? undefined : { sql: isOfTenant, parameters: tenantScopes(tenantScope) };
}

function ofRoute({ route }: ListQuery): Sql | undefined {
  return route === undefined ? undefined : { sql: "route = ?", parameters: [route] };
}

function ofState(state: RecordState | undefined): Sql | undefined {
  return state === undefined ? undefined : { sql: "state = ?", parameters: [state] };
}

/** The stretch of time, and what of it was not shown yet. The first condition of a place is what an index can begin with. */
function within({ createdFrom, createdBefore }: ListQuery, place: Place | undefined): (Sql | undefined)[] {
  return [
    createdFrom === undefined ? undefined : { sql: "created_at >= ?", parameters: [createdFrom] },
    createdBefore === undefined ? undefined : { sql: "created_at < ?", parameters: [createdBefore] },
    place && {
      sql: "created_at <= ? AND (created_at < ? OR id < ?)",
      parameters: [place.createdAt, place.createdAt, place.id],
    },
  ];
}

function pageOf(rows: readonly Row[], { looksMax }: Looking, query: ListQuery): Omit<RecordPage, "now"> {
  const found = rows.flatMap((row) => {
    if (row.state === null) return [];
    const id = { scope: row.scope as string, key: row.record_key as string };
    const record = listedOf(id, row as Parameters<typeof listedOf>[1]);
    return isAskedFor(record, query) ? [{ record, row }] : [];
  });
  const shown = found.slice(0, query.limit);
  const last = found.length > shown.length ? shown.at(-1)?.row : rows[looksMax - 1];
  return { records: shown.map(({ record }) => record), next: last && cursorAt(last) };
}

function cursorAt({ looked_at, id }: Row): string {
  return cursorOf([looked_at, Buffer.from(id as Uint8Array).toString("base64url")]);
}

function placeOf(cursor: string): Place {
  const [createdAt, id] = partsOf(cursor);
  if (Number.isSafeInteger(createdAt) && typeof id === "string" && /^[\w-]{43}$/.test(id)) {
    return { createdAt: createdAt as number, id: Buffer.from(id, "base64url") };
  }
  throw notAPlace();
}
