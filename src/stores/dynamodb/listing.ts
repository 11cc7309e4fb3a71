import type { ListedRecord } from "../../core/record.ts";
import type { ListQuery, RecordPage } from "../../core/store.ts";
import { cursorOf, isAskedFor, notAPlace, partsOf } from "../listing.ts";
import type { Context } from "./context.ts";
import { Expression } from "./expression.ts";
import { type ItemKey, isPk, isSk, keyItem, keyOf, recordSk } from "./keys.ts";
import { listedAttributes, listedOf } from "./listed-item.ts";
import { jobsOfState, listJobs } from "./listing-jobs.ts";
import { type Item, number, text } from "./values.ts";

/** What waits for somebody, or for something, is found in the index by which that is found; all else in the table. */
export async function list(context: Context, query: ListQuery): Promise<RecordPage> {
  const jobs = query.state && jobsOfState[query.state];
  const page = await (jobs === undefined ? listTable(context, query) : listJobs(context, query, jobs));
  return { ...page, now: context.now() };
}

/**
 * Goes through the table, which has nothing by tenant, by key or by time, and picks out what is asked for. The place of an
 * item depends on its key only, so that whatever is there all the while is met once, however it changes meanwhile.
 */
async function listTable(context: Context, query: ListQuery): Promise<Omit<RecordPage, "now">> {
  const records: ListedRecord[] = [];
  let place = query.after === undefined ? undefined : placeOf(query.after);
  for (let scans = 0; scans < scansMax; scans += 1) {
    const { found, end } = await scan(context, query, place);
    const room = query.limit - records.length;
    records.push(...found.slice(0, room).map(listedOf));
    const last = found.length > room ? found[room - 1] : undefined;
    place = last === undefined ? end : keyOf(last);
    if (place === undefined || records.length >= query.limit) break;
  }
  return { records, next: place && cursorOf([place.pk, place.sk]) };
}

/** A page of the table, and where it ends; undefined where the table does. */
async function scan(
  { records: { table } }: Context,
  query: ListQuery,
  place: ItemKey | undefined,
): Promise<{ readonly found: readonly Item[]; readonly end: ItemKey | undefined }> {
  const expression = new Expression();
  const { Items = [], LastEvaluatedKey: end } = await table.scan({
    FilterExpression: filterOf(query, expression),
    ...expression.projection(listedAttributes),
    Limit: itemsAtOnce,
    ...(place === undefined ? {} : { ExclusiveStartKey: keyItem(place) }),
  });
  return { found: Items.filter((item) => isAskedFor(listedOf(item), query)), end: end && keyOf(end) };
}

/** Each reads up to a megabyte, whatever it brings back. */
const scansMax = 4;

/** Enough of small records for a page, and no more than that of large ones. */
const itemsAtOnce = 1_000;

/** What need not even be sent. What it lets through is looked at once more: one question, one answer in every store. */
function filterOf(query: ListQuery, expression: Expression): string {
  const { state, tenantScope, key, route, createdFrom, createdBefore } = query;
  const conditions = [expression.equal({ sk: text(recordSk) })];
  const equal = (name: string, value: string | undefined) => {
    if (value !== undefined) conditions.push(expression.equal({ [name]: text(value) }));
  };
  equal("state", state);
  equal("key", key);
  equal("route", route);
  if (tenantScope !== undefined) {
    const isOfEndpoint = `begins_with(${expression.name("scope")}, ${expression.value(text(`${tenantScope} `))})`;
    conditions.push(`(${expression.equal({ scope: text(tenantScope) })} OR ${isOfEndpoint})`);
  }
  const createdAt = () => expression.name("createdAt");
  if (createdFrom !== undefined)
    conditions.push(`${createdAt()} >= ${expression.value(number(createdFrom))}`);
  if (createdBefore !== undefined) {
    conditions.push(`${createdAt()} < ${expression.value(number(createdBefore))}`);
  }
  return conditions.join(" AND ");
}

/** DynamoDB goes on from any key, also from that of an item that is not there any more. */
function placeOf(cursor: string): ItemKey {
  const [pk, sk, ...rest] = partsOf(cursor);
  if (rest.length === 0 && isPk(pk) && isSk(sk)) return { pk, sk };
  throw notAPlace();
}
