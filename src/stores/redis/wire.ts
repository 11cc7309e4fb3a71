import { auditReasons } from "../../core/audit.ts";
import { StoreError } from "../../core/errors.ts";
import { decodeProgress } from "../../core/phase.ts";
import type {
  Lease,
  Reservation,
  ReserveMode,
  ReserveRequest,
  SettleAnswer,
  Settlement,
} from "../../core/store.ts";
import { crashReason } from "../../core/transition.ts";
import {
  bytesPerCharacterMax,
  encodeRoute,
  executeAfters,
  onCrashes,
  packRequest,
  packResponse,
  unpackResponse,
  unreadable,
} from "./record.ts";

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
const requestHeadBytes = 21;
/** Of a record, between its times and its texts. */
const draftHeadBytes = 34;

export function reserveCallBytes({ request, kept }: ReserveCall): number {
  const { fingerprint, owner, route } = request;
  const characters = fingerprint.length + owner.length + (route?.length ?? 0) + 1;
  return requestHeadBytes + draftHeadBytes + characters * bytesPerCharacterMax + (kept?.byteLength ?? 0);
}

export function packReserveCalls(calls: readonly ReserveCall[]): Buffer {
  let bytesMax = 0;
  for (const call of calls) bytesMax += reserveCallBytes(call);
  const packed = Buffer.allocUnsafe(bytesMax);
  let at = 0;
  for (const { request, kept } of calls) {
    const draftAt = at + requestHeadBytes;
    const draftEnd = packDraft(packed, request, kept !== undefined, draftAt);
    packed[at] = modes[request.mode];
    writeMs(packed, request.leaseMs, at + 1);
    writeMs(packed, request.retentionMs, at + 7);
    packed.writeUInt32BE(draftEnd - draftAt, at + 13);
    packed.writeUInt32BE(kept?.byteLength ?? 0, at + 17);
    if (kept !== undefined) packed.set(kept, draftEnd);
    at = draftEnd + (kept?.byteLength ?? 0);
  }
  return packed.subarray(0, at);
}

/** The record of a first attempt, behind its times, as scripts/record.lua lays it out. Answers where it ends. */
function packDraft(packed: Buffer, request: ReserveRequest, isKept: boolean, at: number): number {
  packed.fill(0, at, at + draftHeadBytes);
  packed[at] = onCrashes.indexOf(request.onCrash);
  packed[at + 3] = isKept ? 1 : 0;
  writeFence(packed, 1, at + 4);
  writeMs(packed, request.reconcileAfterMs, at + 8);
  let end = at + draftHeadBytes;
  end += writeText(packed, request.fingerprint, end, at + 24);
  end += writeText(packed, request.owner, end, at + 26);
  end += writeText(packed, encodeRoute(request.route), end, at + 28);
  return end;
}

/** What an audit trail says of a request that is executed again, as reserve.lua wants it. */
export const packedReasons = Buffer.concat(
  [auditReasons.takenOver, auditReasons.retried, crashReason].flatMap((reason) => {
    const length = Buffer.alloc(2);
    length.writeUInt16BE(Buffer.byteLength(reason));
    return [length, Buffer.from(reason)];
  }),
);

export interface SettleCall {
  readonly lease: Lease;
  readonly settlement: Settlement;
  /** The response, or the reason. */
  readonly tail: Buffer;
}

export function settleCallOf(lease: Lease, settlement: Settlement): SettleCall {
  checkLength(lease.owner);
  const tail =
    settlement.kind === "complete" ? packResponse(settlement.response) : Buffer.from(settlement.reason);
  return { lease, settlement, tail };
}

const settlementKinds: Readonly<Record<Settlement["kind"], number>> = { complete: 0, release: 1, suspend: 2 };
const settlementHeadBytes = 23;

export function settleCallBytes({ lease, tail }: SettleCall): number {
  return settlementHeadBytes + lease.owner.length * bytesPerCharacterMax + tail.byteLength;
}

export function packSettleCalls(calls: readonly SettleCall[]): Buffer {
  let bytesMax = 0;
  for (const call of calls) bytesMax += settleCallBytes(call);
  const packed = Buffer.allocUnsafe(bytesMax);
  let at = 0;
  for (const { lease, settlement, tail } of calls) {
    packed[at] = settlementKinds[settlement.kind];
    writeFence(packed, lease.fence, at + 1);
    writeMs(
      packed,
      settlement.kind === "suspend" ? settlement.reconcileAfterMs : settlement.retentionMs,
      at + 5,
    );
    const resumeAfterMs = settlement.kind === "release" ? settlement.resumeAfterMs : undefined;
    writeMs(packed, resumeAfterMs === undefined ? 0 : durationMs(resumeAfterMs) + 1, at + 11);
    let end = at + settlementHeadBytes;
    end += writeText(packed, lease.owner, end, at + 17);
    packed.writeUInt32BE(tail.byteLength, at + 19);
    packed.set(tail, end);
    at = end + tail.byteLength;
  }
  return packed.subarray(0, at);
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

/** Reads what the scripts answer, one answer after the other. */
export class Replies {
  readonly #packed: Buffer;
  #at = 0;

  constructor(packed: Buffer) {
    this.#packed = packed;
  }

  time(): number {
    this.#at += 6;
    return this.#packed.readUIntBE(this.#at - 6, 6);
  }

  byte(): number {
    this.#at += 1;
    return this.#packed[this.#at - 1] ?? 0;
  }

  fence(): number {
    this.#at += 4;
    return this.#packed.readUInt32BE(this.#at - 4);
  }

  /** After its length. */
  bytes(): Buffer {
    const from = this.#at + 4;
    this.#at = from + this.#packed.readUInt32BE(from - 4);
    return this.#packed.subarray(from, this.#at);
  }
}

/** The next answer of reserve.lua, or why there is none. */
export function reservationOf(replies: Replies, request: ReserveRequest): Reservation | StoreError {
  const code = replies.byte();
  switch (code) {
    case 0: {
      const after = executeAfters[replies.byte()] ?? "absent";
      const { scope, key, owner } = request;
      const fence = replies.fence();
      const createdAt = replies.time();
      const bytes = replies.bytes();
      return decoded(() => {
        const progress = decodeProgress(bytes.toString() || null);
        return { kind: "execute", after, lease: { scope, key, fence, owner }, progress, createdAt };
      });
    }
    case 1: {
      const expiresAt = replies.time();
      const remainingMs = replies.time();
      const bytes = replies.bytes();
      return decoded(() => ({ kind: "replay", expiresAt, remainingMs, response: unpackResponse(bytes) }));
    }
    case 2:
      return { kind: "inFlight", retryAfterMs: replies.time() };
    case 3:
      return { kind: "pending" };
    case 4:
      return { kind: "absent" };
    case 5:
      return { kind: "mismatch" };
    case 6:
      return { kind: "unknown", retryAfterMs: replies.time(), discovered: replies.byte() === 1 };
    case 7:
      return unreadable(replies.byte());
    case 9:
      return new StoreError("too much was asked for at once: nothing was done");
    default:
      return new StoreError(
        "Redis came to this request only when nobody waited for it any more: nothing was done",
      );
  }
}

/** One record that cannot be read must not spoil the answers that came with it. */
function decoded(decode: () => Reservation): Reservation | StoreError {
  try {
    return decode();
  } catch (error) {
    if (error instanceof StoreError) return error;
    return new StoreError(`a record cannot be read: ${String(error)}`, { cause: error });
  }
}

/** The next answer of settle.lua, or why there is none. */
export function settleAnswerOf(replies: Replies): SettleAnswer | StoreError {
  switch (replies.byte()) {
    case 0:
      return { kind: "settled", expiresAt: replies.time() };
    case 1:
      return { kind: "lost" };
    default:
      return unreadable(replies.byte());
  }
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
