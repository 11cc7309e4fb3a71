import { rounds } from "./settings.js";
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
 * @returns {Promise<Record<Name, Sample[]>>}
 */
export async function interleave(contenders, progress) {
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
export const turns = (/** @type {number} */ contenders) => contenders * rounds;

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
