import type { GridPosition } from "../../test/ops/dashboard.ts";
import { thresholdColour } from "./colours.ts";
import type { Box, PanelData, TimeRange } from "./panel-data.ts";
import { escaped, faint, ground, ink, paper, text } from "./svg.ts";
import { timeSeries } from "./time-series.ts";
import { spelled } from "./units.ts";

const column = 60;
const row = 30;
const gap = 4;
const titleHeight = 30;
const padding = 12;

/** The whole dashboard, each panel where the definition places it. */
export function dashboardSvg(panels: readonly PanelData[], range: TimeRange): string {
  const width = 24 * column + 2 * gap;
  const height = Math.max(...panels.map(({ panel: { gridPos } }) => (gridPos.y + gridPos.h) * row)) + 2 * gap;
  const title = "The Latchkey dashboard during a load run with trouble";
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" ` +
      `aria-label="${escaped(title)}" font-family="system-ui, 'DejaVu Sans', sans-serif">`,
    `<rect width="${width}" height="${height}" fill="${ground}" rx="6"/>`,
    ...panels.flatMap((data) => panelParts(data, boxOf(data.panel.gridPos), range)),
    "</svg>",
    "",
  ].join("\n");
}

function panelParts(data: PanelData, box: Box, range: TimeRange): string[] {
  const { panel } = data;
  if (panel.type === "row") {
    return [text(box.x + 6, box.y + box.height - 8, panel.title, { size: 15, fill: ink, weight: 600 })];
  }
  const inner: Box = {
    x: box.x + padding,
    y: box.y + titleHeight + 4,
    width: box.width - 2 * padding,
    height: box.height - titleHeight - padding,
  };
  return [
    `<rect x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}" fill="${paper}" stroke="${faint}" rx="3"/>`,
    text(box.x + padding, box.y + 20, panel.title, { size: 13, fill: ink, weight: 600 }),
    ...(panel.type === "stat" ? stat(data, inner) : timeSeries(data, inner, range)),
  ];
}

/** The last value, in the colour of the threshold that it has reached. */
function stat({ panel, lines }: PanelData, box: Box): string[] {
  const value = lines[0]?.points.at(-1)?.[1];
  const shown =
    value === undefined ? "No data" : spelled(value, panel.fieldConfig?.defaults ?? { unit: "none" });
  const fill = value === undefined ? ink : thresholdColour(panel, value);
  return [
    text(box.x + box.width / 2, box.y + box.height / 2 + 10, shown, {
      size: 32,
      anchor: "middle",
      fill,
      weight: 600,
    }),
  ];
}

function boxOf({ x, y, w, h }: GridPosition): Box {
  return {
    x: x * column + gap + gap / 2,
    y: y * row + gap + gap / 2,
    width: w * column - gap,
    height: h * row - gap,
  };
}
