import type { Runtime } from "../runtime.ts";

/** What the store's clock says, judged by what it said in its answers. */
export class StoreClock {
  readonly #runtime: Runtime;
  #aheadMs: number | undefined;
  #uncertaintyMs = Number.POSITIVE_INFINITY;
  #heardAt = Number.NEGATIVE_INFINITY;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  get isKnown(): boolean {
    return this.#aheadMs !== undefined;
  }

  now(): number {
    return this.#runtime.now() + (this.#aheadMs ?? 0);
  }

  /** The store looked at its clock between `askedAt` and now. An answer that took long says little. */
  heard(storeNow: number, askedAt: number): void {
    const now = this.#runtime.now();
    const uncertaintyMs = (now - askedAt) / 2;
    if (uncertaintyMs > this.#uncertaintyMs && now - this.#heardAt < trustMs) return;
    this.#aheadMs = storeNow - (now + askedAt) / 2;
    this.#uncertaintyMs = uncertaintyMs;
    this.#heardAt = now;
  }
}

/** Clocks drift by less than a hundredth of a percent: a millisecond in this time. */
const trustMs = 10_000;
