import type { BriefEntry } from "../core/brief-table.ts";
import type { Settled } from "./outcome.ts";
import type { Runtime } from "./runtime.ts";
import type { ArrivalTrace } from "./tracing.ts";
import type { Arrival, Verdict } from "./verdict.ts";

/**
 * A request that this process is asking the store about, or executing. Its duplicates in the same process join it
 * instead of asking the store again. What joining needs is made only if somebody joins: most requests have no duplicate.
 */
export class Flight implements BriefEntry<Flight> {
  readonly scope: string;
  readonly key: string;
  readonly fingerprint: string;
  /** For those who join to point to. */
  readonly trace: ArrivalTrace | undefined;
  hash = 0;
  nextInBucket: Flight | undefined;
  #verdict: Verdict | undefined;
  #settled: Settled | undefined;
  #verdictWaiters: ((verdict: Verdict) => void)[] | undefined;
  #settledWaiters: ((settled: Settled) => void)[] | undefined;

  constructor({ scope, key, fingerprint, trace }: Arrival) {
    this.scope = scope;
    this.key = key;
    this.fingerprint = fingerprint;
    this.trace = trace;
  }

  /** Whether the store has yet to say what becomes of it. */
  get isUndecided(): boolean {
    return this.#verdict === undefined;
  }

  /** Whether a duplicate that comes now has something to wait for: the store's word, or the end of an execution. */
  get isJoinable(): boolean {
    if (this.#verdict === undefined) return true;
    return this.#verdict.kind === "execute" && this.#settled === undefined;
  }

  decide(verdict: Verdict): void {
    this.#verdict = verdict;
    const waiters = this.#verdictWaiters;
    if (waiters === undefined) return;
    this.#verdictWaiters = undefined;
    for (const tell of waiters) tell(verdict);
  }

  settle(settled: Settled): void {
    this.#settled = settled;
    const waiters = this.#settledWaiters;
    if (waiters === undefined) return;
    this.#settledWaiters = undefined;
    for (const tell of waiters) tell(settled);
  }

  /** What the first request was told to do. */
  verdict(): Promise<Verdict> {
    if (this.#verdict !== undefined) return Promise.resolve(this.#verdict);
    return new Promise((resolve) => {
      this.#verdictWaiters ??= [];
      this.#verdictWaiters.push(resolve);
    });
  }

  /** How its execution ended; undefined if that takes longer than `ms`. */
  settledWithin(runtime: Runtime, ms: number): Promise<Settled | undefined> {
    if (this.#settled !== undefined) return Promise.resolve(this.#settled);
    return new Promise((resolve) => {
      const cancel = runtime.setTimer(() => resolve(undefined), ms);
      this.#settledWaiters ??= [];
      this.#settledWaiters.push((settled) => {
        cancel();
        resolve(settled);
      });
    });
  }
}
