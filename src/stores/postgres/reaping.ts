import type { Expiry, ReapCounts } from "../../core/store.ts";
import type { Row } from "./database.ts";
import type { Queries } from "./queries.ts";
import { reapDeleting, reapMarking } from "./statements/reaping.ts";

/** How a store gets rid of records past their retention. */
export interface Reaper {
  reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts>;
}

/** Record by record, each batch going on where the last one ended. */
export class BatchReaper implements Reaper {
  readonly #queries: Queries;
  readonly #deleting: string;
  #goOnAt: number | null = null;

  constructor(queries: Queries, deleting = reapDeleting()) {
    this.#queries = queries;
    this.#deleting = deleting;
  }

  async reap({ limit, expiry }: { limit: number; expiry: Expiry }): Promise<ReapCounts> {
    const deletes = expiry === "delete";
    const statement = deletes ? this.#deleting : reapMarking;
    const goesOn = this.#goOnAt !== null;
    let reaped = await this.#batch(statement, limit);
    // At the end it turns to what it may have left behind: what others held, and what was settled meanwhile.
    if (reaped === 0 && goesOn) reaped = await this.#batch(statement, limit);
    return deletes ? { deleted: reaped, expired: 0 } : { deleted: 0, expired: reaped };
  }

  async #batch(statement: string, limit: number): Promise<number> {
    const { reaped, until } = await this.#queries.one<ReapedRow>(statement, [limit, this.#goOnAt]);
    // One millisecond less, since the time comes back as a rounded number.
    this.#goOnAt = reaped < limit || until === null ? null : until - 1;
    return reaped;
  }
}

interface ReapedRow extends Row {
  readonly reaped: number;
  readonly until: number | null;
}
