import type { BustGeneration, BustListener } from "../../core/store.ts";
import { type Clocks, momentOf, TruthClock } from "./truth-clock.ts";

/** What has to be known of the truth before anything else may answer in its place. */
export interface Known {
  /** What was kept under another one does not count. */
  readonly generation: string;
  readonly clock: TruthClock;
}

/**
 * Knows the truth's generation for as long as every bust is heard, and its clock for as long as a sample of it is young.
 * What is read while something may have been missed is read again.
 */
export class Standing implements BustListener {
  readonly #read: () => Promise<BustGeneration>;
  readonly #clocks: Clocks;
  #known: Known | undefined;
  #isListening = false;
  /** Grows with everything that makes an answer that is on its way worthless. */
  #epoch = 0;
  /** Until then, on the steady clock, nobody reads: somebody does already, or the truth cannot be asked. */
  #readAgainAt = 0;
  #failures = 0;

  constructor(read: () => Promise<BustGeneration>, clocks: Clocks) {
    this.#read = read;
    this.#clocks = clocks;
  }

  /** Undefined while it is not known, and only the truth may answer. */
  current(): Known | undefined {
    if (!this.#isListening) return undefined;
    const known = this.#known;
    const ageMs = known?.clock.ageMs() ?? Number.POSITIVE_INFINITY;
    if (ageMs > refreshAfterMs) void this.#refresh();
    return ageMs > usableMs ? undefined : known;
  }

  listening(): void {
    this.#isListening = true;
    this.busted();
  }

  busted(): void {
    this.#forget();
    void this.#refresh();
  }

  interrupted(): void {
    this.#isListening = false;
    this.#forget();
  }

  #warn(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    process.emitWarning(
      `Redis is not used in front of the store, because the store does not tell the generation of its answers: ${reason}`,
      { code: "LATCHKEY_LAYERED" },
    );
  }

  #forget(): void {
    this.#epoch += 1;
    this.#known = undefined;
  }

  async #refresh(): Promise<void> {
    const askedAt = momentOf(this.#clocks);
    if (askedAt.steady < this.#readAgainAt) return;
    const epoch = this.#epoch;
    // An answer that does not come must not be waited for for ever.
    this.#readAgainAt = askedAt.steady + patienceMs;
    try {
      const { generation, now } = await this.#read();
      this.#readAgainAt = 0;
      this.#failures = 0;
      if (epoch === this.#epoch) {
        this.#known = { generation, clock: new TruthClock(this.#clocks, { now, askedAt }) };
      } else if (this.#isListening) await this.#refresh();
    } catch (error) {
      // The truth says so itself to whoever asks it for more than this, unless only this is what it cannot tell.
      this.#readAgainAt = this.#clocks.steady() + retryMs;
      this.#failures += 1;
      if (this.#failures === failuresToWarn) this.#warn(error);
    }
  }
}

/** Some seconds: a restart of the truth is no news. */
const failuresToWarn = 20;

/** Two clocks come apart by some milliseconds in that time, and one statement costs nothing at this rate. */
const refreshAfterMs = 5_000;
/** After that the truth's clock may have been set, and nobody has looked. */
const usableMs = 15_000;
const patienceMs = 5_000;
const retryMs = 250;
