import type { ForgetCounts, ForgetOptions, UnknownCounts } from "../../core/store.ts";
import { isOfTenant, tenantScopes } from "../tenant-scopes.ts";
import { type SqliteDatabase, Statement } from "./driver.ts";

/** Removes what is settled of one tenant; must be called in a transaction. */
export function forgetTenant(
  statements: TenantStatements,
  { tenantScope, limit }: ForgetOptions,
): ForgetCounts {
  const scopes = tenantScopes(tenantScope);
  let removed = 0;
  for (const statement of [statements.forgetRecords, statements.forgetMessages, statements.forgetAudit]) {
    removed += statement.run(...scopes, limit - removed);
  }
  if (removed > 0) return { removed, unsettled: 0 };
  const left = statements.countUnsettled.get(...scopes, ...scopes);
  return { removed, unsettled: left?.unsettled as number };
}

export function unknownCounts(statements: TenantStatements, now: number): UnknownCounts {
  const row = statements.countUnknown.get();
  const oldest = row?.first_created_at as number | null;
  return {
    waiting: row?.waiting as number,
    escalated: row?.escalated as number,
    oldestMs: oldest === null ? 0 : Math.max(0, now - oldest),
  };
}

/** Prepared once for each connection. */
export function prepareTenantStatements(database: SqliteDatabase) {
  const prepare = (sql: string) => new Statement(database, sql);
  return {
    forgetRecords: prepare(forgetRecords),
    forgetMessages: prepare(forgetMessages),
    forgetAudit: prepare(forgetAudit),
    countUnsettled: prepare(countUnsettled),
    countUnknown: prepare(countUnknown),
  };
}

export type TenantStatements = ReturnType<typeof prepareTenantStatements>;

/**
 * What `isSettled` says in core/record.ts, and nothing else. Parameters of this and the next ones: the tenant's scopes,
 * the limit.
 */
export const forgetRecords = `
  DELETE FROM latchkey_records
   WHERE rowid IN (
           SELECT rowid
             FROM latchkey_records
            WHERE ${isOfTenant}
              AND (state IN ('completed', 'expired')
                   OR (state = 'failed_retryable' AND resume_after IS NULL AND progress IS NULL))
            LIMIT ?)`;

export const forgetMessages = `
  DELETE FROM latchkey_outbox
   WHERE id IN (
           SELECT id
             FROM latchkey_outbox
            WHERE ${isOfTenant} AND (delivered_at IS NOT NULL OR died_at IS NOT NULL)
            LIMIT ?)`;

export const forgetAudit = `
  DELETE FROM latchkey_audit
   WHERE id IN (
           SELECT id
             FROM latchkey_audit
            WHERE ${isOfTenant}
            LIMIT ?)`;

/**
 * After all that is settled was removed: whatever is left is not. Messages are found by no index of their scope: it is
 * looked for in all that wait, which are few as long as somebody delivers them. Parameters: the tenant's scopes, twice.
 */
export const countUnsettled = `
  SELECT (SELECT count(*) FROM latchkey_records WHERE ${isOfTenant})
         + (SELECT count(*) FROM latchkey_outbox WHERE ${isOfTenant}) AS unsettled`;

/** Only from an index: the records are not read. */
export const countUnknown = `
  SELECT count(*) - count(escalated_at) AS waiting,
         count(escalated_at) AS escalated,
         min(created_at) AS first_created_at
    FROM latchkey_records
   WHERE reconcile_after IS NOT NULL`;
