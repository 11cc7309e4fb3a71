/**
 * How many calls would be under way at once if none waited for another: how often they come, times how long one takes
 * (Little's law). Both are averages over the last few, so that it follows the hour and not the moment.
 */
export class Traffic {
  #lastAskedAt = Number.NEGATIVE_INFINITY;
  #gapMs = gapMsMax;
  #flightMs = 0;

  asked(at: number): void {
    const gapMs = Math.min(Math.max(gapMsMax, flightsOfPause * this.#flightMs), at - this.#lastAskedAt);
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

/**
 * After a pause, however long, some dozens of calls are enough to see that it is over. It is long against a flight, also of a
 * slow database.
 */
const gapMsMax = 5;
const flightsOfPause = 4;

/** One that got stuck says little of the others. */
const flightMsMax = 20;
