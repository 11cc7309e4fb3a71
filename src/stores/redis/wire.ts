import { auditReasons } from "../../core/audit.ts";
import { bufferOf } from "../../core/bytes.ts";
import { StoreError } from "../../core/errors.ts";
import { encodeResponse } from "../../core/response.ts";
import type { Lease, ReserveMode, ReserveRequest, Settlement } from "../../core/store.ts";
import { crashReason } from "../../core/transition.ts";
import { bytesPerCharacterMax, encodeRoute, onCrashes, packRequest } from "./record.ts";

/**
 * Many calls as a script takes them: of each a head, all of one width; then all texts of one call after the other, because
 * writing one costs about as much as writing all; then their bytes.
 */
export type PackedCalls = readonly [heads: Buffer, texts: Buffer, ...bytes: Buffer[]];

/** A request on its way; scripts/reserve.lua says how it is laid out. */
export interface ReserveCall {
  readonly request: ReserveRequest;
  readonly kept: Buffer | undefined;
  /** On this process's clock. */
  readonly askedAt: number;
}

export function reserveCallOf(request: ReserveRequest): ReserveCall {
  const { fingerprint, owner, route, request: kept } = request;
  checkLength(fingerprint);
  checkLength(owner);
  if (route !== undefined) checkLength(route);
  return { request, kept: kept && packRequest(kept), askedAt: performance.now() };
}

/** Lengths have two bytes. One call that does not fit must not spoil those that travel with it. */
function checkLength(text: string): void {
  if (text.length <= textCharactersMax) return;
  throw new StoreError(
    `"${text.slice(0, 20)}…" has more than ${textCharactersMax} characters: nothing was sent`,
  );
}

const textCharactersMax = 20_000;

const modes: Readonly<Record<ReserveMode, number>> = { execute: 0, accept: 1, claim: 2 };
/** The last 34 of them are the record's, between its times and its texts. */
const requestHeadBytes = 55;

export function reserveCallBytes({ request, kept }: ReserveCall): number {
  const { fingerprint, owner, route } = request;
  const characters = fingerprint.length + owner.length + (route?.length ?? 0) + 1;
  return requestHeadBytes + characters * bytesPerCharacterMax + (kept?.byteLength ?? 0);
}

/** `keys` are empty texts where the script is told them otherwise. */
export function packReserveCalls(calls: readonly ReserveCall[], keys: readonly string[]): PackedCalls {
  const heads = Buffer.allocUnsafe(calls.length * requestHeadBytes).fill(0);
  const texts: string[] = [];
  const kept: Buffer[] = [];
  for (const [nth, { request, kept: bytes }] of calls.entries()) {
    const at = nth * requestHeadBytes;
    heads[at + 4] = modes[request.mode];
    writeMs(heads, request.leaseMs, at + 5);
    writeMs(heads, request.retentionMs, at + 11);
    heads[at + 21] = onCrashes.indexOf(request.onCrash);
    writeFence(heads, 1, at + 25);
    writeMs(heads, request.reconcileAfterMs, at + 29);
    texts.push(keys[nth] ?? "", request.fingerprint, request.owner, encodeRoute(request.route));
    if (bytes === undefined) continue;
    heads.writeUInt32BE(bytes.byteLength, at + 17);
    heads[at + 24] = 1;
    kept.push(bytes);
  }
  const { packed, lengthOf } = packTexts(texts);
  for (let nth = 0; nth < calls.length; nth += 1) {
    const at = nth * requestHeadBytes;
    heads.writeUInt32BE(lengthOf(4 * nth), at);
    heads.writeUInt16BE(lengthOf(4 * nth + 1), at + 45);
    heads.writeUInt16BE(lengthOf(4 * nth + 2), at + 47);
    heads.writeUInt16BE(lengthOf(4 * nth + 3), at + 49);
  }
  return [heads, packed, Buffer.concat(kept)];
}

/**
 * Texts one after the other, and how many bytes each of them has. If they are ASCII, which is usual, all are written at
 * once. Any others are not: halves of a surrogate pair that come to stand beside each other would become one character.
 */
function packTexts(texts: readonly string[]): { packed: Buffer; lengthOf: (nth: number) => number } {
  const joined = texts.join("");
  const packed = Buffer.from(joined);
  if (packed.length === joined.length) return { packed, lengthOf: (nth) => texts[nth]?.length ?? 0 };
  const each = texts.map((text) => Buffer.from(text));
  return { packed: Buffer.concat(each), lengthOf: (nth) => each[nth]?.length ?? 0 };
}

/** What an audit trail says of a request that is executed again, as reserve.lua wants it. */
export const packedReasons = Buffer.concat(
  [auditReasons.takenOver, auditReasons.retried, crashReason].flatMap((reason) => {
    const length = Buffer.alloc(2);
    length.writeUInt16BE(Buffer.byteLength(reason));
    return [length, Buffer.from(reason)];
  }),
);

/** A settlement on its way; scripts/settle.lua says how it is laid out. */
export interface SettleCall {
  readonly lease: Lease;
  readonly settlement: Settlement;
  readonly status: number;
  /** The head of the response, or the reason. */
  readonly text: string;
  readonly body: Uint8Array | null;
}

export function settleCallOf(lease: Lease, settlement: Settlement): SettleCall {
  checkLength(lease.owner);
  if (settlement.kind !== "complete") {
    return { lease, settlement, status: 0, text: settlement.reason, body: null };
  }
  const { status, head, body } = encodeResponse(settlement.response);
  if (!(status >= 0 && status < 2 ** 16)) throw new StoreError(`${status} is no status: nothing was sent`);
  return { lease, settlement, status, text: head, body };
}

const settlementKinds: Readonly<Record<Settlement["kind"], number>> = { complete: 0, release: 1, suspend: 2 };
const settlementHeadBytes = 29;
const empty = Buffer.alloc(0);

export function settleCallBytes({ lease, text, body }: SettleCall): number {
  const characters = lease.owner.length + text.length;
  return settlementHeadBytes + characters * bytesPerCharacterMax + (body?.byteLength ?? 0);
}

/** `keys` are empty texts where the script is told them otherwise. */
export function packSettleCalls(calls: readonly SettleCall[], keys: readonly string[]): PackedCalls {
  const heads = Buffer.allocUnsafe(calls.length * settlementHeadBytes);
  const texts: string[] = [];
  for (const [nth, { lease, settlement, status, text }] of calls.entries()) {
    const at = nth * settlementHeadBytes;
    const { kind } = settlement;
    const resumeAfterMs = kind === "release" ? settlement.resumeAfterMs : undefined;
    heads[at + 4] = settlementKinds[kind];
    writeFence(heads, lease.fence, at + 5);
    writeMs(heads, kind === "suspend" ? settlement.reconcileAfterMs : settlement.retentionMs, at + 9);
    writeMs(heads, resumeAfterMs === undefined ? 0 : durationMs(resumeAfterMs) + 1, at + 15);
    heads.writeUInt16BE(status, at + 23);
    texts.push(keys[nth] ?? "", lease.owner, text);
  }
  const { packed, lengthOf } = packTexts(texts);
  for (let nth = 0; nth < calls.length; nth += 1) {
    const at = nth * settlementHeadBytes;
    heads.writeUInt32BE(lengthOf(3 * nth), at);
    heads.writeUInt16BE(lengthOf(3 * nth + 1), at + 21);
    heads.writeUInt32BE(lengthOf(3 * nth + 2), at + 25);
  }
  const bodies = calls.map(({ body }) => (body === null ? empty : bufferOf(body)));
  return [heads, packed, ...bodies];
}

export function packLeases(leases: readonly Lease[]): Buffer {
  const packed = Buffer.allocUnsafe(
    leases.reduce((bytes, { owner }) => bytes + 6 + owner.length * bytesPerCharacterMax, 0),
  );
  let at = 0;
  for (const { fence, owner } of leases) {
    writeFence(packed, fence, at);
    at += 6 + writeText(packed, owner, at + 6, at + 4);
  }
  return packed.subarray(0, at);
}

/** Whole milliseconds. What is meant to last for ever lasts for a thousand years. */
export function durationMs(ms: number): number {
  // It would be written as no time at all, and a record would be gone at once.
  if (Number.isNaN(ms)) throw new StoreError("a duration is not a number: nothing was sent");
  return Math.min(Math.max(0, Math.ceil(ms)), durationMsMax);
}

const durationMsMax = 1000 * 365 * 24 * 60 * 60 * 1000;

function writeMs(packed: Buffer, ms: number, at: number): void {
  packed.writeUIntBE(durationMs(ms), at, 6);
}

/** What cannot be a fence is nobody's: 0 never executes anything. */
function writeFence(packed: Buffer, fence: number, at: number): void {
  const isFence = Number.isInteger(fence) && fence > 0 && fence < 2 ** 32;
  packed.writeUInt32BE(isFence ? fence : 0, at);
}

/** Writes a text, and its length elsewhere. */
function writeText(packed: Buffer, text: string, at: number, lengthAt: number): number {
  const bytes = packed.write(text, at);
  packed.writeUInt16BE(bytes, lengthAt);
  return bytes;
}
