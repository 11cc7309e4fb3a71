/**
 * How far two samples are apart, from -1 to 1: the chance that a value of the second is above one of the first, less the
 * chance that it is below (Cliff's delta, from the rank sum of Mann and Whitney). It looks at ranks only, so that the
 * pauses of a busy machine, however long, count as one value each.
 */
export function separation(first: readonly number[], second: readonly number[]): number {
  const all = [
    ...first.map((value) => ({ value, isSecond: false })),
    ...second.map((value) => ({ value, isSecond: true })),
  ].sort((a, b) => a.value - b.value);
  let rankSum = 0;
  for (let from = 0; from < all.length; ) {
    let to = from;
    while (to < all.length && all[to]?.value === all[from]?.value) to += 1;
    // Equal values share the mean of their ranks.
    const rank = (from + 1 + to) / 2;
    for (let at = from; at < to; at += 1) if (all[at]?.isSecond) rankSum += rank;
    from = to;
  }
  const pairs = first.length * second.length;
  const above = rankSum - (second.length * (second.length + 1)) / 2;
  return (2 * above) / pairs - 1;
}

export interface Timed {
  readonly isPresent: boolean;
  run(): Promise<unknown>;
}

/**
 * What nobody sees through a network: finding an entry in memory takes some of it, and missing one does not; on a busy
 * machine a little more than a microsecond.
 */
const resolutionNs = 2_000;

/**
 * Runs each of them once, in random order, and says how far those that are present are from those that are not, beyond
 * two microseconds in either direction; 0 if they are not. What else the machine does falls on both alike.
 */
export async function separationOf(
  questions: readonly Timed[],
  random: () => number = Math.random,
): Promise<number> {
  const shuffled = questions.map((question) => ({ question, at: random() })).sort((a, b) => a.at - b.at);
  const absent: number[] = [];
  const present: number[] = [];
  for (const { question } of shuffled) {
    const before = process.hrtime.bigint();
    await question.run();
    const took = Number(process.hrtime.bigint() - before);
    (question.isPresent ? present : absent).push(took);
  }
  const slower = separation(
    absent,
    present.map((took) => took - resolutionNs),
  );
  const faster = -separation(
    absent,
    present.map((took) => took + resolutionNs),
  );
  return Math.max(slower, faster, 0);
}

/** Keeps the processor busy: a timer could not wait for so short a time. */
export function spin(microseconds: number): void {
  const until = process.hrtime.bigint() + BigInt(Math.round(microseconds * 1000));
  while (process.hrtime.bigint() < until);
}
