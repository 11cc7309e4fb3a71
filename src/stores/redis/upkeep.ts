import { auditActors, auditReasons } from "../../core/audit.ts";
import type { UnknownRecord } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import type {
  ClaimOptions,
  Expiry,
  ReapCounts,
  Resumable,
  ResumableClaim,
  SweepCounts,
  UnknownCounts,
} from "../../core/store.ts";
import { backoffDoublingsMax, crashReason } from "../../core/transition.ts";
import type { RedisArgument, RedisReply } from "./client.ts";
import { idOf } from "./names.ts";
import { decodeRecord, packResponse, unpackRequest } from "./record.ts";
import { bufferOfReply, listOf, numbersOf, type Server } from "./server.ts";

/** What workers do, bucket by bucket. */
export class Upkeep {
  readonly #server: Server;
  /** Where the next walk begins, so that no bucket always comes last. */
  #start = 0;

  constructor(server: Server) {
    this.#server = server;
  }

  async sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    const args = [
      packResponse(options.unclaimed),
      auditActors.sweeper,
      crashReason,
      auditReasons.unclaimed,
      auditReasons.abandoned,
    ];
    const counts = { unknown: 0, retryable: 0, unclaimed: 0 };
    await this.#walk("sweep", options.limit, args, (reply) => {
      const [unknown = 0, retryable = 0, unclaimed = 0] = numbersOf(reply);
      counts.unknown += unknown;
      counts.retryable += retryable;
      counts.unclaimed += unclaimed;
      return unknown + retryable + unclaimed;
    });
    return counts;
  }

  async claimResumable({ limit, attemptsMax, backoff }: ClaimOptions): Promise<ResumableClaim> {
    const args = [
      attemptsMax,
      backoff.baseMs,
      backoff.capMs,
      backoffDoublingsMax,
      auditActors.completer,
      auditReasons.gaveUp,
    ].map(String);
    const claims = new Claims<Resumable>();
    let gaveUp = 0;
    await this.#walk("claimResumable", limit, args, (reply) => {
      const [count, ...found] = listOf(reply);
      gaveUp += Number(count);
      for (let at = 0; at < found.length; at += 3) {
        const [name, record, request] = found.slice(at, at + 3).map(bufferOfReply);
        claims.add(() => {
          const resumable = decodeRecord(idOf(String(name)), record ?? Buffer.alloc(0));
          if (resumable?.state !== "pending" && resumable?.state !== "failed_retryable") return undefined;
          return { record: resumable, request: unpackRequest(request ?? Buffer.alloc(0)) };
        });
      }
      return Number(count) + found.length / 3;
    });
    return { claimed: gaveUp > 0 ? claims.readable : claims.all(), gaveUp };
  }

  async claimUnknown({
    limit,
    backoff,
  }: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    const args = [backoff.baseMs, backoff.capMs, backoffDoublingsMax].map(String);
    const claims = new Claims<UnknownRecord>();
    await this.#walk("claimUnknown", limit, args, (reply) => {
      const found = listOf(reply).map(bufferOfReply);
      for (let at = 0; at < found.length; at += 2) {
        claims.add(() => {
          const record = decodeRecord(idOf(String(found[at])), found[at + 1] ?? Buffer.alloc(0));
          return record?.state === "unknown" ? record : undefined;
        });
      }
      return found.length / 2;
    });
    return claims.all();
  }

  async reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    const counts = { deleted: 0, expired: 0 };
    await this.#walk("reap", options.limit, [options.expiry], (reply) => {
      const [deleted = 0, expired = 0] = numbersOf(reply);
      counts.deleted += deleted;
      counts.expired += expired;
      return deleted + expired;
    });
    return counts;
  }

  /** Of all buckets, or of none: a part of them would look like less to worry about. */
  async unknownCounts(): Promise<UnknownCounts> {
    const counts = { waiting: 0, escalated: 0, oldestMs: 0 };
    const waiting = [...this.#server.names.tags];
    const countNext = async (): Promise<void> => {
      for (let tag = waiting.pop(); tag !== undefined; tag = waiting.pop()) await this.#countIn(tag, counts);
    };
    await Promise.all(Array.from({ length: askedAtOnce }, countNext));
    return counts;
  }

  async #countIn(tag: string, counts: { -readonly [Name in keyof UnknownCounts]: number }): Promise<void> {
    for (let looked = 0, found = countedMax; found === countedMax; looked += found) {
      const args = [String(looked), String(countedMax)];
      const reply = numbersOf(await this.#server.ask("countUnknown", [tag], args));
      const [now = 0, looks = 0, waiting = 0, escalated = 0, oldest = 0] = reply;
      counts.waiting += waiting;
      counts.escalated += escalated;
      if (oldest > 0) counts.oldestMs = Math.max(counts.oldestMs, now - oldest);
      found = looks;
    }
  }

  /**
   * Asks the buckets, some at a time, until `limit` things were done; `taken` says how many an answer stands for. What
   * was taken counts even if other buckets cannot be asked, because nobody else is given it for a while.
   */
  async #walk(
    script: "sweep" | "claimResumable" | "claimUnknown" | "reap",
    limit: number,
    args: readonly RedisArgument[],
    taken: (reply: RedisReply) => number,
  ): Promise<void> {
    const { tags } = this.#server.names;
    const start = this.#start++ % tags.length;
    const waiting = [...tags.slice(start), ...tags.slice(0, start)];
    let left = limit;
    let trouble: unknown;
    while (waiting.length > 0 && left > 0) {
      const asked = waiting.splice(0, Math.min(askedAtOnce, left));
      const share = Math.min(shareMax, Math.floor(left / asked.length));
      const replies = await Promise.allSettled(
        asked.map((tag) => this.#server.write(script, [tag], [String(share), ...args])),
      );
      for (const [nth, reply] of replies.entries()) {
        if (reply.status === "rejected") {
          trouble ??= reply.reason;
          continue;
        }
        const count = taken(reply.value);
        left -= count;
        if (count >= share) waiting.push(asked[nth] ?? "");
      }
    }
    if (trouble !== undefined && left === limit) throw trouble;
  }
}

/**
 * What was claimed. One record that cannot be read must not keep the others from whoever has claimed them; it comes back
 * after its back-off.
 */
class Claims<T> {
  readonly readable: T[] = [];
  #trouble: unknown;

  add(decode: () => T | undefined): void {
    try {
      const claimed = decode();
      if (claimed !== undefined) this.readable.push(claimed);
    } catch (error) {
      this.#trouble ??= error;
    }
  }

  /** Throws if there was something, and none of it can be read. */
  all(): readonly T[] {
    if (this.readable.length === 0 && this.#trouble !== undefined) throw this.#trouble;
    return this.readable;
  }
}

/** Buckets whose node is down take long to say so. */
const askedAtOnce = 8;
/** Nobody else is served while a script runs. */
const shareMax = 200;
const countedMax = 1_000;
