import { StoreError, UnreadableError } from "../core/errors.ts";
import type { UnknownRecord } from "../core/record.ts";
import { reasonCharactersMax, storableText } from "../core/text.ts";
import type { Latchkey } from "../latchkey.ts";
import { questionOf, type ReconcileHook } from "../operation/reconciliation.ts";
import { loopOf, type Worker } from "./loop.ts";

export interface ReconcilerOptions {
  /**
   * Whom to ask, by the name of the route: for a process that does not mount the routes itself. Routes of this process
   * are asked through their own `reconcile`.
   */
  readonly hooks?: Readonly<Record<string, ReconcileHook>>;
  /** How many outcomes are asked about at once. */
  readonly batch?: number;
  /** How often a provider is asked about one outcome before an operator is. */
  readonly attemptsMax?: number;
  /** When an outcome that is still unknown is asked about again: after `baseMs`, then after twice as long each time. */
  readonly backoff?: { readonly baseMs: number; readonly capMs: number };
  /** A hook that takes longer has not answered. */
  readonly askTimeoutMs?: number;
  readonly intervalMs?: number;
}

export interface ReconcilerCounts {
  /** Settled: completed, not executed, or known well enough to go on. */
  readonly resolved: number;
  readonly stillUnknown: number;
  /** Handed to an operator. */
  readonly escalated: number;
}

const batchDefault = 20; // As many questions as a provider takes at once without limiting its caller.
const attemptsMaxDefault = 12; // With the back-off below: about six hours of asking.
const askTimeoutMsDefault = 30_000;
const backoffDefault = { baseMs: askTimeoutMsDefault, capMs: 3_600_000 }; // Nobody is asked while a question is open.
const intervalMsDefault = 5_000;

/**
 * Settles unknown outcomes by asking: the route's `reconcile` hook, again and again with growing pauses, and an
 * operator when that has not helped.
 */
export function reconciler(latchkey: Latchkey, options: ReconcilerOptions = {}): Worker<ReconcilerCounts> {
  const {
    hooks = {},
    batch = batchDefault,
    attemptsMax = attemptsMaxDefault,
    backoff = backoffDefault,
    askTimeoutMs = askTimeoutMsDefault,
    intervalMs = intervalMsDefault,
  } = options;
  const { engine, store } = latchkey;

  async function settle(record: UnknownRecord): Promise<keyof ReconcilerCounts> {
    const { scope, key, route, reconcileAttempts } = record;
    const hook = (route === undefined ? undefined : hooks[route]) ?? latchkey.reconcileHook(route);
    const { isSettled, problem } = await ask(hook, record);
    if (isSettled) return "resolved";
    if (reconcileAttempts < attemptsMax) {
      engine.events.emit({ type: "reconciled", scope, key, outcome: "still-unknown", by: name });
      return "stillUnknown";
    }
    const reason = storableText(
      `after ${reconcileAttempts} questions ${problem ?? "the provider cannot tell"}; first: ${record.reason}`,
      reasonCharactersMax,
    );
    await engine.ask("resolve", () =>
      store.resolve(record, record.fence, { kind: "escalate", reason }, name),
    );
    engine.events.emit({ type: "reconciled", scope, key, outcome: "escalated", by: name });
    return "escalated";
  }

  /** A hook that throws, takes too long or says what cannot be, has not told anything. */
  async function ask(
    hook: ReconcileHook | undefined,
    record: UnknownRecord,
  ): Promise<{ readonly isSettled: boolean; readonly problem?: string }> {
    if (hook === undefined) {
      return { isSettled: false, problem: "nobody is there to ask: the route has no reconcile hook" };
    }
    const { scope, key } = record;
    const late = new AbortController();
    const tooLate = new Promise<never>((_, reject) => {
      late.signal.addEventListener("abort", () => reject(late.signal.reason));
    });
    const timeOut = () => late.abort(new Error(`the reconcile hook took longer than ${askTimeoutMs} ms`));
    const cancel = engine.runtime.setTimer(timeOut, askTimeoutMs);
    try {
      const verdict = await Promise.race([hook(questionOf(record, late.signal)), tooLate]);
      const answer = await latchkey.resolve({ of: { scope, key }, attempt: record.fence, verdict, by: name });
      // Whoever was faster than this worker has settled it as well.
      return { isSettled: answer.kind !== "still-unknown" };
    } catch (error) {
      if (error instanceof StoreError && !(error instanceof UnreadableError)) throw error;
      engine.events.emit({ type: "worker_error", worker: name, error });
      return {
        isSettled: false,
        problem: `the reconcile hook failed (${error instanceof Error ? error.message : error})`,
      };
    } finally {
      cancel();
    }
  }

  return loopOf<ReconcilerCounts>({
    name,
    latchkey,
    async runOnce() {
      const records = await engine.ask("claim", () => store.claimUnknown({ limit: batch, backoff }));
      const counts = { resolved: 0, stillUnknown: 0, escalated: 0 };
      const outcomes = await Promise.allSettled(records.map(settle));
      for (const outcome of outcomes) {
        if (outcome.status === "fulfilled") counts[outcome.value] += 1;
        else engine.events.emit({ type: "worker_error", worker: name, error: outcome.reason });
      }
      return counts;
    },
    isIdle: ({ resolved, stillUnknown, escalated }) => resolved + stillUnknown + escalated < batch,
    intervalMs,
  });
}

const name = "reconciler";
