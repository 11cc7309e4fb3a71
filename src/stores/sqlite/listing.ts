import type { ListedRecord, RecordState } from "../../core/record.ts";
import type { ListQuery, RecordPage } from "../../core/store.ts";
import { listedColumns, listedOf } from "../listed-row.ts";
import type { Place } from "../listing.ts";
import {
  before,
  boundedTime,
  candidatesMax,
  type Look,
  pageOf,
  type RecordFinder,
  scopesMax,
  underWayMax,
} from "../looking.ts";
import { isOfTenant, tenantScopes } from "../tenant-scopes.ts";
import { type Row, type SqliteDatabase, type SqliteValue, Statement } from "./driver.ts";

/** Looks through the records of one connection. */
export class Listing {
  readonly #database: SqliteDatabase;
  /** By their text: each combination of conditions is found in its own way. */
  readonly #statements = new Map<string, Statement>();

  constructor(database: SqliteDatabase) {
    this.#database = database;
  }

  page(query: ListQuery): Promise<Omit<RecordPage, "now">> {
    return pageOf(query, new SqliteFinder(query, (sql, parameters) => this.#all(sql, parameters)));
  }

  #all(sql: string, parameters: readonly SqliteValue[]): readonly Row[] {
    const statement = this.#statements.get(sql) ?? new Statement(this.#database, sql);
    this.#statements.set(sql, statement);
    return statement.all(...parameters);
  }
}

type All = (sql: string, parameters: readonly SqliteValue[]) => readonly Row[];

class SqliteFinder implements RecordFinder {
  readonly #query: ListQuery;
  readonly #all: All;

  constructor(query: ListQuery, all: All) {
    this.#query = query;
    this.#all = all;
  }

  async find(after: Place | undefined, limit: number): Promise<readonly ListedRecord[] | undefined> {
    const { state, tenantScope, key, route } = this.#query;
    if (key !== undefined) return this.#inScopes(key, after, limit);
    if (tenantScope !== undefined) {
      const few = this.#amongFew({ candidates: ofTenant(tenantScope), most: candidatesMax }, after, limit);
      if (few !== undefined) return few;
    }
    if (state === "in_progress") {
      const few = this.#amongFew(
        { candidates: underWay, most: underWayMax, index: leaseIndex },
        after,
        limit,
      );
      if (few !== undefined) return few;
    }
    const isByIndex = state === undefined || isUnusual(state);
    if (!isByIndex || tenantScope !== undefined || route !== undefined) return undefined;
    return this.#inOrder([placeBefore(after)], limit);
  }

  async look(after: Place | undefined, limit: number): Promise<Look> {
    const { key, tenantScope, state, route } = this.#query;
    // What the index tells by itself costs a fraction of what has to be read.
    const isTold = key !== undefined || (tenantScope !== undefined && (state ?? route) === undefined);
    const until = this.#timeAhead(after, isTold ? entriesMax : looksMax);
    const from = until === undefined ? always : { sql: "created_at >= ?", parameters: [until] };
    const records = this.#inOrder([placeBefore(after), from], limit);
    return { records, end: until === undefined ? undefined : before(until) };
  }

  /** Undefined if there are more scopes than can be looked into. */
  #inScopes(key: string, after: Place | undefined, limit: number): readonly ListedRecord[] | undefined {
    const { tenantScope } = this.#query;
    const scopes = tenantScope === undefined ? always : ofTenant(tenantScope);
    const parameters = [...scopes.parameters, ...scopes.parameters, scopesMax];
    const [counted] = this.#all(countScopes(scopes.sql), parameters);
    if ((counted?.scopes as number) > scopesMax) return undefined;
    const where = both(
      placeBefore(after),
      stateIs(this.#query.state),
      routeIs(this.#query.route),
      this.#times(),
    );
    const sql = inScopes(scopes.sql, where.sql);
    return this.#all(sql, [...parameters, key, ...where.parameters, limit]).map(recordOf);
  }

  /** Undefined if there are more candidates than can be sorted. */
  #amongFew(
    {
      candidates,
      most,
      index = "",
    }: { readonly candidates: Condition; readonly most: number; readonly index?: string },
    after: Place | undefined,
    limit: number,
  ): readonly ListedRecord[] | undefined {
    const more = this.#all(isMoreThan(candidates.sql, index), [...candidates.parameters, most]);
    if (more.length > 0) return undefined;
    const { state, route, tenantScope } = this.#query;
    const where = both(
      candidates,
      placeBefore(after),
      stateIs(state),
      routeIs(route),
      tenantScope === undefined ? always : ofTenant(tenantScope),
      this.#times(),
    );
    return this.#all(amongFew(where.sql, index), [...where.parameters, limit]).map(recordOf);
  }

  /** In the order of an index, all conditions in it first. */
  #inOrder(places: readonly Condition[], limit: number): readonly ListedRecord[] {
    const { state, route, tenantScope, key } = this.#query;
    const where = both(
      this.#indexed(),
      ...places,
      this.#times(),
      key === undefined ? always : { sql: "key = ?", parameters: [key] },
      tenantScope === undefined ? always : ofTenant(tenantScope),
      stateIs(state),
      routeIs(route),
    );
    return this.#all(inOrder(this.#index, where.sql), [...where.parameters, limit]).map(recordOf);
  }

  /** The time of the record that is so many away; undefined if there are not so many. Only from the index. */
  #timeAhead(after: Place | undefined, count: number): number | undefined {
    const where = both(this.#indexed(), placeBefore(after), this.#times());
    const [row] = this.#all(timeAhead(this.#index, where.sql), [...where.parameters, count - 1]);
    return row?.created_at as number | undefined;
  }

  get #index(): string {
    const { state } = this.#query;
    return state !== undefined && isUnusual(state) ? "latchkey_records_unusual" : "latchkey_records_created";
  }

  #indexed(): Condition {
    const { state } = this.#query;
    return state !== undefined && isUnusual(state)
      ? { sql: `${unusual} AND state = ?`, parameters: [state] }
      : always;
  }

  #times(): Condition {
    const { createdFrom, createdBefore } = this.#query;
    return both(
      createdFrom === undefined ? always : { sql: "created_at >= ?", parameters: [boundedTime(createdFrom)] },
      createdBefore === undefined
        ? always
        : { sql: "created_at < ?", parameters: [boundedTime(createdBefore)] },
    );
  }
}

/** As many records as are read in some ten milliseconds, and as many entries of an index. */
const looksMax = 10_000;
const entriesMax = 25_000;

interface Condition {
  readonly sql: string;
  readonly parameters: readonly SqliteValue[];
}

const always: Condition = { sql: "true", parameters: [] };

/** As the partial indexes say it, so that they are used. */
const underWay: Condition = { sql: "lease_until > 0", parameters: [] };
const leaseIndex = "INDEXED BY latchkey_records_lease";
const unusual = "state <> 'in_progress' AND state <> 'completed'";

function isUnusual(state: RecordState): boolean {
  return state !== "completed" && state !== "in_progress";
}

function both(...conditions: readonly Condition[]): Condition {
  const real = conditions.filter(({ sql }) => sql !== always.sql);
  if (real.length === 0) return always;
  return {
    sql: real.map(({ sql }) => sql).join(" AND "),
    parameters: real.flatMap(({ parameters }) => parameters),
  };
}

function ofTenant(tenantScope: string): Condition {
  return { sql: isOfTenant, parameters: tenantScopes(tenantScope) };
}

function stateIs(state: RecordState | undefined): Condition {
  return state === undefined ? always : { sql: "+state = ?", parameters: [state] };
}

function routeIs(route: string | undefined): Condition {
  return route === undefined ? always : { sql: "route = ?", parameters: [route] };
}

function placeBefore(after: Place | undefined): Condition {
  return after === undefined
    ? always
    : {
        sql: "(created_at, scope, key) < (?, ?, ?)",
        parameters: [boundedTime(after.createdAt), after.scope, after.key],
      };
}

function recordOf(row: Row): ListedRecord {
  return listedOf({ scope: row.scope as string, key: row.key as string }, row as ListedRow);
}

type ListedRow = Readonly<Record<(typeof listedColumns)[number], SqliteValue>>;

const columns = ["scope", "key", ...listedColumns].join(", ");

/**
 * The latest first, and those of one moment in the order of their scopes and keys, backwards: as the indexes have them. Which
 * index it is, is said, because SQLite knows nothing of how many records a condition leaves.
 */
const inOrder = (index: string, where: string) => `
  SELECT ${columns}
    FROM latchkey_records INDEXED BY ${index}
   WHERE ${where}
   ORDER BY created_at DESC, scope DESC, key DESC
   LIMIT ?`;

const timeAhead = (index: string, where: string) => `
  SELECT created_at
    FROM latchkey_records INDEXED BY ${index}
   WHERE ${where}
   ORDER BY created_at DESC, scope DESC, key DESC
   LIMIT 1 OFFSET ?`;

/** A row if there are more. */
const isMoreThan = (candidates: string, index: string) => `
  SELECT 1
    FROM latchkey_records ${index}
   WHERE ${candidates}
   LIMIT 1 OFFSET ?`;

/** The plus keeps SQLite from going through all records in the order of time, which would spare it the sorting. */
const amongFew = (where: string, index: string) => `
  SELECT ${columns}
    FROM latchkey_records ${index}
   WHERE ${where.replaceAll("created_at", "+created_at")}
   ORDER BY +created_at DESC, scope DESC, key DESC
   LIMIT ?`;

/** The scopes there are, each found by skipping from the one before; one more than asked for, if there are more. */
const scopesOf = (scopes: string) => `
  WITH RECURSIVE scopes (scope) AS (
         SELECT * FROM (SELECT scope FROM latchkey_records WHERE ${scopes} ORDER BY scope LIMIT 1)
          UNION ALL
         SELECT (SELECT scope
                   FROM latchkey_records
                  WHERE scope > scopes.scope AND ${scopes}
                  ORDER BY scope
                  LIMIT 1)
           FROM scopes
          WHERE scopes.scope IS NOT NULL
          LIMIT ? + 2)`;

const countScopes = (scopes: string) => `${scopesOf(scopes)}
  SELECT count(scope) AS scopes FROM scopes`;

/** Parameters: those of the scopes, twice, the most of them, the key, those of the condition, the limit. */
const inScopes = (scopes: string, where: string) => `${scopesOf(scopes)}
  SELECT ${columns}
    FROM (SELECT scope AS found FROM scopes WHERE scope IS NOT NULL)
         CROSS JOIN latchkey_records
   WHERE scope = found AND key = ? AND ${where.replaceAll("created_at", "+created_at")}
   ORDER BY +created_at DESC, scope DESC, key DESC
   LIMIT ?`;
