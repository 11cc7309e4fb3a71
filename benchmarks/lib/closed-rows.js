import { ms, times, whole } from "./answer.js";
import { medianOf, medianRatio } from "./rounds.js";

/**
 * A row for each contender and number of callers: how much it did, how long each took, and how many times that is ours.
 *
 * @param {readonly { contender: string, callers: number }[]} plan
 * @param {Record<string, import("./load.js").ClosedSample[]>} samples by `contender: callers`
 * @param {string} ours
 * @returns {string[][]}
 */
export function closedRows(plan, samples, ours) {
  return plan.map(({ contender, callers }) => {
    const sample = samples[`${contender}: ${callers}`];
    const rate = medianOf(sample, "rate");
    return [
      contender,
      String(callers),
      whole(rate),
      ms(medianOf(sample, "p50")),
      ms(medianOf(sample, "p99")),
      `${whole(medianOf(sample, "cpu"))} µs`,
      contender === ours ? "" : times(timesAsFast(samples, { ours, contender, callers })),
    ];
  });
}

/**
 * Each turn next to that of the same round: this machine may be a third slower in the next one.
 *
 * @param {Record<string, import("./load.js").ClosedSample[]>} samples by `contender: callers`
 * @param {{ ours: string, contender: string, callers: number }} who
 */
export function timesAsFast(samples, { ours, contender, callers }) {
  return medianRatio(samples[`${ours}: ${callers}`] ?? [], samples[`${contender}: ${callers}`] ?? [], "rate");
}
