import { milliseconds, now } from "./sql.ts";

/**
 * Writes down a change that was not the happy path, within the statement that makes it. `source` is a CTE with the
 * scope, key and fence of each record; the rest are SQL expressions.
 */
export function audited(
  source: string,
  change: { readonly from: string; readonly to: string; readonly by: string; readonly reason: string },
  where = "true",
): string {
  return `
  INSERT INTO latchkey_audit (at, scope, key, fence, from_state, to_state, actor, reason)
  SELECT ${now}, scope, key, fence, ${change.from}, ${change.to}, ${change.by}, ${change.reason}
  FROM ${source} WHERE ${where}`;
}

/** The latest first. $1 limit, then what `asked` names, in this order: before which id, scope, key */
export function auditTrail(asked: AuditConditions): string {
  const conditions = [
    asked.before && ((parameter: string) => `id < ${parameter}::text::bigint`),
    asked.scope && ((parameter: string) => `scope = ${parameter}`),
    asked.key && ((parameter: string) => `key = ${parameter}`),
  ]
    .filter((condition) => condition !== false)
    .map((condition, index) => condition(`$${index + 2}`));
  return `
SELECT id::text AS id, ${milliseconds("at")} AS at, scope, key, fence, from_state AS origin, to_state AS target,
  actor, reason
FROM latchkey_audit
WHERE ${conditions.join(" AND ") || "true"}
ORDER BY latchkey_audit.id DESC
LIMIT $1::int`;
}

interface AuditConditions {
  readonly before: boolean;
  readonly scope: boolean;
  readonly key: boolean;
}
