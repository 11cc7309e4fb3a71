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
    const claimed: Resumable[] = [];
    let gaveUp = 0;
    await this.#walk("claimResumable", limit, args, (reply) => {
      const [count, ...found] = listOf(reply);
      gaveUp += Number(count);
      for (let at = 0; at < found.length; at += 3) {
        const [name, record, request] = found.slice(at, at + 3).map(bufferOfReply);
        const resumable = decodeRecord(idOf(String(name)), record ?? Buffer.alloc(0));
        if (resumable?.state !== "pending" && resumable?.state !== "failed_retryable") continue;
        claimed.push({ record: resumable, request: unpackRequest(request ?? Buffer.alloc(0)) });
      }
      return Number(count) + found.length / 3;
    });
    return { claimed, gaveUp };
  }

  async claimUnknown({
    limit,
    backoff,
  }: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    const args = [backoff.baseMs, backoff.capMs, backoffDoublingsMax].map(String);
    const claimed: UnknownRecord[] = [];
    await this.#walk("claimUnknown", limit, args, (reply) => {
      const found = listOf(reply).map(bufferOfReply);
      for (let at = 0; at < found.length; at += 2) {
        const record = decodeRecord(idOf(String(found[at])), found[at + 1] ?? Buffer.alloc(0));
        if (record?.state === "unknown") claimed.push(record);
      }
      return found.length / 2;
    });
    return claimed;
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

  /** Asks bucket after bucket until `limit` things were done; `taken` says how many an answer stands for. */
  async #walk(
    script: "sweep" | "claimResumable" | "claimUnknown" | "reap",
    limit: number,
    args: readonly RedisArgument[],
    taken: (reply: RedisReply) => number,
  ): Promise<void> {
    const { tags } = this.#server.names;
    const start = this.#start++;
    let left = limit;
    for (let nth = 0; nth < tags.length && left > 0; nth += 1) {
      const tag = tags[(start + nth) % tags.length] ?? "";
      for (;;) {
        const asked = Math.min(left, askedMax);
        const count = taken(await this.#server.write(script, [tag], [String(asked), ...args]));
        left -= count;
        if (count < asked || left <= 0) break;
      }
    }
  }
}

/** Nobody else is served while a script runs. */
const askedMax = 200;
