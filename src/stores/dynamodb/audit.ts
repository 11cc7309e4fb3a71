import { hash } from "node:crypto";
import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { type IdempotencyRecord, recordIdText } from "../../core/record.ts";
import { findInIndex } from "./due.ts";
import { Expression } from "./expression.ts";
import { auditPk, indexed, keyItem, shardCount, shardOf, shards } from "./keys.ts";
import { ttl } from "./record-item.ts";
import type { Table } from "./table.ts";
import { type Item, text, textIn } from "./values.ts";

/*
 * Audit entries are numbered by the time, so that they can be listed by it, and each record's by one more than the last,
 * so that their order is right even where the clocks of two processes are not.
 */

let latest = 0;

export function nextAuditNumber(at: number, last: number | undefined): number {
  latest = Math.max(at * numbersPerMs, latest + 1, (last ?? 0) + 1);
  return latest;
}

/** Enough for whatever happens within a millisecond, and few enough to be exact for centuries. */
export const numbersPerMs = 1_000;

export function auditItem(change: {
  readonly from: IdempotencyRecord;
  readonly record: IdempotencyRecord;
  readonly at: number;
  readonly by: string;
  readonly reason: string;
  readonly number: number;
}): Item {
  const { from, record, at, by, reason, number: sequence } = change;
  const { scope, key, fence, state: to } = record;
  const name = recordIdText(record);
  const id = `${digits(sequence)}-${hash("sha256", name).slice(0, 12)}`;
  const entry: AuditEntry = { id, at, scope, key, fence, from: from.state, to, by, reason };
  return {
    ...keyItem({ pk: auditPk(record), sk: id }),
    // As one text, which the index has as well: whoever lists the trail needs no second reading.
    entry: text(JSON.stringify(entry)),
    ...indexed("audit", shardOf(name, shardCount), sequence),
    ...ttl(at, auditRetentionMs),
  };
}

/** Long enough to look into whatever was noticed this quarter. */
const auditRetentionMs = 90 * 24 * 3_600_000;

/** As text that sorts as the number does. */
export function digits(sequence: number): string {
  return String(sequence).padStart(16, "0");
}

/** The trail of one record is found by its name. A scope's is picked out of everybody's, which is read for it. */
export async function readAudit(table: Table, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const { scope, key, before, limit } = query;
  if (scope !== undefined && key !== undefined) return ofOneRecord(table, { scope, key }, query);
  const until = before === undefined ? undefined : Number(before.slice(0, 16));
  const isWanted = (entry: AuditEntry) =>
    (scope === undefined || entry.scope === scope) &&
    (key === undefined || entry.key === key) &&
    (before === undefined || entry.id < before);
  const pages = await Promise.all(
    shards.map(async (shard) => {
      const found: AuditEntry[] = [];
      for await (const items of findInIndex(table, "audit", shard, { until, isBackwards: true })) {
        found.push(...items.map(entryOf).filter(isWanted));
        if (found.length >= limit) break;
      }
      return found;
    }),
  );
  return pages
    .flat()
    .sort((a, b) => (a.id < b.id ? 1 : -1))
    .slice(0, limit);
}

async function ofOneRecord(
  table: Table,
  id: { readonly scope: string; readonly key: string },
  { before, limit }: AuditQuery,
): Promise<readonly AuditEntry[]> {
  const expression = new Expression();
  const conditions = [expression.equal({ pk: text(auditPk(id)) })];
  if (before !== undefined) conditions.push(`${expression.name("sk")} < ${expression.value(text(before))}`);
  const found: AuditEntry[] = [];
  const pages = table.query({
    KeyConditionExpression: conditions.join(" AND "),
    ...expression.placeholders,
    ConsistentRead: true,
    ScanIndexForward: false,
    Limit: limit,
  });
  for await (const items of pages) {
    found.push(...items.map(entryOf));
    if (found.length >= limit) break;
  }
  return found.slice(0, limit);
}

function entryOf(item: Item): AuditEntry {
  return JSON.parse(textIn(item, "entry")) as AuditEntry;
}
