import { rounds as roundsAsked } from "./settings.js";
import { median } from "./statistics.js";

/**
 * Gives each contender its turn in every round, so that a noisy neighbour hits all of them alike. Each round begins with
 * another one, and every other round goes backwards: whoever comes after a heavy contender would otherwise always pay for
 * its checkpoints, and the first and the last would have two turns in a row.
 *
 * @template {string} Name
 * @template Sample
 * @param {Record<Name, () => Promise<Sample>>} contenders
 * @param {{ step(line: string): void }} progress
 * @param {{ rounds?: number }} [options]
 * @returns {Promise<Record<Name, Sample[]>>} those of one round have the same index
 */
export async function interleave(contenders, progress, { rounds = roundsAsked } = {}) {
  const names = /** @type {Name[]} */ (Object.keys(contenders));
  /** @type {Partial<Record<Name, Sample[]>>} */
  const samples = {};
  for (let round = 0; round < rounds; round += 1) {
    const from = round % names.length;
    const order = [...names.slice(from), ...names.slice(0, from)];
    for (const name of round % 2 === 0 ? order : order.reverse()) {
      samples[name] = [...(samples[name] ?? []), await contenders[name]()];
      progress.step(name);
    }
  }
  return /** @type {Record<Name, Sample[]>} */ (samples);
}

/** How many steps of progress `interleave` makes. */
export const turns = (/** @type {number} */ contenders) => contenders * roundsAsked;

/**
 * The median of one measured quantity over all rounds.
 *
 * @template {string} Quantity
 * @param {readonly Readonly<Record<Quantity, number>>[] | undefined} samples
 * @param {Quantity} quantity
 */
export function medianOf(samples, quantity) {
  return median((samples ?? []).map((sample) => sample[quantity]));
}

/**
 * How many times as much of a quantity there was as with something else, in the same round: the median over all rounds.
 * What is measured within two seconds has the same neighbours; medians of turns that are far apart need not.
 *
 * @template {string} Quantity
 * @param {readonly Readonly<Record<Quantity, number>>[]} samples
 * @param {readonly Readonly<Record<Quantity, number>>[]} others
 * @param {Quantity} quantity
 */
export function medianRatio(samples, others, quantity) {
  return median(samples.map((sample, round) => sample[quantity] / (others[round]?.[quantity] ?? Number.NaN)));
}
