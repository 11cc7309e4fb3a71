import { randomBytes } from "node:crypto";
import { decodeRequest, encodeRequest, type StoredRequest } from "../../../core/stored-request.ts";
import type { Move, Entry as RecordEntry } from "../../moves.ts";
import { type ColumnValue, recordColumns, recordOf, rowOf } from "../../record-row.ts";
import type { Parameter, Row } from "../database.ts";
import { wordOf } from "./statements.ts";

/** A record as it was found, and everything that is kept with it. */
export interface Entry extends RecordEntry {
  readonly requestBody: Uint8Array | null;
  readonly revision: string;
  /** When it was found, by the engine's clock. */
  readonly now: number;
}

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
  const { requesthead: requestHead, requestbody: requestBody, owner: lastOwner, revision, now } = row;
  const columns = Object.fromEntries(recordColumns.map((column) => [column, row[wordOf(column)]]));
  const record = recordOf(row, columns as Record<string, ColumnValue>);
  return { record, lastOwner, requestHead, requestBody, revision, now };
}

/** The request that is kept for a worker. */
export function requestOf({ requestHead: head, requestBody: body }: Entry): StoredRequest | undefined {
  return head === null || body === null ? undefined : decodeRequest({ head, body });
}

/** Never used twice. */
export function newRevision(): string {
  return randomBytes(12).toString("base64url");
}

/** The parameters of `change` after those that say which record. */
export function changedValues(found: Entry, { to, lastOwner, request }: Move): Parameter[] {
  const isOver = to.state === "completed" || to.state === "expired";
  const kept = request === undefined ? found : rowOfRequest(request.kept);
  const { requestHead, requestBody } = isOver ? rowOfRequest(undefined) : kept;
  const [, , ...values] = rowOf(to, { lastOwner, requestHead });
  return [newRevision(), ...values, requestBody];
}

function rowOfRequest(request: StoredRequest | undefined): Pick<Entry, "requestHead" | "requestBody"> {
  if (request === undefined) return { requestHead: null, requestBody: null };
  const { head, body } = encodeRequest(request);
  return { requestHead: head, requestBody: body };
}
