import type { SweepCounts } from "../core/store.ts";
import type { Latchkey } from "../latchkey.ts";
import { loopOf, type Worker } from "./loop.ts";

export interface SweeperOptions {
  /** How many records are ended in one round. */
  readonly batch?: number;
  readonly intervalMs?: number;
}

const batchDefault = 1000; // Small enough that no statement holds its locks for more than some milliseconds.
const intervalMsDefault = 5_000; // A third of the default lease: a dead owner is found soon after its lease has run out.

/**
 * Ends executions whose process died, each as its `onCrash` says, and answers 408 for accepted requests that nobody
 * executed in time. Without it that happens when the next request with the key arrives.
 */
export function sweeper(latchkey: Latchkey, options: SweeperOptions = {}): Worker<SweepCounts> {
  return loopOf({
    name: "sweeper",
    latchkey,
    runOnce: () => latchkey.sweep({ limit: options.batch ?? batchDefault }),
    isIdle: ({ unknown, retryable, unclaimed }) => unknown + retryable + unclaimed === 0,
    intervalMs: options.intervalMs ?? intervalMsDefault,
  });
}
