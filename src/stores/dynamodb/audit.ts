import { hash } from "node:crypto";
import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { recordIdText } from "../../core/record.ts";
import { findInIndex } from "./due.ts";
import { Expression } from "./expression.ts";
import { auditPk, indexed, keyItem, shardCount, shardOf, shards } from "./keys.ts";
import { ttl } from "./record-item.ts";
import { digits, nextSequence, sequenceIn } from "./sequence.ts";
import type { Table } from "./table.ts";
import { type Item, text, textIn } from "./values.ts";

let latest = 0;

/** Higher than any other of this record, and of this process. */
export function nextAuditNumber(at: number, last = 0): number {
  latest = nextSequence(at, Math.max(latest, last));
  return latest;
}

export function auditItem(told: Omit<AuditEntry, "id">, sequence: number): Item {
  const name = recordIdText(told);
  const id = `${digits(sequence)}-${hash("sha256", name).slice(0, 12)}`;
  const entry: AuditEntry = { id, ...told };
  return {
    ...keyItem({ pk: auditPk(told), sk: id }),
    // As one text, which the index has as well: whoever lists the trail needs no second reading.
    entry: text(JSON.stringify(entry)),
    ...indexed("audit", shardOf(name, shardCount), sequence),
    ...ttl(told.at, auditRetentionMs),
  };
}

/** Long enough to look into whatever was noticed this quarter. */
const auditRetentionMs = 90 * 24 * 3_600_000;

/** The trail of one record is found by its name. A scope's is picked out of everybody's, which is read for it. */
export async function readAudit(table: Table, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const { scope, key, before, limit } = query;
  if (scope !== undefined && key !== undefined) return ofOneRecord(table, { scope, key }, query);
  const until = before === undefined ? undefined : sequenceIn(before);
  const isWanted = (entry: AuditEntry) =>
    (scope === undefined || entry.scope === scope) &&
    (key === undefined || entry.key === key) &&
    (before === undefined || entry.id < before);
  const pages = await Promise.all(
    shards.map(async (shard) => {
      const found: AuditEntry[] = [];
      for await (const items of findInIndex(table, "audit", shard, { until, isBackwards: true })) {
        found.push(...items.map(auditEntryOf).filter(isWanted));
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
    found.push(...items.map(auditEntryOf));
    if (found.length >= limit) break;
  }
  return found.slice(0, limit);
}

export function auditEntryOf(item: Item): AuditEntry {
  return JSON.parse(textIn(item, "entry")) as AuditEntry;
}
