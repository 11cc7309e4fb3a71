import type { ReapCounts } from "../core/store.ts";
import type { Latchkey } from "../latchkey.ts";
import { loopOf, type Worker } from "./loop.ts";

export interface ReaperOptions {
  /** How many records are removed in one statement. */
  readonly batch?: number;
  /** How long delivered messages that have a reference are kept. */
  readonly deliveredRetentionMs?: number;
  readonly intervalMs?: number;
}

export interface ReaperCounts extends ReapCounts {
  /** Delivered messages that were kept for their reference. */
  readonly messages: number;
}

const batchDefault = 250; // Some milliseconds of work: live requests beside it were measured not to notice.
const intervalMsDefault = 60_000; // Expired records only cost space: answers do not depend on their removal.
const restFactor = 4; // A reaper that catches up with millions takes a fifth of one connection, and leaves the rest.
const deliveredRetentionMsDefault = 24 * 60 * 60 * 1000; // As long as an answer can be asked for by default.

/**
 * Removes what is past its retention, in small batches with rests between them. Never what is under way, accepted or
 * unknown, and never what waits to be finished.
 */
export function reaper(latchkey: Latchkey, options: ReaperOptions = {}): Worker<ReaperCounts> {
  const limit = options.batch ?? batchDefault;
  const { deliveredRetentionMs = deliveredRetentionMsDefault } = options;
  return loopOf<ReaperCounts>({
    name: "reaper",
    latchkey,
    async runOnce() {
      const counts = await latchkey.reap({ limit });
      const messages = await latchkey.pruneMessages({ limit, retentionMs: deliveredRetentionMs });
      return { ...counts, messages };
    },
    isIdle: ({ deleted, expired, messages }) => deleted + expired < limit && messages < limit,
    intervalMs: options.intervalMs ?? intervalMsDefault,
    restFactor,
  });
}
