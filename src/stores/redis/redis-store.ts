import { offerPending } from "../../core/at-once.ts";
import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { auditReasons } from "../../core/audit.ts";
import type { Notes } from "../../core/notes.ts";
import { type Pending, promised } from "../../core/pending.ts";
import { encodeProgress } from "../../core/phase.ts";
import type { RecordId, RecordState, UnknownRecord } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import type {
  Advance,
  Bust,
  BustAnswer,
  BustListener,
  BustNames,
  Capabilities,
  ClaimOptions,
  Expiry,
  ForgetCounts,
  ForgetOptions,
  HeartbeatAnswer,
  Lease,
  ListQuery,
  Reading,
  ReapCounts,
  RecordPage,
  RenewAnswer,
  Reservation,
  ReserveRequest,
  Resolution,
  ResolveAnswer,
  ResumableClaim,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
  UnknownCounts,
  UnsettledState,
  Unwatch,
} from "../../core/store.ts";
import { Forgetting } from "../forgetting.ts";
import { readAudit } from "./audit.ts";
import { Batches, Singly } from "./batches.ts";
import { chunksOf } from "./chunks.ts";
import { linkOf, type RedisClient } from "./client.ts";
import { forgetEverywhere } from "./forgetting.ts";
import { dangersOf } from "./health.ts";
import { list } from "./listing.ts";
import { Names } from "./names.ts";
import { RedisNotes } from "./notes.ts";
import { checkedOptions, type RedisStoreOptions } from "./options.ts";
import { digestOf, Push } from "./push.ts";
import { decodeRecord, onCrashes, packResponse, unreadable } from "./record.ts";
import { bufferOfReply, listOf, numbersOf, Server } from "./server.ts";
import { Upkeep } from "./upkeep.ts";
import { durationMs, packLeases } from "./wire.ts";

/** What only tests need. */
export interface RedisStoreSeams {
  /** As many calls as these are not worth a batch. */
  readonly aloneMax?: number;
  readonly clock?: () => number;
}

/** See `redisStore`. */
export class RedisStore implements Store<never> {
  readonly name = "redis";
  readonly capabilities: Capabilities = {
    transactions: false,
    push: true,
    storeClock: true,
    durability: "configured",
    responseBytesMax: 64 * 1024 * 1024,
    listing: "unordered",
  };
  readonly notes: Notes;
  /** In a cluster nobody knows whether a bust was missed, and so nobody is told of any. */
  readonly onBusted?: (listener: BustListener) => BustNames;
  readonly #server: Server;
  readonly #records: Batches | Singly;
  readonly #upkeep: Upkeep;
  readonly #forgetting: Forgetting;
  readonly #push: Push;
  readonly #warn: (sentence: string) => void;
  #looked: Promise<void> | undefined;

  constructor(client: RedisClient, options: RedisStoreOptions, seams: RedisStoreSeams = {}) {
    const link = linkOf(client);
    const { prefix, buckets, waitForReplicas } = checkedOptions(options, link);
    const names = new Names({ keyPrefix: link.keyPrefix, prefix, buckets });
    this.#server = new Server({ link, names, waitForReplicas, clock: seams.clock });
    const aloneMax = seams.aloneMax === undefined ? {} : { aloneMax: seams.aloneMax };
    this.#records =
      (options.groupCommit ?? true) ? new Batches(this.#server, aloneMax) : new Singly(this.#server);
    this.#upkeep = new Upkeep(this.#server);
    this.#forgetting = new Forgetting((pass) => forgetEverywhere(this.#server, pass));
    this.#push = new Push(this.#server);
    this.notes = new RedisNotes(this.#server);
    this.#warn = options.warn ?? ((sentence) => process.emitWarning(sentence, { code: "LATCHKEY_REDIS" }));
    if (!link.isCluster) {
      this.onBusted = (listener) => {
        this.#push.onBusted(listener);
        return digestOf;
      };
    }
  }

  /**
   * Connects, checks that the records are laid out as this store expects, and reads the server's settings. Nobody has to
   * call it: the first call does the same, except that it does not wait for the settings.
   */
  async ready(): Promise<void> {
    await this.#server.start();
    await this.#look();
  }

  static {
    offerPending(RedisStore.prototype.reserve, function (this: RedisStore, request) {
      return this.#reserve(request);
    });
    offerPending(RedisStore.prototype.settle, function (this: RedisStore, lease, settlement) {
      return this.#records.settle(lease, settlement);
    });
  }

  reserve(request: ReserveRequest): Promise<Reservation> {
    return promised(() => this.#reserve(request));
  }

  #reserve(request: ReserveRequest): Promise<Reservation> | Pending<Reservation> {
    if (this.#looked === undefined) void this.#look();
    return this.#records.reserve(request);
  }

  settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return promised(() => this.#records.settle(lease, settlement));
  }

  /** A part of a cluster that is down must not cost the others their leases. */
  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly HeartbeatAnswer[]> {
    const { names } = this.#server;
    const parts = new Map<number, number[]>();
    for (const [nth, lease] of leases.entries()) {
      const bucket = names.bucketOf(lease);
      const part = parts.get(bucket);
      if (part === undefined) parts.set(bucket, [nth]);
      else part.push(nth);
    }
    const answers: HeartbeatAnswer[] = leases.map(() => "unknown");
    const told = await Promise.allSettled(
      [...parts.values()]
        .flatMap((part) => chunksOf(part, renewedMax))
        .map(async (part) => {
          const held = await this.#hold(
            part.flatMap((nth) => leases[nth] ?? []),
            { leaseMs },
          );
          for (const [at, nth] of part.entries()) answers[nth] = held[at] ?? "lost";
        }),
    );
    const [first] = told;
    if (first?.status === "rejected" && told.every(({ status }) => status === "rejected")) throw first.reason;
    return answers;
  }

  async advance(lease: Lease, advance: Advance): Promise<RenewAnswer> {
    const [answer = "lost"] = await this.#hold([lease], { advance });
    return answer;
  }

  async read(id: RecordId): Promise<Reading> {
    const [now, value] = listOf(await this.#server.ask("read", [this.#server.names.keyOf(id)], []));
    const record = value === null || value === undefined ? undefined : decodeRecord(id, bufferOfReply(value));
    return { now: Number(now), record };
  }

  sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    return this.#upkeep.sweep(options);
  }

  claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    return this.#upkeep.claimResumable(options);
  }

  claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    return this.#upkeep.claimUnknown(options);
  }

  reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    return this.#upkeep.reap(options);
  }

  async forgetTenant(options: ForgetOptions): Promise<ForgetCounts> {
    await this.#server.start();
    return this.#forgetting.forget(options);
  }

  unknownCounts(): Promise<UnknownCounts> {
    return this.#upkeep.unknownCounts();
  }

  async resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    const { kind } = resolution;
    const resumeAfterMs = kind === "release" ? resolution.resumeAfterMs : undefined;
    const reply = await this.#server.write(
      "resolve",
      [this.#server.names.keyOf(id)],
      [
        String(fence),
        kind,
        kind === "escalate" ? "0" : String(durationMs(resolution.retentionMs)),
        resumeAfterMs === undefined ? "" : String(durationMs(resumeAfterMs)),
        kind === "complete" ? packResponse(resolution.response) : resolution.reason,
        kind === "release" ? (encodeProgress(resolution.progress) ?? "") : "",
        by,
        kind === "complete" ? auditReasons.foundOut : resolution.reason,
      ],
    );
    const [code, told] = listOf(reply);
    if (code === 1) return { kind: "resolved", expiresAt: Number(told) };
    if (code === 0) return { kind: "not-unknown", state: String(told) as RecordState | "absent" };
    throw unreadable(Number(told));
  }

  async bust(id: RecordId, { by, reason, attempt }: Bust): Promise<BustAnswer> {
    const args = [attempt === undefined ? "" : String(attempt), by, reason];
    const [kind, told] = listOf(await this.#server.write("bust", [this.#server.names.keyOf(id)], args));
    switch (String(kind)) {
      case "busted":
        return { kind: "busted" };
      case "nothing":
        return { kind: "nothing", state: String(told) === "expired" ? "expired" : "absent" };
      case "not-settled":
        return { kind: "not-settled", state: String(told) as UnsettledState };
      case "another-attempt":
        return { kind: "another-attempt", attempt: Number(told) };
      default:
        throw unreadable(Number(told));
    }
  }

  async list(query: ListQuery): Promise<RecordPage> {
    await this.#server.start();
    return list(this.#server, query);
  }

  async audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    await this.#server.start();
    return readAudit(this.#server, query);
  }

  watch(id: RecordId, wake: () => void): Promise<Unwatch> {
    return this.#push.watch(id, wake);
  }

  async close(): Promise<void> {
    await this.#push.close();
    await this.#server.link.close();
  }

  async #hold(
    leases: readonly Lease[],
    change: { readonly leaseMs?: number; readonly advance?: Advance },
  ): Promise<readonly RenewAnswer[]> {
    const { leaseMs, advance } = change;
    const reply = await this.#server.write(
      "hold",
      leases.map((lease) => this.#server.names.keyOf(lease)),
      [
        leaseMs === undefined ? "" : String(durationMs(leaseMs)),
        packLeases(leases),
        advance === undefined ? "" : String(onCrashes.indexOf(advance.onCrash)),
        advance === undefined ? "" : (encodeProgress(advance.progress) ?? ""),
      ],
    );
    return numbersOf(reply).map((held) => (held === 1 ? "held" : "lost"));
  }

  /** Never rejects: whether records can be lost is worth a warning, and no request has to wait for it. */
  #look(): Promise<void> {
    this.#looked ??= this.#server.start().then(
      async () => {
        const dangers = await dangersOf(this.#server.link);
        if (dangers !== undefined) this.#warn(dangers);
      },
      () => {
        // Whoever asked is told that it does not work; there is nothing to look at yet.
        this.#looked = undefined;
      },
    );
    return this.#looked;
  }
}

/** Nobody else is served while a script runs. */
const renewedMax = 500;
