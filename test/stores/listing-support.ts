import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { ListedRecord, RecordId } from "../../src/core/record.ts";
import type { ListQuery, Store } from "../../src/core/store.ts";

/** Page after page, to the end; none is longer than was asked for. */
export async function* pagesOf(
  store: Store<never> | Store,
  { limit, ...query }: ListQuery,
): AsyncGenerator<readonly ListedRecord[]> {
  let after: string | undefined;
  do {
    const { records, next } = await store.list({ ...query, limit, after });
    expect(records.length).toBeLessThanOrEqual(limit);
    yield records;
    after = next;
    // Lets whatever else happens in a test happen between two pages.
    await sleep(0);
  } while (after !== undefined);
}

export async function listAll(store: Store<never> | Store, query: ListQuery): Promise<ListedRecord[]> {
  const all: ListedRecord[] = [];
  for await (const records of pagesOf(store, query)) all.push(...records);
  return all;
}

/** In an order of their own. */
export function namesOf(records: readonly RecordId[]): string[] {
  return records.map(({ scope, key }) => `${scope} ${key}`).sort();
}
