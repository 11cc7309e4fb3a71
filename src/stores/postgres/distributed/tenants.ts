import { StoreError } from "../../../core/errors.ts";
import type { RecordId } from "../../../core/record.ts";
import type { ForgetCounts, ForgetOptions, UnknownCounts } from "../../../core/store.ts";
import type { Row } from "../database.ts";
import { chunks, eachOf, type Records } from "./records.ts";
import { unknownCounts as countUnknown, type Match, tenants as statements } from "./tenant-statements.ts";

export async function forgetTenant(
  records: Records,
  { tenantScope, limit }: ForgetOptions,
): Promise<ForgetCounts> {
  for (let round = 0; round < roundsMax; round += 1) {
    let found = 0;
    let removed = 0;
    for (const [remove, of] of kinds) {
      for (const [match, scope] of matchesOf(tenantScope)) {
        if (found >= limit) continue;
        const rows = await records.all<KeptRow>(of(match), [scope, limit - found]);
        found += rows.length;
        removed += await remove(records, rows);
      }
    }
    if (removed > 0) return { removed, unsettled: 0 };
    if (found === 0) return { removed, unsettled: await unsettledOf(records, tenantScope) };
    // All of it was changed since it was found: nothing removed would mean that nothing is left.
  }
  throw new StoreError(`what is kept of a tenant changed during each of ${roundsMax} attempts to remove it`);
}

const roundsMax = 10;

/** What is removed, in this order, and how each is found. */
const kinds = [
  [removeRecords, statements.records],
  [removeMessages, statements.messages],
  [removeEntries, statements.trail],
] as const;

/** A scope may hold whatever means something in a pattern. */
export function matchesOf(tenantScope: string): readonly (readonly [Match, string])[] {
  return [
    ["=", tenantScope],
    ["LIKE", `${tenantScope.replace(/[\\%_]/g, "\\$&")} %`],
  ];
}

async function removeRecords(records: Records, rows: readonly KeptRow[]): Promise<number> {
  const removed = await eachOf(rows, (row) => records.remove(row, row.revision));
  return removed.filter(Boolean).length;
}

async function removeMessages(records: Records, rows: readonly KeptRow[]): Promise<number> {
  let removed = 0;
  for (const some of chunks(rows)) {
    const ids = some.map(({ id }) => id);
    removed += (await records.all(statements.removeMessages(ids.length), ids)).length;
  }
  return removed;
}

async function removeEntries(records: Records, rows: readonly KeptRow[]): Promise<number> {
  const removed = await eachOf(rows, ({ scope, key, id }) =>
    records.all(statements.removeEntry, [scope, key, id]),
  );
  return removed.flat().length;
}

async function unsettledOf(records: Records, tenantScope: string): Promise<number> {
  let unsettled = 0;
  for (const count of [statements.unsettledRecords, statements.unsettledMessages]) {
    for (const [match, scope] of matchesOf(tenantScope)) {
      const [row] = await records.all<{ unsettled: number }>(count(match), [scope]);
      unsettled += row?.unsettled ?? 0;
    }
  }
  return unsettled;
}

export async function unknownCounts(records: Records): Promise<UnknownCounts> {
  const [row] = await records.all<UnknownRow>(countUnknown);
  if (row === undefined || row.oldest === null) return { waiting: 0, escalated: 0, oldestMs: 0 };
  const { total, escalated, oldest, now } = row;
  return { waiting: total - escalated, escalated, oldestMs: Math.max(0, now - oldest) };
}

/** Of a record, of a message or of the trail: only what removes it. */
interface KeptRow extends Row, RecordId {
  readonly scope: string;
  readonly key: string;
  readonly revision: string;
  readonly id: string;
}

interface UnknownRow extends Row {
  readonly total: number;
  readonly escalated: number;
  readonly oldest: number | null;
  readonly now: number;
}
