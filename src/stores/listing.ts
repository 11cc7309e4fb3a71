import { StoreRefusedError } from "../core/errors.ts";
import type { ListedRecord, RecordId } from "../core/record.ts";
import { tenantScopeOf } from "../core/scope.ts";
import type { ListQuery } from "../core/store.ts";

/** Where a list that has the latest first goes on: after the record that was first reserved then, by the order below. */
export interface Place extends RecordId {
  readonly createdAt: number;
}

/** The latest first, and among those of one moment by scope and key, so that no two records share a place. */
export function latestFirst(one: Place, other: Place): number {
  return (
    other.createdAt - one.createdAt || compareText(one.scope, other.scope) || compareText(one.key, other.key)
  );
}

/** As text that a client hands back unchanged. */
export function cursorAt({ createdAt, scope, key }: Place): string {
  return cursorOf([createdAt, scope, key]);
}

export function placeOf(cursor: string): Place {
  const [createdAt, scope, key] = partsOf(cursor);
  if (Number.isSafeInteger(createdAt) && typeof scope === "string" && typeof key === "string") {
    return { createdAt: createdAt as number, scope, key };
  }
  throw notAPlace();
}

/** Whatever a store needs to know of a place. */
export function cursorOf(parts: readonly unknown[]): string {
  return Buffer.from(JSON.stringify(parts)).toString("base64url");
}

/** What `cursorOf` was given, as far as anybody can tell: a client may have made it up, so each part is to be looked at. */
export function partsOf(cursor: string): readonly unknown[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString());
    if (Array.isArray(parts)) return parts;
  } catch {
    // Said below.
  }
  throw notAPlace();
}

export function notAPlace(): StoreRefusedError {
  return new StoreRefusedError(
    "this is not where a list can go on: pass `next` of the page before, as it came",
  );
}

export function comesAfter(record: Place, cursor: string): boolean {
  return latestFirst(record, placeOf(cursor)) > 0;
}

/** Whether a record is among those that a query asks for. */
export function isAskedFor(record: ListedRecord, query: ListQuery): boolean {
  const { state, tenantScope, key, route, createdFrom, createdBefore } = query;
  return (
    (state === undefined || record.state === state) &&
    (tenantScope === undefined || tenantScopeOf(record.scope) === tenantScope) &&
    (key === undefined || record.key === key) &&
    (route === undefined || record.route === route) &&
    (createdFrom === undefined || record.createdAt >= createdFrom) &&
    (createdBefore === undefined || record.createdAt < createdBefore)
  );
}

/** By code units, which for the visible ASCII that scopes and keys are made of is how every database compares bytes. */
function compareText(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
