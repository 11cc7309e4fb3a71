/** What somebody probably meant; undefined if nothing is near. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const distances = known.map((one) => ({ one, far: distance(word.toLowerCase(), one.toLowerCase()) }));
  const [best] = distances.sort((a, b) => a.far - b.far);
  if (best !== undefined && best.far <= Math.max(1, Math.floor(word.length / 3))) return best.one;
  // `wait` for waitMs: a name without its unit.
  return word.length < 3 ? undefined : known.find((one) => one.toLowerCase().startsWith(word.toLowerCase()));
}

/** Insertions, deletions, replacements and swapped neighbours that make one word of another. */
function distance(from: string, to: string): number {
  let before: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= to.length; j += 1) {
      const cost = from[i - 1] === to[j - 1] ? 0 : 1;
      let least = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + cost);
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        least = Math.min(least, (before[j - 2] ?? 0) + 1);
      }
      row.push(least);
    }
    before = last;
    last = row;
  }
  return last[to.length] ?? 0;
}
