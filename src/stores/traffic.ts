/**
 * How many calls would be under way at once if none waited for another: how often they come, times how long one takes
 * (Little's law). Both are averages over the last few, so that it follows the hour and not the moment.
 */
export class Traffic {
  #lastAskedAt = Number.NEGATIVE_INFINITY;
  #gapMs = gapMsMax;
  #flightMs = 0;

  asked(at: number): void {
    const gapMs = Math.min(gapMsMax, at - this.#lastAskedAt);
    this.#lastAskedAt = at;
    this.#gapMs += (gapMs - this.#gapMs) / callsOfAverage;
  }

  landed(flightMs: number): void {
    this.#flightMs += (Math.min(flightMs, flightMsMax) - this.#flightMs) / flightsOfAverage;
  }

  get callsAtOnce(): number {
    return this.#flightMs / this.#gapMs;
  }
}

/** As many as make a good guess at a rate whose gaps are random, and come within a moment where it matters. */
const callsOfAverage = 16;
const flightsOfAverage = 8;

/** After a pause, the first dozens of calls are enough to see that it is over; and one that got stuck says nothing of the others. */
const gapMsMax = 5;
const flightMsMax = 20;
