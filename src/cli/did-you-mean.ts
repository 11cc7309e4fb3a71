/** ", did you mean …?" for a word that is nearly one of those that are known; nothing for any other. */
export function didYouMean(word: string, known: readonly string[]): string {
  const [nearest] = known
    .map((candidate) => ({ candidate, distance: distanceOf(word, candidate) }))
    .filter(({ candidate, distance }) => distance <= Math.max(1, candidate.length / 3))
    .sort((a, b) => a.distance - b.distance);
  return nearest === undefined ? "" : ` (did you mean ${nearest.candidate}?)`;
}

/** How many characters have to be inserted, removed, replaced or swapped with their neighbour. */
function distanceOf(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, column) => column)];
  const at = (row: number, column: number) => rows[row]?.[column] ?? Number.POSITIVE_INFINITY;
  for (let row = 1; row <= a.length; row += 1) {
    const costs = [row];
    rows.push(costs);
    for (let column = 1; column <= b.length; column += 1) {
      const isSame = a[row - 1] === b[column - 1];
      const isSwapped = a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      costs.push(
        Math.min(
          at(row - 1, column) + 1,
          at(row, column - 1) + 1,
          at(row - 1, column - 1) + (isSame ? 0 : 1),
          isSwapped ? at(row - 2, column - 2) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
  }
  return at(a.length, b.length);
}
