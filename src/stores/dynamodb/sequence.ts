/*
 * Audit entries and messages are numbered by the time, so that what is listed by the numbers is listed by it, and by one
 * more than the last where the time alone would not tell two apart, or where the clocks of two processes differ.
 */

export function nextSequence(now: number, last = 0): number {
  return Math.max(Math.floor(now) * numbersPerMs, last + 1);
}

/** Enough for whatever happens within a millisecond, and few enough to be exact for two centuries. */
const numbersPerMs = 1_000;

/** As text that sorts as the number does. */
export function digits(sequence: number): string {
  return String(sequence).padStart(digitCount, "0");
}

/** The number that a text begins with. */
export function sequenceIn(id: string): number {
  return Number(id.slice(0, digitCount));
}

const digitCount = 16;
