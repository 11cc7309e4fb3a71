import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { auditReasons } from "../../core/audit.ts";
import { ConfigError } from "../../core/errors.ts";
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
  Lease,
  Reading,
  ReapCounts,
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
  UnsettledState,
  Unwatch,
} from "../../core/store.ts";
import { readAudit } from "./audit.ts";
import { Batches, Singly } from "./batches.ts";
import { linkOf, type RedisClient } from "./client.ts";
import { dangersOf } from "./health.ts";
import { Names } from "./names.ts";
import { digestOf, Push } from "./push.ts";
import { decodeRecord, onCrashes, packResponse, unreadable } from "./record.ts";
import { bufferOfReply, listOf, numbersOf, Server } from "./server.ts";
import { Upkeep } from "./upkeep.ts";
import { durationMs, packLeases } from "./wire.ts";

export type { RedisClient } from "./client.ts";

export interface RedisStoreOptions {
  /** What all keys begin with, behind the client's own `keyPrefix`: "latchkey" unless said otherwise. */
  readonly prefix?: string;
  /**
   * Into how many parts the records are divided, each of which is in one slot of a cluster: 1, in a cluster 64. It must
   * stay the same for as long as there are records; a store that is told another number refuses to work.
   */
  readonly buckets?: number;
  /**
   * Nothing that was written counts before this many replicas have it. If they do not within the time, the call fails,
   * though the primary has it. This makes losing a record in a failover unlikely, not impossible.
   */
  readonly waitForReplicas?: { readonly count: number; readonly timeoutMs: number };
  /** Whether calls that come at the same time travel in one script; true unless said otherwise. */
  readonly groupCommit?: boolean;
  /** Is told, once and in one sentence, how records can be evicted or lost; a process warning unless said otherwise. */
  readonly warn?: (sentence: string) => void;
}

export interface RedisStore extends Store<never> {
  /**
   * Connects, checks that the records are laid out as this store expects, and reads the server's settings. Nobody has to
   * call it: the first call does the same, except that it does not wait for the settings.
   */
  ready(): Promise<void>;
}

/**
 * Records in Redis (6.2 or later) or Valkey, a single server, one behind Sentinel, or a Cluster (7 or later for waiters to
 * be woken). Fast and as durable as the server is configured to be: after a failover, records that were acknowledged may
 * be missing, and their requests would be executed again. Business data cannot commit with them.
 *
 * @example
 * ```ts
 * import { Redis } from "ioredis";
 * const store = redisStore(new Redis("redis://localhost:6379"));
 * ```
 */
export function redisStore(client: RedisClient, options: RedisStoreOptions = {}): RedisStore {
  return new RedisStoreOf(client, options);
}

/** What only tests need. */
export interface RedisStoreSeams {
  /** As many calls as these are not worth a batch. */
  readonly aloneMax?: number;
  readonly clock?: () => number;
}

export class RedisStoreOf implements RedisStore {
  readonly name = "redis";
  readonly capabilities: Capabilities = {
    transactions: false,
    push: true,
    storeClock: true,
    durability: "configured",
    responseBytesMax: 64 * 1024 * 1024,
  };
  /** In a cluster nobody knows whether a bust was missed, and so nobody is told of any. */
  readonly onBusted?: (listener: BustListener) => BustNames;
  readonly #server: Server;
  readonly #records: Batches | Singly;
  readonly #upkeep: Upkeep;
  readonly #push: Push;
  readonly #warn: (sentence: string) => void;
  #looked: Promise<void> | undefined;

  constructor(client: RedisClient, options: RedisStoreOptions, seams: RedisStoreSeams = {}) {
    const link = linkOf(client);
    const { prefix, buckets, waitForReplicas } = checked(options, link);
    const names = new Names({ keyPrefix: link.keyPrefix, prefix, buckets });
    this.#server = new Server({ link, names, waitForReplicas, clock: seams.clock });
    const aloneMax = seams.aloneMax === undefined ? {} : { aloneMax: seams.aloneMax };
    this.#records =
      (options.groupCommit ?? true) ? new Batches(this.#server, aloneMax) : new Singly(this.#server);
    this.#upkeep = new Upkeep(this.#server);
    this.#push = new Push(this.#server);
    this.#warn = options.warn ?? ((sentence) => process.emitWarning(sentence, { code: "LATCHKEY_REDIS" }));
    if (!link.isCluster) {
      this.onBusted = (listener) => {
        this.#push.onBusted(listener);
        return digestOf;
      };
    }
  }

  async ready(): Promise<void> {
    await this.#server.start();
    await this.#look();
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    if (this.#looked === undefined) void this.#look();
    return this.#records.reserve(request);
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return this.#records.settle(lease, settlement);
  }

  async renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]> {
    const { names } = this.#server;
    const parts = new Map<number, number[]>();
    for (const [nth, lease] of leases.entries()) {
      const bucket = names.bucketOf(lease);
      const part = parts.get(bucket);
      if (part === undefined) parts.set(bucket, [nth]);
      else part.push(nth);
    }
    const answers: RenewAnswer[] = leases.map(() => "lost");
    await Promise.all(
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

function chunksOf<T>(items: readonly T[], size: number): T[][] {
  const chunks: T[][] = [];
  for (let from = 0; from < items.length; from += size) chunks.push(items.slice(from, from + size));
  return chunks;
}

function checked(options: RedisStoreOptions, { isCluster }: { readonly isCluster: boolean }) {
  const { prefix = "latchkey", buckets = isCluster ? 64 : 1, waitForReplicas } = options;
  if (!/^[^{}\s]+$/.test(prefix)) {
    throw new ConfigError(
      `prefix is "${prefix}": name it without braces or spaces, and do not leave it empty`,
    );
  }
  if (!Number.isInteger(buckets) || buckets < 1 || buckets > bucketsMax) {
    throw new ConfigError(`buckets is ${buckets}: pass a whole number from 1 to ${bucketsMax}`);
  }
  if (waitForReplicas !== undefined) {
    const { count, timeoutMs } = waitForReplicas;
    if (!Number.isInteger(count) || count < 1) {
      throw new ConfigError(
        `waitForReplicas.count is ${count}: pass the number of replicas to wait for, at least 1`,
      );
    }
    // Without an end it would wait for ever, and everything behind it on the connection.
    if (!Number.isInteger(timeoutMs) || timeoutMs < 1) {
      throw new ConfigError(`waitForReplicas.timeoutMs is ${timeoutMs}: pass whole milliseconds, at least 1`);
    }
  }
  return { prefix, buckets, waitForReplicas };
}

/** Each costs the workers a question in every round. */
const bucketsMax = 1024;
