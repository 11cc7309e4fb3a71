import type { ListedRecord, RecordState } from "../../core/record.ts";
import { tenantScopeOf } from "../../core/scope.ts";
import type { ListQuery, RecordPage } from "../../core/store.ts";
import { cursorOf, isAskedFor, notAPlace, partsOf } from "../listing.ts";
import type { Context } from "./context.ts";
import { findInIndex } from "./due.ts";
import { indexed, isPk, isSk, type Job, keyItem, keyOf, scopeInPk, shards } from "./keys.ts";
import { listedAttributes, listedOf } from "./listed-item.ts";
import type { Table } from "./table.ts";
import { type Item, numberIn, textIn } from "./values.ts";

/**
 * Where the index has the records of a state, and few others. What is completed or may be tried again lies there with all
 * that is settled, and would have to be read one by one.
 */
export const jobsOfState: Readonly<Partial<Record<RecordState, readonly Job[]>>> = {
  pending: ["unfinished"],
  in_progress: ["lease"],
  unknown: ["reconcile", "escalated"],
  expired: ["gone"],
};

/**
 * Goes through the shares of some jobs, and reads the records that the index names. What is put off meanwhile, as a lease
 * is by every heartbeat, moves to the back and may be met again there; nothing is passed by.
 */
export async function listJobs(
  { records: { table } }: Context,
  query: ListQuery,
  jobs: readonly Job[],
): Promise<Omit<RecordPage, "now">> {
  const shares = jobs.flatMap((job) => shards.map((shard) => ({ job, shard })));
  const records: ListedRecord[] = [];
  let looked = 0;
  let { nth, after } = query.after === undefined ? { nth: 0, after: undefined } : placeOf(query.after);
  for (const { job, shard } of shares.slice(nth)) {
    const start = after && { ...keyItem(after), ...indexed(job, shard, after.dueAt) };
    const pages = findInIndex(table, job, shard, { limit: itemsAtOnce, ...(start && { after: start }) });
    for await (const items of pages) {
      for (const { item, record } of await readAll(table, items, query)) {
        if (isAskedFor(record, query)) records.push(record);
        if (records.length >= query.limit) return { records, next: cursorAt(nth, item) };
      }
      looked += items.length;
      const last = items.at(-1);
      if (looked >= looksMax && last !== undefined) return { records, next: cursorAt(nth, last) };
    }
    nth += 1;
    after = undefined;
  }
  return { records, next: undefined };
}

/** Each is an item to be read, whatever its size. */
const itemsAtOnce = 100;
const looksMax = 500;

/** Of each item of the index the record as it is now, in their order; without those that are another tenant's by name. */
async function readAll(table: Table, items: readonly Item[], { tenantScope }: ListQuery) {
  const own = items.filter((item) => {
    const scope = scopeInPk(textIn(item, "pk"));
    return tenantScope === undefined || scope === undefined || tenantScopeOf(scope) === tenantScope;
  });
  const read = await table.getAll(own.map(keyOf), listedAttributes);
  const records = new Map(read.map((item) => [textIn(item, "pk"), listedOf(item)]));
  return own.flatMap((item) => {
    const record = records.get(textIn(item, "pk"));
    return record === undefined ? [] : [{ item, record }];
  });
}

function cursorAt(nth: number, item: Item): string {
  const { pk, sk } = keyOf(item);
  return cursorOf([nth, numberIn(item, "dueAt"), pk, sk]);
}

function placeOf(cursor: string) {
  const [nth, dueAt, pk, sk] = partsOf(cursor);
  const isPlace =
    Number.isInteger(nth) && (nth as number) >= 0 && Number.isFinite(dueAt) && isPk(pk) && isSk(sk);
  if (!isPlace) throw notAPlace();
  return { nth: nth as number, after: { dueAt: dueAt as number, pk, sk } };
}
