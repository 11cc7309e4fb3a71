import type { ListedRecord } from "../../../core/record.ts";
import type { ListQuery, RecordPage } from "../../../core/store.ts";
import { isAskedFor, latestFirst, type Place } from "../../listing.ts";
import { boundedTime, candidatesMax, type Look, pageOf, type RecordFinder } from "../../looking.ts";
import type { Parameter } from "../database.ts";
import { type ListedRow, recordOf } from "../listed-rows.ts";
import { lists as statements } from "./list-statements.ts";
import type { Records } from "./records.ts";
import { records as recordStatements } from "./statements.ts";
import { matchesOf } from "./tenants.ts";

export async function list(records: Records, query: ListQuery): Promise<RecordPage> {
  const page = await pageOf(query, new DistributedFinder(records, query));
  const [time] = await records.all<{ now: number }>(recordStatements.now);
  return { ...page, now: time?.now ?? 0 };
}

class DistributedFinder implements RecordFinder {
  readonly #records: Records;
  readonly #query: ListQuery;

  constructor(records: Records, query: ListQuery) {
    this.#records = records;
    this.#query = query;
  }

  async find(after: Place | undefined, limit: number): Promise<readonly ListedRecord[] | undefined> {
    for (const search of this.#searches()) {
      const few = await this.#candidates(search);
      if (few === undefined) continue;
      return few
        .filter((record) => isAskedFor(record, this.#query))
        .filter((record) => after === undefined || inOrder(after, record) < 0)
        .sort(inOrder)
        .slice(0, limit);
    }
    return undefined;
  }

  async look(after: Place | undefined, limit: number): Promise<Look> {
    const { createdFrom = 0, createdBefore = Number.POSITIVE_INFINITY } = this.#query;
    // Nothing has an empty scope, so that nothing of the first moment that is too late is among them.
    const from = after ?? { createdAt: createdBefore, scope: "", key: "" };
    const count = this.#isFiltered ? Math.max(looksMax, limit) : limit;
    const rows = await this.#records.all<ListedRow>(statements.next, [
      boundedTime(createdFrom),
      boundedTime(from.createdAt),
      from.scope,
      from.key,
      count,
    ]);
    const looked = rows.map(recordOf);
    const records = looked.filter((record) => isAskedFor(record, this.#query)).slice(0, limit);
    return { records, end: looked.length < count ? undefined : looked.at(-1) };
  }

  get #isFiltered(): boolean {
    const { state, tenantScope, key, route } = this.#query;
    return [state, tenantScope, key, route].some((asked) => asked !== undefined);
  }

  /** What may leave few enough candidates, the narrowest first: the statements, each with its parameter. */
  #searches(): (readonly (readonly [string, string])[])[] {
    const { tenantScope, key, state } = this.#query;
    const searches: (readonly (readonly [string, string])[])[] = [];
    if (tenantScope !== undefined) {
      searches.push(matchesOf(tenantScope).map(([match, scope]) => [statements.ofTenant(match), scope]));
    }
    if (key !== undefined) searches.push([[statements.ofKey, key]]);
    if (state !== undefined) searches.push([[statements.inState, state]]);
    return searches;
  }

  /** Undefined if there are more than can be sorted. */
  async #candidates(
    search: readonly (readonly [string, Parameter])[],
  ): Promise<readonly ListedRecord[] | undefined> {
    const found: ListedRecord[] = [];
    for (const [statement, parameter] of search) {
      const rows = await this.#records.all<ListedRow>(statement, [
        parameter,
        candidatesMax + 1 - found.length,
      ]);
      found.push(...rows.map(recordOf));
      if (found.length > candidatesMax) return undefined;
    }
    return found;
  }
}

/** As many as are sent in a moment. */
const looksMax = 1_000;

/** As `next` has them: the latest first, and those of one moment backwards, as an index is read. */
function inOrder(one: Place, other: Place): number {
  return other.createdAt - one.createdAt || latestFirst(other, one);
}
