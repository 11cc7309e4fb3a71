import type { ForgetCounts, ForgetOptions, UnknownCounts } from "../../core/store.ts";
import { isOfTenant, tenantScopes } from "../tenant-scopes.ts";
import { changeInBatches, type Key } from "./batches.ts";
import type { Database } from "./database.ts";
import { now } from "./statements.ts";

/** Removes what is settled of one tenant. As for workers, it is looked for first, and then locked by its primary key. */
export async function forgetTenant(
  database: Database,
  { tenantScope, limit }: ForgetOptions,
): Promise<ForgetCounts> {
  const scopes = tenantScopes(tenantScope);
  let removed = 0;
  for (const kept of [records, messages, auditEntries]) {
    if (removed < limit) removed += await forgetSome(database, kept, scopes, limit - removed);
  }
  if (removed > 0) return { removed, unsettled: 0 };
  const [row] = await database.read(countUnsettled, [...scopes, ...scopes]);
  return { removed, unsettled: Number(row?.unsettled) };
}

export async function unknownCounts(database: Database): Promise<UnknownCounts> {
  const [row] = await database.read(countUnknown);
  const oldest = row?.first_created_at ?? null;
  return {
    waiting: Number(row?.waiting),
    escalated: Number(row?.escalated),
    oldestMs: oldest === null ? 0 : Math.max(0, Number(row?.clock) - Number(oldest)),
  };
}

/** Answers 0 only if there was nothing: what was found may be gone, or be used anew, before it is locked. */
async function forgetSome(
  database: Database,
  { find, remove }: Kept,
  scopes: readonly string[],
  limit: number,
): Promise<number> {
  for (;;) {
    const found = await database.read(find(limit), scopes);
    const keys = found.map((row) => (row.id ?? row.number) as Key);
    const removed = await changeInBatches(database, keys, remove);
    if (removed > 0 || found.length === 0) return removed;
  }
}

/** One kind of what is kept about a tenant. */
interface Kept {
  /** Parameters: the tenant's scopes. */
  readonly find: (limit: number) => string;
  /** Parameters: the keys. */
  readonly remove: (list: string) => string;
}

/** What the reaper comes for, now or later: no other record is settled. */
const records: Kept = {
  find: (limit) => `
  SELECT id
    FROM latchkey_records FORCE INDEX (latchkey_records_scope)
   WHERE ${isOfTenant} AND job IN ('settled', 'expired')
   LIMIT ${limit}`,
  remove: (list) => `
  DELETE r
    FROM latchkey_records AS r FORCE INDEX (PRIMARY)
   WHERE r.id IN (${list}) AND r.job IN ('settled', 'expired')`,
};

/** Dead, or delivered and kept for their reference. */
const messages: Kept = {
  find: (limit) => `
  SELECT id AS number
    FROM latchkey_outbox FORCE INDEX (latchkey_outbox_scope)
   WHERE ${isOfTenant} AND waiting_lane IS NULL
   LIMIT ${limit}`,
  remove: (list) => `
  DELETE m
    FROM latchkey_outbox AS m FORCE INDEX (PRIMARY)
   WHERE m.id IN (${list}) AND m.waiting_lane IS NULL`,
};

const auditEntries: Kept = {
  find: (limit) => `
  SELECT id AS number
    FROM latchkey_audit FORCE INDEX (latchkey_audit_tenant)
   WHERE ${isOfTenant}
   LIMIT ${limit}`,
  remove: (list) => `
  DELETE a
    FROM latchkey_audit AS a FORCE INDEX (PRIMARY)
   WHERE a.id IN (${list})`,
};

/** After all that is settled was removed: whatever is left is not. Parameters: the tenant's scopes, twice. */
const countUnsettled = `
  SELECT (SELECT COUNT(*) FROM latchkey_records FORCE INDEX (latchkey_records_scope) WHERE ${isOfTenant})
         + (SELECT COUNT(*) FROM latchkey_outbox FORCE INDEX (latchkey_outbox_scope) WHERE ${isOfTenant}) AS unsettled`;

/** No worker comes for what is escalated, and for little else: what waits to be resumed is passed by. */
const countUnknown = `
  SELECT ${now} AS clock,
         COUNT(*) - COUNT(escalated_at) AS waiting,
         COUNT(escalated_at) AS escalated,
         MIN(created_at) AS first_created_at
    FROM latchkey_records FORCE INDEX (latchkey_records_job)
   WHERE (job = 'unknown' OR job IS NULL) AND state = 'unknown'`;
