import { ConfigError } from "../../core/errors.ts";
import type { Expiry, ReapCounts } from "../../core/store.ts";
import type { Database, Query, Row } from "./database.ts";
import { storeError } from "./errors.ts";
import { Queries } from "./queries.ts";
import { BatchReaper, type Reaper } from "./reaping.ts";
import * as statements from "./statements/partitions.ts";
import { reapDeleting } from "./statements/reaping.ts";

/** While a partition is made or dropped, every statement waits; so this is how long one may wait for its turn. */
const lockTimeoutMs = 100;

/** They are moved under that lock. 2,000 take about 50 ms. */
const leftoversMax = 2_000;

/** Drops whole partitions, and keeps the next ones ready. */
export class PartitionReaper implements Reaper {
  readonly #database: Database;
  readonly #queries: Queries;
  /** Records that are not where they would be dropped: without a partition, or expired before the time of theirs. */
  readonly #strays: readonly BatchReaper[];
  /** Partitions with too many leftovers are reaped record by record, until few enough are left. */
  readonly #full = new Map<string, BatchReaper>();

  constructor(database: Database) {
    this.#database = database;
    this.#queries = new Queries(database);
    this.#strays = [
      new BatchReaper(this.#queries, reapDeleting(statements.defaultPartition)),
      new BatchReaper(this.#queries, reapDeleting("latchkey_records", "bucket > now()")),
    ];
  }

  /** A partition counts as many records as the server's statistics give it, and ignores the limit: it costs the same. */
  async reap({ limit, expiry }: { limit: number; expiry: Expiry }): Promise<ReapCounts> {
    if (expiry === "soft") {
      throw new ConfigError(
        'expiry is "soft", and partitioned records cannot be kept, because they are dropped with their partition: ' +
          'set expiry to "delete", or use tables that are not partitioned',
      );
    }
    await this.#prepareAhead();
    // Whoever detached one before may have died before it was dropped.
    await this.#dropDetached();
    let deleted = 0;
    for (const partition of await this.#queries.all<PastPartition>(statements.pastPartitions)) {
      deleted += await this.#drop(partition, limit - deleted);
    }
    for (const reaper of this.#strays) {
      if (deleted < limit) deleted += (await reaper.reap({ limit: limit - deleted, expiry })).deleted;
    }
    return { deleted, expired: 0 };
  }

  async #prepareAhead(): Promise<void> {
    const missing = await this.#queries.all<{ statement: string }>(statements.missingPartitions);
    if (missing.length > 0) await this.#withLock((query) => createPartitions(query));
  }

  async #drop({ name, bucket, rows }: PastPartition, limit: number): Promise<number> {
    const { leftovers } = await this.#queries.one<{ leftovers: number }>(statements.countLeftovers(name), [
      leftoversMax + 1,
    ]);
    if (leftovers > leftoversMax) return this.#reapFull(name, limit);
    this.#full.delete(name);
    const isDetached = await this.#withLock(async (query) => {
      await query("LOCK TABLE latchkey_records IN ACCESS EXCLUSIVE MODE");
      await query(statements.moveLeftovers(name), [bucket]);
      await query(`ALTER TABLE latchkey_records DETACH PARTITION ${name}`);
    });
    if (!isDetached) return 0;
    await this.#dropDetached();
    return Math.max(0, Math.round(rows) - leftovers);
  }

  /** Removing the files of a large table takes most of a second, for which nobody has to wait any more. */
  async #dropDetached(): Promise<void> {
    for (const { name } of await this.#queries.all<{ name: string }>(statements.detachedPartitions)) {
      await this.#queries.all(`DROP TABLE IF EXISTS ${name}`);
    }
  }

  async #reapFull(name: string, limit: number): Promise<number> {
    const reaper = this.#full.get(name) ?? new BatchReaper(this.#queries, reapDeleting(name));
    this.#full.set(name, reaper);
    return limit > 0 ? (await reaper.reap({ limit, expiry: "delete" })).deleted : 0;
  }

  /** False when the turn did not come in time: the next call tries again. */
  async #withLock(work: (query: Query) => Promise<unknown>): Promise<boolean> {
    try {
      return await this.#database.transaction(
        async (query) => {
          const [turn] = await query<{ mine: boolean }>(statements.takePartitionTurn);
          if (!turn?.mine) return false;
          await work(query);
          return true;
        },
        // The statistics of a partition may be missing, and a scan of all of it must not happen under the lock.
        {
          beginWith: `SET LOCAL lock_timeout = ${lockTimeoutMs}; SET LOCAL enable_seqscan = off`,
          isLong: true,
        },
      );
    } catch (error) {
      if ((error as { code?: unknown }).code === lockNotAvailable) return false;
      throw storeError(error);
    }
  }
}

/** Within a transaction, so that a partition is not created twice. */
export async function createPartitions(query: Query): Promise<void> {
  const missing = await query<{ statement: string }>(statements.missingPartitions);
  for (const { statement } of missing) await query(statement);
}

interface PastPartition extends Row {
  readonly name: string;
  readonly bucket: string;
  readonly rows: number;
}

const lockNotAvailable = "55P03";
