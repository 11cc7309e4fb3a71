import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import type { RecordState } from "../../core/record.ts";
import type { ColumnValue } from "../record-row.ts";
import type { Database, Row } from "./database.ts";
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
  return (await database.read(readAudit(conditions.join(" AND "), limit), parameters)).map(entryOf);
}

function entryOf(row: Row): AuditEntry {
  return {
    id: String(row.number),
    at: row.at as number,
    scope: row.scope as string,
    key: row.record_key as string,
    fence: row.fence as number,
    from: row.from_state as RecordState,
    to: row.to_state as RecordState,
    by: row.actor as string,
    reason: row.reason as string,
  };
}
