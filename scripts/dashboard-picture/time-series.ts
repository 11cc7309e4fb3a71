import type { FieldDefaults, Panel } from "../../test/ops/dashboard.ts";
import { colourOf } from "./colours.ts";
import type { Box, Line, PanelData, Point, TimeRange } from "./panel-data.ts";
import { faint, line, round, text, widthOf } from "./svg.ts";
import { spelled, ticksTo } from "./units.ts";

const legendRow = 16;
const legendSize = 11;
const gapSecondsMax = 1.5; // Prometheus had an answer for every second, unless there was none.
const timeStepSeconds = 15;

/** Lines or stacked areas over time, with axes and a legend, in a box below the panel's title. */
export function timeSeries({ panel, lines }: PanelData, box: Box, range: TimeRange): string[] {
  const defaults = panel.fieldConfig?.defaults ?? { unit: "none" };
  const isStacked = defaults.custom?.stacking.mode === "normal";
  const legend = legendOf(panel, lines, box);
  const drawn = isStacked ? stacked(lines) : lines;
  const highest = Math.max(0, ...drawn.flatMap(({ points }) => points.map(([, value]) => value)));
  const ticks = ticksTo(defaults.max ?? highest, { isWhole: defaults.unit === "none" });
  const labels = ticks.map((tick) => spelled(tick, defaults));
  const left = box.x + 10 + Math.max(...labels.map((label) => widthOf(label, legendSize)));
  const plot: Box = {
    x: left,
    y: box.y,
    width: box.x + box.width - left,
    height: box.height - legend.height - 18,
  };
  const scale = scaleOf(plot, range, ticks.at(-1) ?? 1);
  const bottom = plot.y + plot.height;
  return [
    ...ticks.flatMap((tick, index) => [
      line(plot.x, scale.y(tick), plot.x + plot.width, scale.y(tick)),
      text(plot.x - 6, scale.y(tick) + 4, labels[index] ?? "", { anchor: "end" }),
    ]),
    ...timeTicks(range).flatMap((seconds) => [
      line(scale.x(range.start + seconds), plot.y, scale.x(range.start + seconds), bottom, faint),
      text(scale.x(range.start + seconds), bottom + 14, clock(seconds), { anchor: "middle", size: 10 }),
    ]),
    ...(isStacked ? areas(panel, drawn, scale) : strokes(panel, drawn, scale, defaults)),
    ...legend.parts,
    ...(lines.length === 0
      ? [text(plot.x + plot.width / 2, plot.y + plot.height / 2, "No data", { anchor: "middle", size: 13 })]
      : []),
  ];
}

interface Scale {
  x(seconds: number): number;
  y(value: number): number;
}

function scaleOf(plot: Box, { start, end }: TimeRange, top: number): Scale {
  return {
    x: (seconds) => plot.x + ((seconds - start) / (end - start)) * plot.width,
    y: (value) => plot.y + plot.height * (1 - Math.min(value, top) / top),
  };
}

function strokes(panel: Panel, lines: readonly Line[], scale: Scale, { custom }: FieldDefaults): string[] {
  const isStep = custom?.lineInterpolation === "stepAfter";
  return lines.flatMap(({ name, points }, index) =>
    withoutGaps(points).map((part) => {
      const corners = part.flatMap(([seconds, value], at) => {
        const before = part[at - 1];
        const corner = `${round(scale.x(seconds))},${round(scale.y(value))}`;
        return isStep && before !== undefined
          ? [`${round(scale.x(seconds))},${round(scale.y(before[1]))}`, corner]
          : [corner];
      });
      const stroke = `stroke="${colourOf(panel, name, index)}" stroke-width="1.6" stroke-linejoin="round"`;
      return `<polyline points="${corners.join(" ")}" fill="none" ${stroke}/>`;
    }),
  );
}

/** The lines one upon another: each is what it says and all below it. */
function stacked(lines: readonly Line[]): Line[] {
  const totals = new Map<number, number>();
  const times = [...new Set(lines.flatMap(({ points }) => points.map(([seconds]) => seconds)))].sort(
    (a, b) => a - b,
  );
  return lines.map(({ name, points }) => {
    const values = new Map(points);
    const raised = times.map((seconds): Point => {
      const total = (totals.get(seconds) ?? 0) + (values.get(seconds) ?? 0);
      totals.set(seconds, total);
      return [seconds, total];
    });
    return { name, points: raised };
  });
}

function areas(panel: Panel, lines: readonly Line[], scale: Scale): string[] {
  return lines.map(({ name, points }, index) => {
    const below = lines[index - 1]?.points ?? points.map(([seconds]): Point => [seconds, 0]);
    const outline = [...points, ...below.toReversed()].map(
      ([seconds, value]) => `${round(scale.x(seconds))},${round(scale.y(value))}`,
    );
    return `<polygon points="${outline.join(" ")}" fill="${colourOf(panel, name, index)}" fill-opacity="0.75"/>`;
  });
}

/** Where there was no answer there is no line. */
function withoutGaps(points: readonly Point[]): Point[][] {
  const parts: Point[][] = [];
  let last = Number.NEGATIVE_INFINITY;
  for (const point of points) {
    if (point[0] - last > gapSecondsMax) parts.push([]);
    parts.at(-1)?.push(point);
    last = point[0];
  }
  return parts;
}

/** Rows of coloured names at the bottom of the box, as many as they need. */
function legendOf(panel: Panel, lines: readonly Line[], box: Box): { parts: string[]; height: number } {
  const rows: { name: string; index: number; x: number }[][] = [[]];
  let x = 0;
  for (const [index, { name }] of lines.entries()) {
    const width = 26 + widthOf(name, legendSize);
    if (x > 0 && x + width > box.width) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1)?.push({ name, index, x });
    x += width;
  }
  const height = rows.length * legendRow;
  const parts = rows.flatMap((row, at) =>
    row.flatMap(({ name, index, x: offset }) => {
      const y = box.y + box.height - height + at * legendRow + 12;
      const colour = colourOf(panel, name, index);
      return [
        `<rect x="${round(box.x + offset)}" y="${round(y - 6)}" width="12" height="4" rx="2" fill="${colour}"/>`,
        text(box.x + offset + 16, y, name, { size: legendSize }),
      ];
    }),
  );
  return { parts, height };
}

function timeTicks({ start, end }: TimeRange): number[] {
  return Array.from(
    { length: Math.floor((end - start) / timeStepSeconds) + 1 },
    (_, index) => index * timeStepSeconds,
  );
}

function clock(seconds: number): string {
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
