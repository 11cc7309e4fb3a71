import type { ListedRecord, RecordState } from "../../core/record.ts";
import type { ListQuery, RecordPage } from "../../core/store.ts";
import { listedColumns, listedOf } from "../listed-row.ts";
import type { Place } from "../listing.ts";
import { boundedTime, candidatesMax, type Look, pageOf, type RecordFinder } from "../looking.ts";
import type { ColumnValue } from "../record-row.ts";
import { isOfTenant, tenantScopes } from "../tenant-scopes.ts";
import type { Database, Row, Session } from "./database.ts";
import { idOf } from "./records.ts";
import { now } from "./statements.ts";

/** The latest first, and those of one moment by their ids: the order of an index. */
export async function list(database: Database, query: ListQuery): Promise<RecordPage> {
  return database.snapshot(async (session) => {
    const page = await pageOf(query, new MysqlFinder(session, query));
    const [row] = await session.rows(`SELECT ${now} AS clock`);
    return { ...page, now: Number(row?.clock) };
  });
}

class MysqlFinder implements RecordFinder {
  readonly #session: Session;
  readonly #query: ListQuery;

  constructor(session: Session, query: ListQuery) {
    this.#session = session;
    this.#query = query;
  }

  async find(after: Place | undefined, limit: number): Promise<readonly ListedRecord[] | undefined> {
    const { key, tenantScope, route } = this.#query;
    if (key !== undefined) return this.#amongFew(keyIndex, ofKey(key), after, limit);
    if (tenantScope !== undefined) return this.#amongFew(scopeIndex, ofTenant(tenantScope), after, limit);
    return route === undefined ? this.#read(this.#inOrder(after, limit)) : undefined;
  }

  async look(after: Place | undefined, limit: number): Promise<Look> {
    const stretch = this.#inOrder(after, looksMax);
    const filter = all(this.#key, this.#tenant, this.#route);
    const rows = await this.#session.rows(lookAt(stretch, filter), [
      ...filter.parameters,
      ...stretch.parameters,
    ]);
    const asked = rows.filter(({ is_asked }) => is_asked === 1).map(recordOf);
    const last = rows.find(({ place }) => place === looksMax);
    return { records: asked.slice(0, limit), end: last && recordOf(last) };
  }

  /** Undefined if there are more candidates than can be sorted. */
  async #amongFew(index: Index, candidates: Sql, after: Place | undefined, limit: number) {
    const [row] = await this.#session.rows(countFew(index, candidates), candidates.parameters);
    if (Number(row?.candidates) > candidatesMax) return undefined;
    const { state } = this.#query;
    const where = all(
      this.#key,
      this.#tenant,
      this.#route,
      state === undefined ? undefined : ofState(state),
      ...this.#within(after),
    );
    return this.#read(placesIn(index, where, limit));
  }

  /** Of all records, or of those of one state. */
  #inOrder(after: Place | undefined, limit: number): Sql {
    const { state } = this.#query;
    const ofOne = (one: RecordState) =>
      placesIn(listedIndex, all(ofState(one), ...this.#within(after)), limit);
    if (state !== undefined) return ofOne(state);
    const stretches = states.map(ofOne);
    return {
      sql: `${stretches.map(({ sql }) => `(${sql})`).join(" UNION ALL ")} ${latestFirst} LIMIT ${limit}`,
      parameters: stretches.flatMap(({ parameters }) => parameters),
    };
  }

  async #read(places: Sql): Promise<readonly ListedRecord[]> {
    return (await this.#session.rows(readAt(places), places.parameters)).map(recordOf);
  }

  /** The stretch of time, and what comes after a place; its first condition is what an index can begin with. */
  #within(after: Place | undefined): (Sql | undefined)[] {
    const { createdFrom, createdBefore } = this.#query;
    return [
      createdFrom === undefined
        ? undefined
        : { sql: "created_at >= ?", parameters: [boundedTime(createdFrom)] },
      createdBefore === undefined
        ? undefined
        : { sql: "created_at < ?", parameters: [boundedTime(createdBefore)] },
      after && {
        sql: "created_at <= ? AND (created_at < ? OR id < ?)",
        parameters: [boundedTime(after.createdAt), boundedTime(after.createdAt), idOf(after)],
      },
    ];
  }

  get #key(): Sql | undefined {
    const { key } = this.#query;
    return key === undefined ? undefined : ofKey(key);
  }

  get #tenant(): Sql | undefined {
    const { tenantScope } = this.#query;
    return tenantScope === undefined ? undefined : ofTenant(tenantScope);
  }

  get #route(): Sql | undefined {
    const { route } = this.#query;
    return route === undefined ? undefined : { sql: "route = ?", parameters: [route] };
  }
}

/** A part of a statement, with what its question marks stand for. */
interface Sql {
  readonly sql: string;
  readonly parameters: readonly ColumnValue[];
}

function all(...conditions: readonly (Sql | undefined)[]): Sql {
  const said = conditions.filter((condition) => condition !== undefined);
  return {
    sql: said.map(({ sql }) => sql).join(" AND ") || "TRUE",
    parameters: said.flatMap(({ parameters }) => parameters),
  };
}

function ofKey(key: string): Sql {
  return { sql: "record_key = ?", parameters: [key] };
}

function ofTenant(tenantScope: string): Sql {
  return { sql: isOfTenant, parameters: tenantScopes(tenantScope) };
}

function ofState(state: RecordState): Sql {
  return { sql: "state = ?", parameters: [state] };
}

const states: readonly RecordState[] = [
  "in_progress",
  "completed",
  "pending",
  "failed_retryable",
  "unknown",
  "expired",
];

const keyIndex = "latchkey_records_key";
const scopeIndex = "latchkey_records_scope";
const listedIndex = "latchkey_records_listed";
type Index = typeof keyIndex | typeof scopeIndex | typeof listedIndex;

/** Each is a row to be read, of which perhaps none is asked for: some milliseconds. */
const looksMax = 1_000;

const latestFirst = "ORDER BY created_at DESC, id DESC";

const countFew = (index: Index, { sql }: Sql) => `
  SELECT COUNT(*) AS candidates
    FROM (SELECT 1 FROM latchkey_records FORCE INDEX (${index}) WHERE ${sql} LIMIT ${candidatesMax + 1}) AS few`;

/** FORCE INDEX, because the server would rather go through all of a table that it takes for a small one. */
function placesIn(index: Index, { sql, parameters }: Sql, limit: number): Sql {
  const from = `SELECT id, created_at FROM latchkey_records FORCE INDEX (${index})`;
  return { sql: `${from} WHERE ${sql} ${latestFirst} LIMIT ${limit}`, parameters };
}

const shownColumns = ["scope", "record_key", ...listedColumns].map((column) => `r.${column}`).join(", ");

const readAt = (places: Sql) => `
  SELECT ${shownColumns}
    FROM (${places.sql}) AS places
         JOIN latchkey_records AS r ON r.id = places.id
   ORDER BY r.created_at DESC, r.id DESC`;

/** Those that are asked for, and the last one. Parameters: those of the filter, then those of the places. */
const lookAt = (places: Sql, filter: Sql) => `
  SELECT *
    FROM (SELECT ${filter.sql} AS is_asked, ROW_NUMBER() OVER (ORDER BY r.created_at DESC, r.id DESC) AS place,
                 ${shownColumns}
            FROM (${places.sql}) AS places
                 JOIN latchkey_records AS r ON r.id = places.id) AS looked
   WHERE is_asked OR place = ${looksMax}
   ORDER BY place`;

function recordOf(row: Row): ListedRecord {
  const id = { scope: row.scope as string, key: row.record_key as string };
  return listedOf(id, row as Parameters<typeof listedOf>[1]);
}
