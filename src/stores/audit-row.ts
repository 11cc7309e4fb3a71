import type { AuditEntry, AuditedState } from "../core/audit.ts";

/** The audit entry that a row is, by the names of its columns; not every database calls its id and key the same. */
export function auditEntryOf(
  { id, key }: { readonly id: unknown; readonly key: unknown },
  row: Readonly<Record<string, unknown>>,
): AuditEntry {
  return {
    id: String(id),
    at: row.at as number,
    scope: row.scope as string,
    key: key as string,
    fence: row.fence as number,
    from: row.from_state as AuditedState,
    to: row.to_state as AuditedState,
    by: row.actor as string,
    reason: row.reason as string,
  };
}
