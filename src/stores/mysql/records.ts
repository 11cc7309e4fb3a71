import { hash } from "node:crypto";
import type { AuditEntry } from "../../core/audit.ts";
import { StoreError } from "../../core/errors.ts";
import { type IdempotencyRecord, type RecordId, recordIdText } from "../../core/record.ts";
import { encodeRequest } from "../../core/stored-request.ts";
import type { Entry, Move, Moved } from "../moves.ts";
import { type ColumnValue, moment, recordOf, rowOf } from "../record-row.ts";
import { powersOfTwo } from "./batches.ts";
import type { Database, Row, Session } from "./database.ts";
import * as statements from "./statements.ts";

/** What a record is found by: 32 bytes, whatever scope and key are made of and however long they are. */
export function idOf(id: RecordId): Buffer {
  return digestOf(recordIdText(id));
}

/** Bytes by which a text of any length can be found in an index. */
export function digestOf(text: string): Buffer {
  if (notText.test(text)) {
    throw new StoreError(
      "half of a surrogate pair cannot be stored, and would be taken for another: refuse such text",
    );
  }
  return hash("sha256", text, "buffer");
}

/** A character that UTF-8 has no bytes for. */
const notText = /\p{Surrogate}/u;

/** Finds a record: its id, and what it stands for, which is compared as well. */
export function finding(id: RecordId): ColumnValue[] {
  return [idOf(id), id.scope, id.key];
}

export function entryOf(id: RecordId, row: Row): Entry {
  return {
    record: recordOf(id, row),
    lastOwner: row.owner as string | null,
    requestHead: row.request_head as string | null,
  };
}

/**
 * Locks a record, and writes what `plan` makes of it. `plan` may be called again after a deadlock. A record that is not
 * there is not inserted: whoever has looked for it holds a lock on the gap, and two of those who insert are a deadlock.
 */
export async function moveLocked<Answer>(
  database: Database,
  id: RecordId,
  plan: (entry: Entry | undefined, now: number) => Moved<Answer>,
): Promise<Answer> {
  const begin = { sql: statements.lock, parameters: finding(id) };
  return database.transactionFrom(begin, async ([row], session) => {
    const entry = row === undefined ? undefined : entryOf(id, row);
    const { answer, move } = plan(entry, Number(row?.clock ?? 0));
    if (entry !== undefined && move !== undefined) await write(session, entry, move);
    return answer;
  });
}

/** Must be called in a transaction that holds the record's lock. */
export async function write(
  session: Session,
  entry: Entry,
  { to, lastOwner, request, audit }: Move,
): Promise<void> {
  const id = idOf(to);
  const kept = request?.kept === undefined ? undefined : encodeRequest(request.kept);
  const requestHead = request === undefined ? entry.requestHead : (kept?.head ?? null);
  const [, , ...columns] = rowOf(to, { lastOwner, requestHead });
  const isOver = to.state === "completed" || to.state === "expired";
  // A body that stays is not sent again.
  const withRequest = isOver || request !== undefined;
  const body = withRequest ? [isOver ? null : (kept?.body ?? null)] : [];
  await session.change(statements.writeRecord({ withRequest }), [...columns, ...jobOf(to), ...body, id]);
  if (audit !== undefined) await insertAudit(session, [audit]);
}

/** Must be called in the transaction of what it tells of. */
export async function insertAudit(
  session: Session,
  entries: readonly Omit<AuditEntry, "id">[],
): Promise<void> {
  for (const some of powersOfTwo(entries)) {
    await session.change(statements.insertAudit(some.length), some.flatMap(auditRow));
  }
}

function auditRow(entry: Omit<AuditEntry, "id">): ColumnValue[] {
  const { at, scope, key, fence, from, to, by, reason } = entry;
  return [at, idOf(entry), digestOf(scope), scope, key, fence, from, to, by, reason];
}

/** Which worker comes for a record, and when. What waits to be resumed is found by that, and what is escalated by nobody. */
function jobOf(record: IdempotencyRecord): readonly [statements.Job | null, number | null] {
  const expiresAt = moment(record.expiresAt);
  switch (record.state) {
    case "in_progress":
      return ["lease", moment(record.leaseUntil)];
    case "pending":
      return ["unclaimed", expiresAt];
    case "completed":
      return ["settled", expiresAt];
    case "expired":
      return ["expired", expiresAt];
    case "failed_retryable":
      if (record.resumeAfter !== undefined) return [null, null];
      return [record.progress.length > 0 ? "unclaimed" : "settled", expiresAt];
    case "unknown":
      return record.escalatedAt === undefined ? ["unknown", moment(record.reconcileAfter)] : [null, null];
    default:
      return record satisfies never;
  }
}
