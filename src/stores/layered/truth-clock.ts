/** This process's own clocks, in milliseconds. */
export interface Clocks {
  /** Runs on evenly, whatever is done to the machine's clock; may stand still while the machine sleeps. */
  steady(): number;
  /** Can be set. */
  wall(): number;
}

export const systemClocks: Clocks = {
  steady: () => performance.now(),
  wall: () => Date.now(),
};

/**
 * What is known of another machine's clock: it said `now` at some moment between asking and being answered. From then on
 * it is somewhere between two bounds, which come apart by as much as two clocks may differ in speed.
 */
export class TruthClock {
  readonly #clocks: Clocks;
  readonly #now: number;
  readonly #askedAt: Moment;
  readonly #heardAt: Moment;

  constructor(clocks: Clocks, sample: { readonly now: number; readonly askedAt: Moment }) {
    this.#clocks = clocks;
    this.#now = sample.now;
    this.#askedAt = sample.askedAt;
    this.#heardAt = momentOf(clocks);
  }

  /** How old the sample may be. After the machine has slept only the wall clock knows, and it may have been set back. */
  ageMs(): number {
    const { steady, wall } = momentOf(this.#clocks);
    return Math.max(steady - this.#askedAt.steady, wall - this.#askedAt.wall);
  }

  /** The truth's clock says no more than this. It told whole milliseconds, so the first one may have been over. */
  latest(): number {
    return Math.ceil(this.#now + 1 + this.ageMs() * (1 + driftMax));
  }

  /** The truth's clock says no less than this. */
  earliest(): number {
    return this.#now + slowest(this.#clocks.steady() - this.#heardAt.steady);
  }
}

export interface Moment {
  readonly steady: number;
  readonly wall: number;
}

export function momentOf(clocks: Clocks): Moment {
  return { steady: clocks.steady(), wall: clocks.wall() };
}

/** After how long on the steady clock `ms` have surely passed on the truth's. */
export function surelyPassedAfter(ms: number): number {
  return ms / (1 - driftMax) + 1;
}

function slowest(ms: number): number {
  return ms * (1 - driftMax);
}

/** A clock that is being set right runs up to 500 ppm too fast or too slow, and both may be. */
const driftMax = 0.001;
