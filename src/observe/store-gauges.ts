import type { OutboxCounts } from "../core/outbox.ts";
import type { UnknownCounts } from "../core/store.ts";
import type { Runtime } from "../engine/runtime.ts";
import type { Latchkey } from "../latchkey.ts";

/** What is not known is left out: a gauge that cannot be read has no value. */
export interface StoreReading {
  readonly outbox: OutboxCounts | undefined;
  readonly unknown: UnknownCounts | undefined;
}

const keptMs = 5_000; // Any number of scrapers ask the store no more often than this.
const waitMsMax = 2_000; // A fifth of what Prometheus grants a scrape.

/** What only the store knows, asked for when somebody looks. */
export class StoreGauges {
  readonly #outbox: Asked<OutboxCounts> | undefined;
  readonly #unknown: Asked<UnknownCounts>;

  constructor(latchkey: Latchkey) {
    const { engine, store } = latchkey;
    const { outbox } = store;
    this.#unknown = new Asked(engine.runtime, () => engine.ask("counts", () => store.unknownCounts()));
    this.#outbox = outbox && new Asked(engine.runtime, () => engine.ask("counts", () => outbox.counts()));
  }

  async read(): Promise<StoreReading> {
    const [outbox, unknown] = await Promise.all([this.#outbox?.read(), this.#unknown.read()]);
    return { outbox, unknown };
  }
}

/** One question, asked at most every few seconds and once at a time. Its failure is the engine's to tell. */
class Asked<Answer> {
  readonly #runtime: Runtime;
  readonly #ask: () => Promise<Answer>;
  #answer: Answer | undefined;
  #askedAt = Number.NEGATIVE_INFINITY;
  #asking: Promise<Answer | undefined> | undefined;

  constructor(runtime: Runtime, ask: () => Promise<Answer>) {
    this.#runtime = runtime;
    this.#ask = ask;
  }

  /** Undefined if the store failed, or takes longer than a scraper waits; what comes later serves the next one. */
  async read(): Promise<Answer | undefined> {
    if (this.#asking === undefined && this.#runtime.now() - this.#askedAt < keptMs) return this.#answer;
    this.#asking ??= this.#askNow();
    const asking = this.#asking;
    return new Promise((resolve) => {
      const cancel = this.#runtime.setTimer(() => resolve(undefined), waitMsMax, { background: true });
      asking.then((answer) => {
        cancel();
        resolve(answer);
      });
    });
  }

  async #askNow(): Promise<Answer | undefined> {
    this.#askedAt = this.#runtime.now();
    try {
      this.#answer = await this.#ask();
    } catch {
      this.#answer = undefined;
    } finally {
      this.#asking = undefined;
    }
    return this.#answer;
  }
}
