import type { RecordId } from "../core/record.ts";
import type { Store, Unwatch } from "../core/store.ts";
import { type Runtime, sleeper } from "./runtime.ts";

/** Asks `changed` whenever the record may have changed, until it says yes or the time is up. */
export async function waitForChange(options: {
  readonly store: Store;
  readonly runtime: Runtime;
  readonly id: RecordId;
  /** The store has begun to tell of the record when it was asked for it. */
  readonly isTold: boolean;
  readonly until: number;
  readonly changed: () => Promise<boolean>;
  /** Undefined when the store takes too long to begin. */
  readonly withinLimit: <T>(promise: Promise<T>) => Promise<T | undefined>;
  readonly onWatchError: (error: unknown) => void;
}): Promise<void> {
  const { runtime, until } = options;
  const { sleep, wake } = sleeper(runtime);
  const unwatch = await watchIfPossible({ ...options, wake });
  try {
    // The record may have changed before the watch began.
    if (unwatch !== undefined && !unwatch.isRunning && (await options.changed())) return;
    let pollMs = unwatch === undefined ? pollMsFirst : pollMsBelowPush;
    for (;;) {
      const leftMs = until - runtime.now();
      if (leftMs <= 0) return;
      // Jitter keeps the duplicates of one stampede from asking in step.
      await sleep(Math.min(leftMs, pollMs * (0.75 + runtime.random() / 2)));
      if (await options.changed()) return;
      pollMs = Math.min(pollMs * 1.5, unwatch === undefined ? pollMsMax : pollMsBelowPush);
    }
  } finally {
    unwatch?.();
  }
}

const pollMsFirst = 20; // About what a short handler takes.
const pollMsMax = 400; // Two to three questions per second and waiter at the most.
const pollMsBelowPush = 1000; // Push does the work; this only catches a notification that was lost.

async function watchIfPossible(options: {
  readonly store: Store;
  readonly id: RecordId;
  readonly isTold: boolean;
  readonly wake: () => void;
  readonly withinLimit: <T>(promise: Promise<T>) => Promise<T | undefined>;
  readonly onWatchError: (error: unknown) => void;
}): Promise<Unwatch | undefined> {
  const { store, id, isTold, wake, withinLimit, onWatchError } = options;
  if (store.watch === undefined || !store.capabilities.push) return undefined;
  try {
    const watching = store.watch(id, wake, { isTold });
    const unwatch = await withinLimit(watching);
    // Nobody waits for it any more when it begins after all.
    if (unwatch === undefined) watching.then((late) => late(), onWatchError);
    return unwatch;
  } catch (error) {
    // Without push the waiter polls; the answer is the same.
    onWatchError(error);
    return undefined;
  }
}
