/**
 * @param {readonly number[]} numbers
 * @param {number} share from 0 to 1
 */
export function percentile(numbers, share) {
  const sorted = Float64Array.from(numbers).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** @param {readonly number[]} numbers */
export function median(numbers) {
  return percentile(numbers, 0.5);
}
