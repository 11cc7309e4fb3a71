import { createCipheriv, createDecipheriv, type KeyObject, randomFillSync } from "node:crypto";
import { UnreadableError } from "../core/errors.ts";

/*
 * One sealed value: AES-256-GCM with a random IV. What it is, and whose, is authenticated with it but not stored in it,
 * so that it opens only in the place that it was sealed for.
 *
 *   version (1) · length and id of the master key · length and tag of the tenant's secret · IV (12) · ciphertext · tag (16)
 */

/** A key, and what every envelope that it seals begins with. */
export interface SealingKey {
  readonly id: string;
  readonly key: KeyObject;
  readonly head: Buffer;
}

/** What an envelope says about itself. */
export interface Envelope {
  readonly keyId: string;
  /** Which of its secrets the tenant had when it was sealed; empty where it is not a tenant's. */
  readonly tag: Buffer;
  readonly bytes: Buffer;
  /** Where the IV begins. */
  readonly at: number;
}

const version = 1;
const ivBytes = 12; // What GCM is made for; any other length is hashed first.
const authTagBytes = 16;

/** The most that sealing adds to a value. */
export const overheadBytesMax = 1 + 1 + 32 + 1 + 8 + ivBytes + authTagBytes;

export function sealingKey(id: string, tag: Buffer, key: KeyObject): SealingKey {
  const idBytes = Buffer.from(id);
  const head = Buffer.concat([
    Buffer.from([version, idBytes.length]),
    idBytes,
    Buffer.from([tag.length]),
    tag,
  ]);
  return { id, key, head };
}

/**
 * Seals a value for the place that `about` names. A value of two parts is put together where values always are: memory
 * that is used again costs less than memory that is thrown away, and copying less than sealing in two steps.
 */
export function seal(
  { key, head }: SealingKey,
  about: string,
  value: Uint8Array,
  rest: Uint8Array = noBytes,
): Buffer {
  const iv = randomIv();
  const cipher = createCipheriv("aes-256-gcm", key, iv);
  cipher.setAAD(Buffer.from(about));
  const text = cipher.update(rest.byteLength === 0 ? value : joined(value, rest));
  cipher.final();
  const textAt = head.length + ivBytes;
  const envelope = Buffer.allocUnsafe(textAt + text.length + authTagBytes);
  envelope.set(head);
  envelope.set(iv, head.length);
  envelope.set(text, textAt);
  envelope.set(cipher.getAuthTag(), textAt + text.length);
  return envelope;
}

/** Holds good until the next two are joined. */
function joined(value: Uint8Array, rest: Uint8Array): Uint8Array {
  const length = value.byteLength + rest.byteLength;
  const room = length <= bench.length ? bench : Buffer.allocUnsafe(length);
  room.set(value);
  room.set(rest, value.byteLength);
  return room.subarray(0, length);
}

const bench = Buffer.alloc(64 * 1024);
const noBytes = new Uint8Array();

/** Reads what an envelope says about itself, before anything of it can be believed. */
export function envelopeOf(bytes: Buffer): Envelope {
  const idEnd = 2 + (bytes[1] ?? 0);
  const tagEnd = idEnd + 1 + (bytes[idEnd] ?? 0);
  if (bytes[0] !== version || bytes.length < tagEnd + ivBytes + authTagBytes) {
    throw new UnreadableError(
      "something that is stored sealed is damaged, or a newer Latchkey has sealed it",
    );
  }
  return {
    keyId: bytes.toString("latin1", 2, idEnd),
    tag: bytes.subarray(idEnd + 1, tagEnd),
    bytes,
    at: tagEnd,
  };
}

export function open({ bytes, at, keyId }: Envelope, { key }: SealingKey, about: string): Buffer {
  const textAt = at + ivBytes;
  const tagAt = bytes.length - authTagBytes;
  const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(at, textAt), {
    authTagLength: authTagBytes,
  });
  decipher.setAAD(Buffer.from(about));
  decipher.setAuthTag(bytes.subarray(tagAt));
  try {
    const text = decipher.update(bytes.subarray(textAt, tagAt));
    decipher.final();
    return text;
  } catch {
    throw new UnreadableError(
      `something that was sealed with the key "${keyId}" does not open with it: it was changed or moved in the ` +
        "database, or that key has another secret elsewhere",
    );
  }
}

/** Names a place: what it is, and of what. The parts are length-prefixed, so that no two lists of them have one name. */
export function placeName(...parts: readonly string[]): string {
  let name = "";
  for (const part of parts) name += `${part.length}:${part}`;
  return name;
}

/** An envelope where only text can be stored. It is not JSON, so that it can never be taken for a plain value. */
export function textOf(envelope: Buffer): string {
  return textMark + envelope.toString("base64url");
}

export function isSealedText(text: string): boolean {
  return text.startsWith(textMark);
}

export function bytesOf(text: string): Buffer {
  return Buffer.from(text.slice(textMark.length), "base64url");
}

const textMark = "lks1.";

/** Asking for twelve random bytes costs as much as asking for thousands. */
const pool = Buffer.alloc(ivBytes * 256);
let used = pool.length;

function randomIv(): Buffer {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += ivBytes;
  return pool.subarray(used - ivBytes, used);
}
