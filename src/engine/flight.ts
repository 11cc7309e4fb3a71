import type { Settled } from "./execution.ts";
import type { Runtime } from "./runtime.ts";
import type { Verdict } from "./verdict.ts";

/**
 * A request that this process is asking the store about, or executing. Its duplicates in the same process join it
 * instead of asking the store again. The promises are made only if somebody joins: most requests have no duplicate.
 */
export class Flight {
  readonly fingerprint: string;
  #verdict: Verdict | undefined;
  #settled: Settled | undefined;
  #verdictWaiters: ((verdict: Verdict) => void)[] = [];
  #settledWaiters: ((settled: Settled) => void)[] = [];

  constructor(fingerprint: string) {
    this.fingerprint = fingerprint;
  }

  /** Whether the store has yet to say what becomes of it. */
  get isUndecided(): boolean {
    return this.#verdict === undefined;
  }

  decide(verdict: Verdict): void {
    this.#verdict = verdict;
    for (const tell of this.#verdictWaiters.splice(0)) tell(verdict);
  }

  settle(settled: Settled): void {
    this.#settled = settled;
    for (const tell of this.#settledWaiters.splice(0)) tell(settled);
  }

  /** What the first request was told to do. */
  verdict(): Promise<Verdict> {
    if (this.#verdict !== undefined) return Promise.resolve(this.#verdict);
    return new Promise((resolve) => this.#verdictWaiters.push(resolve));
  }

  /** How its execution ended; undefined if that takes longer than `ms`. */
  settledWithin(runtime: Runtime, ms: number): Promise<Settled | undefined> {
    if (this.#settled !== undefined) return Promise.resolve(this.#settled);
    return new Promise((resolve) => {
      const cancel = runtime.setTimer(() => resolve(undefined), ms);
      this.#settledWaiters.push((settled) => {
        cancel();
        resolve(settled);
      });
    });
  }
}
