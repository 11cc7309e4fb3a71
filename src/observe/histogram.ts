/** What a histogram shows: how many values were at most each bound, and all together. */
export interface HistogramReading {
  /** One for each bound, and one for what is above the last; not cumulative. */
  readonly counts: readonly number[];
  readonly sum: number;
  readonly bounds: readonly number[];
}

export class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array<number>(bounds.length + 1).fill(0);
  }

  record(value: number): void {
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] as number)) at += 1;
    this.#counts[at] = (this.#counts[at] as number) + 1;
    this.#sum += value;
  }

  read(): HistogramReading {
    return { counts: this.#counts, sum: this.#sum, bounds: this.#bounds };
  }
}
