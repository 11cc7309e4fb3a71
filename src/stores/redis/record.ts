import { StoreError } from "../../core/errors.ts";
import { decodeProgress } from "../../core/phase.ts";
import {
  type IdempotencyRecord,
  type ListedRecord,
  type OnCrash,
  type RecordId,
  recordStates,
} from "../../core/record.ts";
import { decodeResponse, encodeResponse, type StoredResponse } from "../../core/response.ts";
import type { ExecuteAfter } from "../../core/store.ts";
import { decodeRequest, encodeRequest, type StoredRequest } from "../../core/stored-request.ts";

// scripts/layout.lua says how a record is laid out; the numbers here are those of its head.
const version = 1;
const headBytes = 54;

/** Deleted, and only its fence is remembered. */
const goneState = 7;

/** By the numbers that stand for them. */
export const onCrashes = ["reconcile", "resume", "retry"] as const satisfies readonly OnCrash[];
export const executeAfters = [
  "absent",
  "pending",
  "failed_retryable",
  "crash",
  "expired",
] as const satisfies readonly ExecuteAfter[];

export function decodeRecord(id: RecordId, value: Buffer): IdempotencyRecord | undefined {
  const head = decodeHead(value);
  if (head === undefined) return undefined;
  const { state, fence, createdAt, expiresAt, at, escalatedAt, count } = head;
  let end = headBytes;
  const next = (bytes: number) => {
    end += bytes;
    return value.toString("utf8", end - bytes, end);
  };
  const fingerprint = next(value.readUInt16BE(44));
  const owner = next(value.readUInt16BE(46));
  const route = next(value.readUInt16BE(48));
  const progress = next(value.readUInt32BE(50));
  const tail = value.subarray(end);
  const common = {
    scope: id.scope,
    key: id.key,
    fingerprint,
    fence,
    onCrash: onCrashes[Number(value[20])] ?? "reconcile",
    reconcileAfterMs: value.readUIntBE(28, 6),
    route: decodeRoute(route),
    progress: decodeProgress(progress || null),
    createdAt,
    expiresAt,
  };
  switch (state) {
    case "pending":
      return { ...common, state, resumeAfter: at, claims: count };
    case "in_progress":
      return { ...common, state, owner, leaseUntil: at };
    case "completed":
      return { ...common, state, completedAt: at, response: unpackResponse(tail) };
    case "failed_retryable": {
      return { ...common, state, reason: tail.toString(), resumeAfter: at || undefined, claims: count };
    }
    case "unknown":
      return {
        ...common,
        state,
        reason: tail.toString(),
        reconcileAfter: at,
        reconcileAttempts: count,
        escalatedAt,
      };
    case "expired":
      return { ...common, state };
    default:
      return state satisfies never;
  }
}

/** What a list shows of a record, from what list.lua says of it. */
export function decodeListed(
  { scope, key }: RecordId,
  [value = Buffer.alloc(0), route = Buffer.alloc(0), tail = Buffer.alloc(0)]: readonly Buffer[],
): ListedRecord | undefined {
  const head = decodeHead(value);
  if (head === undefined) return undefined;
  const { state, fence, createdAt, expiresAt, at, escalatedAt, count } = head;
  const isUnknown = state === "unknown";
  const isFailed = state === "failed_retryable";
  return {
    scope,
    key,
    state,
    fence,
    route: decodeRoute(String(route)),
    createdAt,
    expiresAt,
    completedAt: state === "completed" ? at : undefined,
    status: state === "completed" ? tail.readUInt16BE(0) : undefined,
    reason: isUnknown || isFailed ? tail.toString() : undefined,
    leaseUntil: state === "in_progress" ? at : undefined,
    reconcileAfter: isUnknown ? at : undefined,
    reconcileAttempts: isUnknown ? count : undefined,
    escalatedAt: isUnknown ? escalatedAt : undefined,
    resumeAfter: state === "pending" || isFailed ? at || undefined : undefined,
  };
}

/** What has its place in the head; undefined if the record was deleted, and only its fence is remembered. */
function decodeHead(value: Buffer) {
  if (value[0] !== version) throw unreadable(value[0]);
  if (value[1] === goneState) return undefined;
  const state = recordStates[Number(value[1]) - 1];
  if (state === undefined) throw unreadable(value[0]);
  return {
    state,
    expiresAt: value.readUIntBE(2, 6),
    at: value.readUIntBE(8, 6),
    createdAt: value.readUIntBE(14, 6),
    fence: value.readUInt32BE(24),
    escalatedAt: value.readUIntBE(34, 6) || undefined,
    count: value.readUInt32BE(40),
  };
}

export function unreadable(found: number | undefined): StoreError {
  return new StoreError(
    `a record has encoding version ${found}, this Latchkey reads version ${version}: upgrade this process`,
  );
}

/** A route without a name is not one whose name is empty. */
export function encodeRoute(route: string | undefined): string {
  return route === undefined ? "" : `=${route}`;
}

function decodeRoute(text: string): string | undefined {
  return text === "" ? undefined : text.slice(1);
}

/** Status, length of the head, head, body. */
export function packResponse(response: StoredResponse): Buffer {
  const { status, head, body } = encodeResponse(response);
  const packed = Buffer.allocUnsafe(6 + head.length * bytesPerCharacterMax + (body?.byteLength ?? 0));
  packed.writeUInt16BE(status, 0);
  const bodyFrom = packWithLength(packed, head, 2);
  if (body !== null) packed.set(body, bodyFrom);
  return packed.subarray(0, bodyFrom + (body?.byteLength ?? 0));
}

/** The body is copied, so that whoever keeps it keeps nothing else. */
export function unpackResponse(packed: Buffer): StoredResponse {
  const bodyFrom = 6 + packed.readUInt32BE(2);
  const head = packed.toString("utf8", 6, bodyFrom);
  return decodeResponse({
    status: packed.readUInt16BE(0),
    head,
    body: new Uint8Array(packed.subarray(bodyFrom)),
  });
}

/** Length of the head, head, body. */
export function packRequest(request: StoredRequest): Buffer {
  const { head, body } = encodeRequest(request);
  const packed = Buffer.allocUnsafe(4 + head.length * bytesPerCharacterMax + body.byteLength);
  const bodyFrom = packWithLength(packed, head, 0);
  packed.set(body, bodyFrom);
  return packed.subarray(0, bodyFrom + body.byteLength);
}

export function unpackRequest(packed: Buffer): StoredRequest {
  const bodyFrom = 4 + packed.readUInt32BE(0);
  const head = packed.toString("utf8", 4, bodyFrom);
  return decodeRequest({ head, body: new Uint8Array(packed.subarray(bodyFrom)) });
}

/** Of UTF-8, for each unit of UTF-16. */
export const bytesPerCharacterMax = 3;

function packWithLength(packed: Buffer, text: string, at: number): number {
  const bytes = packed.write(text, at + 4);
  packed.writeUInt32BE(bytes, at);
  return at + 4 + bytes;
}
