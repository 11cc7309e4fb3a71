import { Expression } from "./expression.ts";
import { type Job, jobName, shards } from "./keys.ts";
import type { Condition, Table } from "./table.ts";
import { dueIndex } from "./table-definition.ts";
import { type Item, number, numberIn, text } from "./values.ts";

/*
 * What is found here may be out of date by a moment, because DynamoDB writes its indexes later than its tables. So it is
 * only where to look: whoever acts on it reads the item itself, and writes on condition that it is still so.
 */

export interface IndexQuery {
  /** Nothing that is later than this. */
  readonly until?: number | undefined;
  readonly limit?: number;
  readonly isBackwards?: boolean;
  /** What else the index must say about an item. */
  readonly filter?: Condition;
  /** The place after which to begin. */
  readonly after?: Item;
}

/** One shard's share of a job, page after page, the earliest first. */
export function findInIndex(
  table: Table,
  job: Job,
  shard: number,
  { until, limit, isBackwards = false, filter, after }: IndexQuery,
): AsyncGenerator<readonly Item[]> {
  const expression = new Expression();
  const conditions = [expression.equal({ job: text(jobName(job, shard)) })];
  if (until !== undefined)
    conditions.push(`${expression.name("dueAt")} <= ${expression.value(number(until))}`);
  return table.query({
    IndexName: dueIndex,
    KeyConditionExpression: conditions.join(" AND "),
    ...(filter === undefined ? {} : { FilterExpression: filter(expression) }),
    ...expression.placeholders,
    ScanIndexForward: !isBackwards,
    // DynamoDB counts before it filters.
    ...(limit === undefined || filter !== undefined ? {} : { Limit: limit }),
    ...(after === undefined ? {} : { ExclusiveStartKey: after }),
  });
}

/** Up to `limit` items that are due in any of these jobs, the longest due first. */
export async function findDue(
  table: Table,
  jobs: readonly (IndexQuery & { readonly job: Job })[],
  limit: number,
): Promise<readonly Item[]> {
  if (limit <= 0) return [];
  const found = await Promise.all(
    jobs.flatMap(({ job, ...query }) =>
      shards.map(async (shard) => {
        const items: Item[] = [];
        for await (const page of findInIndex(table, job, shard, { ...query, limit })) {
          items.push(...page);
          if (items.length >= limit) break;
        }
        return items;
      }),
    ),
  );
  return found
    .flat()
    .sort((a, b) => numberIn(a, "dueAt") - numberIn(b, "dueAt"))
    .slice(0, limit);
}
