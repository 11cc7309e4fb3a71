import { sleeper } from "../engine/runtime.ts";
import type { Latchkey } from "../latchkey.ts";

/** Something that has to be done again and again. Any number of them may run, on any number of machines. */
export interface Worker<Counts> {
  readonly name: string;
  /** One round; answers with what it did. */
  runOnce(): Promise<Counts>;
  /**
   * Round after round until `signal` fires, and then until the round under way has ended. Never rejects: an error is an
   * event, and the next round comes later.
   */
  run(signal: AbortSignal): Promise<void>;
}

/** How many of each kind, as every worker's round answers. */
export type CountsOf<Counts> = { readonly [Kind in keyof Counts]: number };

export interface LoopOptions<Counts> {
  readonly name: string;
  readonly latchkey: Latchkey;
  /** One round. `stopping` fires when `run` was told to end: what has not been started by then can be left alone. */
  runOnce(stopping?: AbortSignal): Promise<Counts>;
  /** Whether a round found nothing to do, so that the next one can wait. */
  isIdle(counts: Counts): boolean;
  /** How long an idle worker waits before it looks again. */
  readonly intervalMs: number;
  /** Wakes an idle worker before its time. A wake-up that never comes costs no more than the interval. */
  readonly watch?: ((wake: () => void) => Promise<() => void>) | undefined;
  /** How long a busy worker rests, as a multiple of the time that its round took, so that others get their share. */
  readonly restFactor?: number;
}

const intervalJitter = 0.1; // Enough that workers which were started together do not stay in step.
const errorPauseMsMax = 60_000; // A store that comes back after hours finds its workers within a minute.

/** Makes a worker of one round. */
export function loopOf<Counts extends CountsOf<Counts>>(options: LoopOptions<Counts>): Worker<Counts> {
  const { name, latchkey, isIdle, intervalMs, watch, restFactor = 0 } = options;
  const { events, runtime } = latchkey.engine;

  async function round(stopping?: AbortSignal): Promise<Counts> {
    const counts = await options.runOnce(stopping);
    // Also if it did nothing: whoever watches wants to know that it comes round.
    if (events.areHeard) events.emit({ type: "worker", worker: name, counts: { ...counts } });
    return counts;
  }

  async function run(signal: AbortSignal): Promise<void> {
    // A notification may end the wait for work, but never the pause after an error or the rest of a busy worker.
    const idle = sleeper(runtime);
    const pause = sleeper(runtime);
    const stop = () => {
      idle.wake();
      pause.wake();
    };
    const subscription = subscribe(idle.wake);
    signal.addEventListener("abort", stop);
    let errorsInARow = 0;
    while (!signal.aborted) {
      const startedAt = runtime.now();
      try {
        const counts = await round(signal);
        errorsInARow = 0;
        if (signal.aborted) break;
        if (isIdle(counts)) {
          subscription.ensure();
          await idle.sleep(jittered(intervalMs));
        } else {
          // Even no rest at all goes through a timer: an embedded store would otherwise never let go of the process.
          await pause.sleep(restFactor * (runtime.now() - startedAt));
        }
      } catch (error) {
        events.emit({ type: "worker_error", worker: name, error });
        if (signal.aborted) break;
        await pause.sleep(jittered(errorPauseMs(intervalMs, errorsInARow)));
        errorsInARow += 1;
      }
    }
    signal.removeEventListener("abort", stop);
    subscription.end();
  }

  /** Subscribes in the background, and again before each wait if that failed: a worker that polls is better than none. */
  function subscribe(wake: () => void) {
    let state: "none" | "subscribing" | "subscribed" | "ended" = "none";
    let unwatch: (() => void) | undefined;
    async function ensure(): Promise<void> {
      if (watch === undefined || state !== "none") return;
      state = "subscribing";
      try {
        const stopWatching = await watch(wake);
        if (hasEnded()) return stopWatching();
        unwatch = stopWatching;
        state = "subscribed";
        // What was enqueued before the subscription held woke nobody.
        wake();
      } catch (error) {
        if (hasEnded()) return;
        state = "none";
        events.emit({ type: "worker_error", worker: name, error });
      }
    }
    const hasEnded = () => state === "ended";
    return {
      ensure: () => void ensure(),
      end() {
        state = "ended";
        unwatch?.();
      },
    };
  }

  function jittered(ms: number): number {
    return ms * (1 - intervalJitter + 2 * intervalJitter * runtime.random());
  }

  return { name, runOnce: () => round(), run };
}

/** The interval, and twice as long for every error in a row. */
function errorPauseMs(intervalMs: number, errorsBefore: number): number {
  return Math.max(intervalMs, Math.min(errorPauseMsMax, intervalMs * 2 ** errorsBefore));
}
