import { setImmediate } from "node:timers/promises";
import type { ListedRecord } from "../core/record.ts";
import { tenantScopeOf } from "../core/scope.ts";
import type { ListQuery, RecordPage } from "../core/store.ts";
import { cursorAt, type Place, placeOf } from "./listing.ts";

/** How a database finds the records that one query asks for. */
export interface RecordFinder {
  /**
   * Up to `limit` of them, the latest first, where an index has them in this order, or finds so few that they can be
   * sorted; undefined where neither is so.
   */
  find(after: Place | undefined, limit: number): Promise<readonly ListedRecord[] | undefined>;

  /** Goes through all records from the latest on, and looks at no more of them than a moment allows. */
  look(after: Place | undefined, limit: number): Promise<Look>;
}

export interface Look {
  /** Those among them that are asked for, `limit` at most. */
  readonly records: readonly ListedRecord[];
  /** The last one that was looked at; undefined if none comes after it. */
  readonly end: Place | undefined;
}

/** A page of a list: from an index, or as far as somebody who looks at one record after another comes in a moment. */
export async function pageOf(query: ListQuery, finder: RecordFinder): Promise<Omit<RecordPage, "now">> {
  const { limit, tenantScope } = query;
  // The scope of an endpoint is no tenant's, and a range that begins with it would find the endpoint's records.
  if (tenantScope !== undefined && tenantScopeOf(tenantScope) !== tenantScope) {
    return { records: [], next: undefined };
  }
  // One more than asked for tells whether there is another page.
  const wanted = limit + 1;
  let after = query.after === undefined ? undefined : placeOf(query.after);
  // The page before has found out that there are too many.
  const found = isBetween(after) ? undefined : await finder.find(after, wanted);
  if (found !== undefined) return cut(found, limit);
  const records: ListedRecord[] = [];
  const giveUpAt = performance.now() + lookingMs;
  for (;;) {
    const look = await finder.look(after, wanted - records.length);
    records.push(...look.records);
    if (records.length >= wanted) return cut(records, limit);
    if (look.end === undefined) return { records, next: undefined };
    after = look.end;
    if (performance.now() >= giveUpAt) return { records, next: cursorAt(after) };
    // A driver that reads without waiting leaves others their turn.
    await setImmediate();
  }
}

function cut(found: readonly ListedRecord[], limit: number): Omit<RecordPage, "now"> {
  const records = found.slice(0, limit);
  const last = records.at(-1);
  return { records, next: found.length > limit && last !== undefined ? cursorAt(last) : undefined };
}

/** Where everything from this moment on was looked at: no record has an empty scope. */
export function before(createdAt: number): Place {
  return { createdAt, scope: "", key: "" };
}

/** Whether this is where a look has ended, and no record's place. */
export function isBetween(place: Place | undefined): boolean {
  return place?.scope === "";
}

/** A page that is shown at once: with the last look, which may have begun just before, well below 200 ms. */
const lookingMs = 50;

/** As many candidates as are fetched one by one and sorted in some ten milliseconds. */
export const candidatesMax = 5_000;

/** What is under way at one time, in all processes; reading and sorting it takes less than looking for it. */
export const underWayMax = 20_000;

/** In so many scopes a key is looked for one after the other: two searches in an index each, some ten microseconds. */
export const scopesMax = 2_000;

/** A time that a query or a cursor names, as far as databases have dates. */
export function boundedTime(ms: number): number {
  return Math.min(Math.max(ms, 0), timeMax);
}

const timeMax = 8_640_000_000_000_000;
