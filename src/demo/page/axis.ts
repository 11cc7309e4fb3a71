/** Places moments from left to right. Long stretches in which nothing happens are drawn short. */
export interface Axis {
  x(at: number): number;
  readonly ticks: readonly { readonly x: number; readonly label: string }[];
  /** Where time was left out. */
  readonly breaks: readonly { readonly x: number; readonly label: string }[];
}

const gapMs = 1_500; // Pauses between tries are shorter and belong to the picture; a person's are longer.
const drawnGapMs = 250;
const spanMsMin = 1_000;
const tickSteps = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000];
const tickPixels = 70;

export interface Interval {
  readonly from: number;
  readonly to: number;
}

export function axisOf(intervals: readonly Interval[], width: number): Axis {
  const sorted = [...intervals].sort((one, other) => one.from - other.from);
  const start = sorted[0]?.from ?? 0;
  /** Pieces of real time, and where each begins in drawn time. */
  const pieces: { from: number; to: number; drawnFrom: number }[] = [];
  const gaps: { drawnAt: number; ms: number }[] = [];
  let piece = { from: start, to: start, drawnFrom: 0 };
  for (const { from, to } of sorted) {
    if (from - piece.to > gapMs) {
      pieces.push(piece);
      const drawnTo = piece.drawnFrom + piece.to - piece.from;
      gaps.push({ drawnAt: drawnTo + drawnGapMs / 2, ms: from - piece.to });
      piece = { from, to: from, drawnFrom: drawnTo + drawnGapMs };
    }
    piece.to = Math.max(piece.to, to);
  }
  pieces.push(piece);
  const span = Math.max(spanMsMin, piece.drawnFrom + piece.to - piece.from);
  const scale = width / (span * 1.03); // Some air on the right, for what is marked at the very end.
  const drawnOf = (at: number) => {
    const within = pieces.findLast(({ from }) => from <= at) ?? piece;
    return within.drawnFrom + Math.min(at, within.to) - within.from;
  };
  return {
    x: (at) => drawnOf(at) * scale,
    ticks: ticksOf(pieces, { start, span, scale }),
    breaks: gaps.map(({ drawnAt, ms }) => ({ x: drawnAt * scale, label: seconds(ms) })),
  };
}

function ticksOf(
  pieces: readonly { readonly from: number; readonly to: number; readonly drawnFrom: number }[],
  { start, span, scale }: { readonly start: number; readonly span: number; readonly scale: number },
): { x: number; label: string }[] {
  const step = tickSteps.find((ms) => ms * scale >= tickPixels) ?? 60_000;
  const ticks: { x: number; label: string }[] = [];
  pieces.forEach(({ from, to, drawnFrom }, index) => {
    const end = index === pieces.length - 1 ? from + span - drawnFrom : to;
    for (let at = start + Math.ceil((from - start) / step) * step; at <= end; at += step) {
      ticks.push({ x: (drawnFrom + at - from) * scale, label: seconds(at - start) });
    }
  });
  return ticks;
}

export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(ms < 9_950 ? 1 : 0)} s`;
}
