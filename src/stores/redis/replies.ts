import { StoreError } from "../../core/errors.ts";
import { decodeProgress, noProgress } from "../../core/phase.ts";
import type { Reservation, ReserveRequest, SettleAnswer } from "../../core/store.ts";
import { executeAfters, unpackResponse, unreadable } from "./record.ts";

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

  /** After its length. Most are empty. */
  text(): string {
    const from = this.#at + 4;
    this.#at = from + this.#packed.readUInt32BE(from - 4);
    return this.#at === from ? "" : this.#packed.toString("utf8", from, this.#at);
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
      const progress = replies.text();
      const lease = { scope, key, fence, owner };
      if (progress === "") return { kind: "execute", after, lease, progress: noProgress, createdAt };
      return decoded(() => ({
        kind: "execute",
        after,
        lease,
        progress: decodeProgress(progress),
        createdAt,
      }));
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
