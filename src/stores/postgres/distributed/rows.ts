import { randomBytes } from "node:crypto";
import type { IdempotencyRecord } from "../../../core/record.ts";
import { decodeRequest, encodeRequest, type StoredRequest } from "../../../core/stored-request.ts";
import { type ColumnValue, recordColumns, recordOf, rowOf } from "../../record-row.ts";
import type { Parameter, Row } from "../database.ts";
import { wordOf } from "./statements.ts";

/** A record as it was found, and everything that is kept with it. */
export interface Entry {
  readonly record: IdempotencyRecord;
  /** Who holds or held the latest lease; null where somebody else has moved the record on. */
  readonly owner: string | null;
  readonly request: StoredRequest | undefined;
  readonly revision: string;
  /** When it was found, by the engine's clock. */
  readonly now: number;
}

/** What a changed record is written with. */
export type Kept = Pick<Entry, "owner" | "request">;

export interface EntryRow extends Row {
  readonly scope: string;
  readonly key: string;
  readonly revision: string;
  readonly owner: string | null;
  readonly requesthead: string | null;
  readonly requestbody: Uint8Array | null;
  readonly now: number;
}

export function entryOf(row: EntryRow): Entry {
  const { requesthead: head, requestbody: body, owner, revision, now } = row;
  const request = head === null || body === null ? undefined : decodeRequest({ head, body });
  const columns = Object.fromEntries(recordColumns.map((column) => [column, row[wordOf(column)]]));
  const record = recordOf(row, columns as Record<string, ColumnValue>);
  return { record, owner, request, revision, now };
}

/** Never used twice. */
export function newRevision(): string {
  return randomBytes(12).toString("base64url");
}

/** The parameters of `change` after those that say which record. */
export function changedValues(record: IdempotencyRecord, { owner, request }: Kept): Parameter[] {
  const isOver = record.state === "completed" || record.state === "expired";
  const encoded = request === undefined || isOver ? undefined : encodeRequest(request);
  const [, , ...values] = rowOf(record, { lastOwner: owner, requestHead: encoded?.head ?? null });
  return [newRevision(), ...values, encoded?.body ?? null];
}
