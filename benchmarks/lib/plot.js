// Small plots as SVG, on a light ground of their own so that they can be read on a dark page too.

const width = 760;
const margin = { left: 76, right: 24, top: 56, bottom: 56 };
const palette = ["#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626", "#475569"];
const ink = "#1f2933";
const faint = "#d5dbe1";

/** @typedef {{ label: string, value: number, note?: string, isOurs?: boolean }} PlotBar */

/**
 * Horizontal bars, longest names first to read: what, how much, and a note such as the ratio to somebody else.
 *
 * @param {{ title: string, unit: string, bars: readonly PlotBar[] }} plot
 */
export function barPlot({ title, unit, bars }) {
  const rowHeight = 30;
  const labelWidth = 290;
  const noteWidth = 120;
  const height = margin.top + bars.length * rowHeight + margin.bottom - 12;
  const longest = niceCeiling(Math.max(...bars.map((bar) => bar.value)));
  const room = width - labelWidth - noteWidth - margin.right;
  const bottom = margin.top + bars.length * rowHeight;
  const x = (/** @type {number} */ value) => labelWidth + (value / longest) * room;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => share * longest);
  return frame(height, title, [
    ...ticks.flatMap((tick) => [
      line(x(tick), margin.top - 6, x(tick), bottom),
      text(x(tick), bottom + 16, short(tick), "middle"),
    ]),
    ...bars.flatMap((bar, row) => {
      const y = margin.top + row * rowHeight;
      const colour = bar.isOurs ? palette[0] : "#9aa5b1";
      return [
        text(labelWidth - 10, y + 17, bar.label, "end"),
        `<rect x="${labelWidth}" y="${y + 3}" width="${round(x(bar.value) - labelWidth)}" height="20" rx="2" fill="${colour}"/>`,
        text(x(bar.value) + 8, y + 17, `${short(bar.value)}${bar.note ? ` (${bar.note})` : ""}`, "start"),
      ];
    }),
    text(labelWidth + room / 2, bottom + 36, unit, "middle"),
  ]);
}

/**
 * Series of one kin have one colour, and differ in being dashed or not.
 * @typedef {{ label: string, kin: number, isDashed: boolean, points: readonly { x: number, y: number }[] }} Series
 */

/**
 * Lines over a logarithmic x and y, for quantities that span magnitudes.
 *
 * @param {{ title: string, xLabel: string, yLabel: string, series: readonly Series[] }} plot
 */
export function linePlot({ title, xLabel, yLabel, series }) {
  const height = 400;
  const points = series.flatMap(({ points }) => points);
  const xs = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
  const yTicks = decades(Math.min(...points.map(({ y }) => y)), Math.max(...points.map(({ y }) => y)));
  const x = scale(xs[0] ?? 1, xs.at(-1) ?? 10, margin.left, width - margin.right - 20);
  const y = scale(yTicks[0] ?? 1, yTicks.at(-1) ?? 10, height - margin.bottom, margin.top + 24);
  return frame(height, title, [
    ...yTicks.flatMap((tick) => [
      line(margin.left, y(tick), width - margin.right, y(tick)),
      text(margin.left - 8, y(tick) + 4, short(tick), "end"),
    ]),
    ...xs.flatMap((tick) => [
      line(x(tick), margin.top + 24, x(tick), height - margin.bottom),
      text(x(tick), height - margin.bottom + 18, short(tick), "middle"),
    ]),
    ...series.flatMap(({ label, kin, isDashed, points }, at) => {
      const colour = palette[kin % palette.length];
      const stroke = `stroke="${colour}" stroke-width="2.5"${isDashed ? ' stroke-dasharray="7 5"' : ""}`;
      const path = points.map((point) => `${round(x(point.x))},${round(y(point.y))}`);
      const legend = margin.left + at * ((width - margin.left) / series.length);
      return [
        `<polyline points="${path.join(" ")}" fill="none" ${stroke}/>`,
        ...path.map((point) => {
          const [cx, cy] = point.split(",");
          return `<circle cx="${cx}" cy="${cy}" r="4" fill="${colour}"/>`;
        }),
        `<line x1="${round(legend)}" y1="${margin.top - 3}" x2="${round(legend + 30)}" y2="${margin.top - 3}" ${stroke}/>`,
        text(legend + 38, margin.top + 2, label, "start"),
      ];
    }),
    text((margin.left + width - margin.right) / 2, height - 14, xLabel, "middle"),
    `<text x="18" y="${height / 2}" transform="rotate(-90 18 ${height / 2})" text-anchor="middle">${escaped(yLabel)}</text>`,
  ]);
}

/**
 * @param {number} height
 * @param {string} title
 * @param {readonly string[]} parts
 */
function frame(height, title, parts) {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escaped(title)}" font-family="system-ui, sans-serif" font-size="13" fill="${ink}">`,
    `<rect width="${width}" height="${height}" fill="#fbfcfd" rx="6"/>`,
    `<text x="${width / 2}" y="28" text-anchor="middle" font-size="16" font-weight="600">${escaped(title)}</text>`,
    ...parts,
    "</svg>",
    "",
  ].join("\n");
}

/**
 * @param {number} x
 * @param {number} y
 * @param {string} content
 * @param {"start" | "middle" | "end"} anchor
 */
function text(x, y, content, anchor) {
  return `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escaped(content)}</text>`;
}

/**
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 */
function line(x1, y1, x2, y2) {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" stroke="${faint}"/>`;
}

/**
 * A logarithmic scale.
 *
 * @param {number} from
 * @param {number} to
 * @param {number} start
 * @param {number} end
 */
function scale(from, to, start, end) {
  const span = Math.log(to / from) || 1;
  return (/** @type {number} */ value) => start + (Math.log(value / from) / span) * (end - start);
}

/**
 * One, two and five of every magnitude from below the least to above the most.
 *
 * @param {number} least
 * @param {number} most
 */
function decades(least, most) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power += 1) {
    for (const digit of [1, 2, 5]) ticks.push(digit * 10 ** power);
  }
  const from = ticks.findLastIndex((tick) => tick <= least);
  const to = ticks.findIndex((tick) => tick >= most);
  return ticks.slice(Math.max(0, from), to === -1 ? undefined : Math.max(to, from + 1) + 1);
}

/** @param {number} number */
function niceCeiling(number) {
  const magnitude = 10 ** Math.floor(Math.log10(number || 1));
  const digit = [1, 2, 4, 5, 8, 10].find((step) => step * magnitude >= number) ?? 10;
  return digit * magnitude;
}

/** @param {number} number */
function short(number) {
  if (number >= 100) return Math.round(number).toLocaleString("en");
  return String(Number(number.toPrecision(3)));
}

/** @param {number} number */
function round(number) {
  return Math.round(number * 10) / 10;
}

/** @param {string} content */
function escaped(content) {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
