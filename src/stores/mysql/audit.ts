import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { auditEntryOf } from "../audit-row.ts";
import type { ColumnValue } from "../record-row.ts";
import type { Database } from "./database.ts";
import { digestOf, idOf } from "./records.ts";
import { readAudit } from "./statements.ts";

export async function audit(database: Database, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const { scope, key, before, limit } = query;
  const conditions: string[] = ["TRUE"];
  const parameters: ColumnValue[] = [];
  const where = (condition: string, parameter: ColumnValue) => {
    conditions.push(condition);
    parameters.push(parameter);
  };
  if (scope !== undefined && key !== undefined) where("record_id = ?", idOf({ scope, key }));
  else if (scope !== undefined) where("scope_id = ?", digestOf(scope));
  else if (key !== undefined) where("record_key = ?", key);
  if (before !== undefined) where("id < ?", Number(before));
  const rows = await database.read(readAudit(conditions.join(" AND "), limit), parameters);
  return rows.map((row) => auditEntryOf({ id: row.number, key: row.record_key }, row));
}
