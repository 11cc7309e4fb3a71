// How long and how often to measure. Small values show within seconds whether a benchmark runs at all.

/** Rounds in which every contender has its turn; what is told is the median. */
export const rounds = numberOf("ROUNDS", 3);

/** Seconds of one turn, after its warm-up. */
export const seconds = numberOf("SECONDS", 0.5);

/**
 * @param {string} name of an environment variable
 * @param {number} otherwise
 */
export function numberOf(name, otherwise) {
  const text = process.env[name];
  if (text === undefined || text === "") return otherwise;
  const number = Number(text);
  if (!(number > 0)) throw new Error(`${name} is "${text}" and must be a number above 0`);
  return number;
}
