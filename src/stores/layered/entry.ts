import { createHmac, hash, timingSafeEqual } from "node:crypto";
import { bufferOf } from "../../core/bytes.ts";
import type { RecordId } from "../../core/record.ts";
import { decodeResponse, encodeResponse, type StoredResponse } from "../../core/response.ts";
import type { Reservation } from "../../core/store.ts";

/** What the front may say of a request. All times are the truth's. */
export type Entry =
  /** The outcome. It stays what it is until it expires, or until a bust begins another generation. */
  | { readonly kind: "answer"; readonly response: StoredResponse; readonly expiresAt: number }
  /** The owner will not end the execution before `until`, whatever happens, and its lease lasts longer. */
  | {
      readonly kind: "pledge";
      readonly from: number;
      readonly until: number;
      readonly leaseEndsAt: number;
    };

/** Where an entry belongs, and the only place where it counts. */
export interface Place {
  readonly generation: string;
  readonly name: string;
}

/** A request: only one with the same fingerprint is answered by an entry. */
type Asked = RecordId & { readonly fingerprint: string };

/**
 * The name says nothing about the request to whoever does not know the generation, which only the truth tells. Lone
 * halves of surrogate pairs stay different, as JSON escapes them.
 */
export function placeOf(generation: string, { scope, key, fingerprint }: Asked): Place {
  return { generation, name: digest([layout, generation, scope, key, fingerprint]) };
}

/** Where another process says that it would like to know whether the request is still being executed. */
export function wantedName({ name }: Place): string {
  return digest([layout, "wanted", name]);
}

function digest(parts: readonly string[]): string {
  return hash("sha256", JSON.stringify(parts), "base64url");
}

/** Part of each name, so that no version of this package reads what another one has written differently. */
const layout = "1";

/** A seal over place and content, the length of the head, the head as JSON, the body. */
export function encodeEntry(place: Place, entry: Entry): Buffer {
  const { head, body } = partsOf(entry);
  const headBytes = Buffer.from(JSON.stringify(head));
  const length = Buffer.allocUnsafe(lengthBytes);
  length.writeUInt32BE(headBytes.length);
  const content = [length, headBytes, ...(body === null ? [] : [bufferOf(body)])];
  return Buffer.concat([sealOf(place, content), ...content]);
}

/** Undefined if these are not the bytes that were written for this very place. */
export function decodeEntry(place: Place, bytes: Buffer): Entry | undefined {
  if (bytes.length < sealBytes + lengthBytes) return undefined;
  const content = bytes.subarray(sealBytes);
  if (!timingSafeEqual(bytes.subarray(0, sealBytes), sealOf(place, [content]))) return undefined;
  const bodyAt = lengthBytes + content.readUInt32BE();
  const head = JSON.parse(content.toString("utf8", lengthBytes, bodyAt)) as Head;
  switch (head.kind) {
    case "answer": {
      const { status, expiresAt } = head;
      const response = decodeResponse({ status, head: head.head, body: content.subarray(bodyAt) });
      return { kind: "answer", response, expiresAt };
    }
    case "pledge":
      return head;
    default:
      return head satisfies never;
  }
}

/** What an entry comes to, if the truth's clock says no more than `latest`; undefined if that may be nothing any more. */
export function saidBy(entry: Entry, latest: number): Reservation | undefined {
  switch (entry.kind) {
    case "answer": {
      const { response, expiresAt } = entry;
      if (expiresAt <= latest) return undefined;
      return { kind: "replay", response, expiresAt, remainingMs: expiresAt - latest };
    }
    case "pledge":
      // One from the future was written before the truth's clock was set back.
      if (latest < entry.from || entry.until <= latest) return undefined;
      return { kind: "inFlight", retryAfterMs: Math.ceil(entry.leaseEndsAt - latest) };
    default:
      return entry satisfies never;
  }
}

type Head =
  | { readonly kind: "answer"; readonly status: number; readonly head: string; readonly expiresAt: number }
  | Extract<Entry, { kind: "pledge" }>;

function partsOf(entry: Entry): { readonly head: Head; readonly body: Uint8Array | null } {
  switch (entry.kind) {
    case "answer": {
      const { status, head, body } = encodeResponse(entry.response);
      return { head: { kind: "answer", status, head, expiresAt: entry.expiresAt }, body };
    }
    case "pledge":
      return { head: entry, body: null };
    default:
      return entry satisfies never;
  }
}

/** Whoever can write to the front cannot make one, because the generation is never written there. */
function sealOf(place: Place, content: readonly Buffer[]): Buffer {
  const seal = createHmac("sha256", place.generation).update(place.name);
  for (const part of content) seal.update(part);
  return seal.digest();
}

const sealBytes = 32;
const lengthBytes = 4;
