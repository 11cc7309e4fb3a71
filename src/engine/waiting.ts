import type { RecordId } from "../core/record.ts";
import type { Store, Unwatch } from "../core/store.ts";
import { type Runtime, sleeper } from "./runtime.ts";

/** Asks `changed` whenever the record may have changed, until it says yes or the time is up. */
export async function waitForChange(options: {
  readonly store: Store;
  readonly runtime: Runtime;
  readonly id: RecordId;
  readonly until: number;
  readonly changed: () => Promise<boolean>;
  readonly onWatchError: (error: unknown) => void;
}): Promise<void> {
  const { store, runtime, id, until } = options;
  const { sleep, wake } = sleeper(runtime);
  const unwatch = await watchIfPossible(store, id, wake, options.onWatchError);
  try {
    // The record may have changed before the watch began.
    if (unwatch !== undefined && (await options.changed())) return;
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

async function watchIfPossible(
  store: Store,
  id: RecordId,
  wake: () => void,
  onError: (error: unknown) => void,
): Promise<Unwatch | undefined> {
  if (store.watch === undefined || !store.capabilities.push) return undefined;
  try {
    return await store.watch(id, wake);
  } catch (error) {
    // Without push the waiter polls; the answer is the same.
    onError(error);
    return undefined;
  }
}
