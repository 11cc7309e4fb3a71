import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { auditEntryOf } from "../audit-row.ts";
import { type SqliteDatabase, type SqliteValue, Statement } from "./driver.ts";

/** What happened to the records off the happy path. */
export class AuditTrail {
  readonly #database: SqliteDatabase;
  readonly #write: Statement;
  /** By the columns that are asked for: each combination is found in its own way. */
  readonly #reads = new Map<string, Statement>();

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.#write = new Statement(database, writeEntry);
  }

  /** Must be called in the transaction that makes the change. */
  write(entry: Omit<AuditEntry, "id">): void {
    const { at, scope, key, fence, from, to, by, reason } = entry;
    this.#write.run(at, scope, key, fence, from, to, by, reason);
  }

  read({ scope, key, before, limit }: AuditQuery): readonly AuditEntry[] {
    const conditions: string[] = [];
    const parameters: SqliteValue[] = [];
    for (const [condition, parameter] of [
      ["scope = ?", scope],
      ["key = ?", key],
      ["id < ?", before === undefined ? undefined : Number(before)],
    ] as const) {
      if (parameter === undefined) continue;
      conditions.push(condition);
      parameters.push(parameter);
    }
    const where = conditions.length === 0 ? "true" : conditions.join(" AND ");
    const statement = this.#reads.get(where) ?? new Statement(this.#database, readEntries(where));
    this.#reads.set(where, statement);
    return statement.all(...parameters, limit).map((row) => auditEntryOf({ id: row.id, key: row.key }, row));
  }
}

const writeEntry = `
  INSERT INTO latchkey_audit (at, scope, key, fence, from_state, to_state, actor, reason)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)`;

const readEntries = (where: string) => `
  SELECT id, at, scope, key, fence, from_state, to_state, actor, reason
    FROM latchkey_audit
   WHERE ${where}
   ORDER BY id DESC
   LIMIT ?`;
