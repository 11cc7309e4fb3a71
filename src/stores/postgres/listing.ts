import type { ListedRecord, RecordState } from "../../core/record.ts";
import type { ListQuery, RecordPage } from "../../core/store.ts";
import type { Place } from "../listing.ts";
import {
  before,
  boundedTime,
  candidatesMax,
  isBetween,
  type Look,
  pageOf,
  type RecordFinder,
  scopesMax,
  underWayMax,
} from "../looking.ts";
import type { Parameter, Row } from "./database.ts";
import { type ListedRow, recordOf } from "./listed-rows.ts";
import type { Queries } from "./queries.ts";
import * as statements from "./statements/listing.ts";
import { after as later } from "./statements/sql.ts";
import { isOfTenant } from "./statements/tenants.ts";
import { listLeases } from "./statements/upkeep.ts";

export async function list(
  queries: Queries,
  query: ListQuery,
  { partitioned }: { readonly partitioned: boolean },
): Promise<RecordPage> {
  const page = await pageOf(query, new PostgresFinder(queries, query, { partitioned }));
  const { now } = await queries.one<{ now: number }>(statements.currentTime);
  return { ...page, now };
}

/** Every search in an index is one for each partition. */
const scopesInPartitionsMax = 100;

class PostgresFinder implements RecordFinder {
  readonly #queries: Queries;
  readonly #query: ListQuery;
  readonly #partitioned: boolean;
  readonly #scopesMax: number;
  #looks = 0;
  #span: SpanRow | undefined;
  /** How far back the next look into the index goes: twice as far as the one before. */
  #stretchMs = firstStretchMs;

  constructor(queries: Queries, query: ListQuery, { partitioned }: { readonly partitioned: boolean }) {
    this.#queries = queries;
    this.#query = query;
    this.#partitioned = partitioned;
    this.#scopesMax = partitioned ? scopesInPartitionsMax : scopesMax;
  }

  async find(after: Place | undefined, limit: number): Promise<readonly ListedRecord[] | undefined> {
    const { state, tenantScope, key, route } = this.#query;
    if (key !== undefined) return this.#inScopes(key, after, limit);
    if (tenantScope !== undefined) {
      const few = await this.#amongFew(ofTenant(tenantScope), candidatesMax, after, limit);
      if (few !== undefined) return few;
    }
    if (state === "in_progress" && (await this.#areLeasesListed())) {
      const few = await this.#amongFew(() => underWay, underWayMax, after, limit);
      if (few !== undefined) return few;
    }
    const isByIndex = state === undefined || isUnusual(state);
    if (!isByIndex || tenantScope !== undefined || route !== undefined) return undefined;
    const asked = new Parameters();
    const where = all(this.#order(asked, after), ...this.#times(asked));
    return this.#records(statements.inOrder(where, asked.add(limit)), asked);
  }

  async look(after: Place | undefined, limit: number): Promise<Look> {
    const { key, tenantScope, state, route } = this.#query;
    if (key !== undefined) return this.#lookInIndex(after, limit);
    if (tenantScope === undefined || (state ?? route) !== undefined) {
      return this.#lookAtNext(after, limit, looksMax);
    }
    // A tenant that has many records is likely to have some among the next ones, which are read whatever the statistics say.
    const isFirst = this.#looks === 0 && !isBetween(after);
    this.#looks += 1;
    return isFirst ? this.#lookAtNext(after, limit, firstLooksMax) : this.#lookInIndex(after, limit);
  }

  /** Whether all that is under way is found in the index. */
  async #areLeasesListed(): Promise<boolean> {
    if (this.#partitioned) return true;
    const { complete } = await this.#queries.one<{ complete: boolean }>(listLeases);
    return complete;
  }

  /** Undefined if there are more scopes than can be looked into. */
  async #inScopes(key: string, after: Place | undefined, limit: number) {
    const { tenantScope } = this.#query;
    const asked = new Parameters();
    const statement = statements.inScopes({
      scopes: tenantScope === undefined ? "true" : isAbout(asked.add(tenantScope)),
      key: asked.add(key),
      where: all(
        this.#place(asked, after),
        this.#tenant(asked),
        this.#state(asked),
        this.#route(asked),
        ...this.#times(asked),
      ),
      most: asked.add(this.#scopesMax),
      limit: asked.add(limit),
    });
    const rows = await this.#queries.all<ListedRow & { readonly scopes: number }>(statement, asked.values);
    if ((rows[0]?.scopes ?? 0) > this.#scopesMax) return undefined;
    return rows.filter(({ scope }) => scope !== null).map(recordOf);
  }

  /** Undefined if there are more candidates than can be sorted. */
  async #amongFew(
    candidates: (asked: Parameters) => string,
    most: number,
    after: Place | undefined,
    limit: number,
  ) {
    const counted = new Parameters();
    const { more } = await this.#queries.one<{ more: boolean }>(
      statements.isMoreThan(candidates(counted), counted.add(most)),
      counted.values,
    );
    if (more) return undefined;
    const asked = new Parameters();
    const few = candidates(asked);
    const where = all(
      this.#place(asked, after),
      this.#state(asked),
      this.#tenant(asked),
      this.#route(asked),
      ...this.#times(asked),
    );
    return this.#records(statements.amongFew(few, where, asked.add(limit)), asked);
  }

  async #lookAtNext(after: Place | undefined, limit: number, count: number): Promise<Look> {
    const asked = new Parameters();
    const statement = statements.nextOnes({
      from: all(this.#order(asked, after), ...this.#times(asked)),
      where: all(this.#state(asked), this.#tenant(asked), this.#route(asked)),
      count: asked.add(count),
      limit: asked.add(limit),
    });
    const rows = await this.#queries.all<LookedRow>(statement, asked.values);
    const records = rows.filter(({ isasked }) => isasked).map(recordOf);
    const last = rows.find(({ place }) => place === count);
    return { records, end: last && recordOf(last) };
  }

  /**
   * Scope and key are part of the index that has the records in their order, so that only those are read which are asked for.
   * That index counts nothing, so a look is as long as a stretch of time.
   */
  async #lookInIndex(after: Place | undefined, limit: number): Promise<Look> {
    const { key, createdFrom = 0, createdBefore = Number.POSITIVE_INFINITY } = this.#query;
    const span = this.#span ?? (await this.#queries.one<SpanRow>(statements.oldest));
    this.#span = span;
    const { oldest, now } = span;
    const latest = Math.min(after?.createdAt ?? now, boundedTime(createdBefore), now);
    const from = Math.max(0, Math.floor(latest) - this.#stretchMs);
    this.#stretchMs *= 2;
    const asked = new Parameters();
    const where = all(
      key !== undefined && `key = ${asked.add(key)}`,
      `created_at >= ${moment(asked, from)}`,
      this.#place(asked, after),
      this.#tenant(asked),
      this.#state(asked),
      this.#route(asked),
      ...this.#times(asked),
    );
    const records = await this.#records(statements.inOrder(where, asked.add(limit)), asked);
    const isOver = oldest === null || from <= Math.max(oldest, createdFrom);
    return { records, end: isOver ? undefined : before(from) };
  }

  async #records(statement: string, asked: Parameters): Promise<readonly ListedRecord[]> {
    return (await this.#queries.all<ListedRow>(statement, asked.values)).map(recordOf);
  }

  /** Where the list goes on, in the index that this state is in. */
  #order(asked: Parameters, after: Place | undefined): string {
    const { state } = this.#query;
    const isIndexed = state !== undefined && isUnusual(state);
    return all(isIndexed && `unusual = ${asked.add(state)}`, this.#place(asked, after));
  }

  #place(asked: Parameters, after: Place | undefined): string | false {
    if (after === undefined) return false;
    const { createdAt, scope, key } = after;
    return `(created_at, scope, key) < (${moment(asked, createdAt)}, ${asked.add(scope)}, ${asked.add(key)})`;
  }

  #times(asked: Parameters): (string | false)[] {
    const { createdFrom, createdBefore } = this.#query;
    return [
      createdFrom !== undefined && `created_at >= ${moment(asked, createdFrom)}`,
      createdBefore !== undefined && `created_at < ${moment(asked, createdBefore)}`,
    ];
  }

  #state(asked: Parameters): string | false {
    const { state } = this.#query;
    return state !== undefined && `state = ${asked.add(state)}`;
  }

  #tenant(asked: Parameters): string | false {
    const { tenantScope } = this.#query;
    return tenantScope !== undefined && ofTenant(tenantScope)(asked);
  }

  #route(asked: Parameters): string | false {
    const { route } = this.#query;
    return route !== undefined && `route = ${asked.add(route)}`;
  }
}

const firstStretchMs = 60 * 60 * 1000;

/** As many records as are read in some ten milliseconds. */
const looksMax = 10_000;
const firstLooksMax = 2_000;

/** As the partial index says it, so that it is used. */
const underWay = "lapses_at > '-infinity'";

function isUnusual(state: RecordState): boolean {
  return state !== "completed" && state !== "in_progress";
}

/** A range of scopes with all of the tenant's, and hardly any other: all that an index needs. */
function isAbout(tenantScope: string): string {
  return `scope >= ${tenantScope} AND scope < ${tenantScope} || '!'`;
}

function ofTenant(tenantScope: string): (asked: Parameters) => string {
  return (asked) => isOfTenant(asked.add(tenantScope));
}

class Parameters {
  readonly values: Parameter[] = [];

  /** What the statement calls it. */
  add(value: Parameter): string {
    this.values.push(value);
    return `$${this.values.length}`;
  }
}

function moment(asked: Parameters, ms: number): string {
  return `(${later("'epoch'::timestamptz", asked.add(boundedTime(ms)))})`;
}

function all(...conditions: readonly (string | false)[]): string {
  return conditions.filter((condition) => condition !== false && condition !== "").join(" AND ") || "true";
}

interface SpanRow extends Row {
  readonly oldest: number | null;
  readonly now: number;
}

interface LookedRow extends ListedRow {
  readonly place: number;
  readonly isasked: boolean;
}
