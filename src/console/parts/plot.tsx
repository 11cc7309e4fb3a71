import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { ActivitySeries, ActivityView } from "../../admin/views.ts";
import { colourOf, onColoursChanged } from "../colours.ts";
import { absolute, seriesWords } from "../words.ts";
import { coarser, perSecond, stacked, total } from "./plot-data.ts";

interface PlotProps {
  readonly title: string;
  readonly names: readonly ActivitySeries[];
  readonly activity: ActivityView | undefined;
}

const heightPx = 190;
const stepsMax = 120; // Some pixels for each, on a plot that is half a screen wide.

/**
 * Rates over time, one on top of the other, so that the height is all of them. The plot is made once; new numbers, another
 * theme and another width are told to it.
 */
export function Plot({ title, names, activity: told }: PlotProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const [hidden, setHidden] = useState<ReadonlySet<ActivitySeries>>(new Set());
  const [pointed, setPointed] = useState<number>();

  useEffect(() => {
    const { current } = frame;
    if (current === null) return;
    const made = new uPlot(optionsOf(current, names, setPointed), emptyData(names), current);
    plot.current = made;
    const resizing = new ResizeObserver(() => made.setSize({ width: current.clientWidth, height: heightPx }));
    resizing.observe(current);
    const stop = onColoursChanged(() => made.redraw(false));
    return () => {
      stop();
      resizing.disconnect();
      made.destroy();
    };
  }, [names]);

  const activity = useMemo(() => (told === undefined ? undefined : coarser(told, stepsMax)), [told]);
  const data = useMemo(
    () => (activity === undefined ? undefined : stacked(activity, names, hidden)),
    [activity, names, hidden],
  );
  useEffect(() => {
    if (data !== undefined) plot.current?.setData(data);
  }, [data]);

  const toggle = (name: ActivitySeries) =>
    setHidden((before) => {
      const after = new Set(before);
      if (!after.delete(name)) after.add(name);
      return after;
    });
  const isEmpty = activity !== undefined && names.every((name) => total(activity, name) === 0);
  const at =
    activity === undefined || pointed === undefined ? undefined : activity.from + pointed * activity.stepMs;
  return (
    <figure class="plot" aria-label={title}>
      <figcaption>
        <h3>{title}</h3>
        <span class="muted">{at === undefined ? "per second, UTC" : absolute(at).slice(0, 19)}</span>
      </figcaption>
      <div class="plot-frame">
        <div ref={frame} class="plot-canvas" aria-hidden="true" />
        {isEmpty && <p class="plot-empty">Nothing came in during this time.</p>}
      </div>
      <ul class="legend">
        {names.map((name) => (
          <li key={name}>
            <button
              type="button"
              class={`legend-entry series-${name}`}
              aria-pressed={!hidden.has(name)}
              title={hidden.has(name) ? `Show ${seriesWords[name]}` : `Hide ${seriesWords[name]}`}
              onClick={() => toggle(name)}
            >
              <span class="swatch" aria-hidden="true" />
              {seriesWords[name]}
              <span class="number">{legendNumber(activity, name, pointed)}</span>
            </button>
          </li>
        ))}
      </ul>
    </figure>
  );
}

/** All of the window, as a count; or the rate that is pointed at. */
function legendNumber(
  activity: ActivityView | undefined,
  name: ActivitySeries,
  pointed: number | undefined,
): string {
  if (activity === undefined) return "–";
  if (pointed === undefined) return total(activity, name).toLocaleString("en");
  return `${rateText(perSecond(activity, name, pointed))}/s`;
}

function rateText(rate: number): string {
  if (rate === 0) return "0";
  return rate >= 10 ? String(Math.round(rate)) : rate.toPrecision(2);
}

function emptyData(names: readonly ActivitySeries[]): uPlot.AlignedData {
  return [[], ...names.map(() => [])];
}

function optionsOf(
  frame: HTMLElement,
  names: readonly ActivitySeries[],
  point: (index: number | undefined) => void,
): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: () => colourOf(frame, "--muted"),
    grid: { stroke: () => colourOf(frame, "--line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    width: frame.clientWidth,
    height: heightPx,
    legend: { show: false },
    // As every other time on the page, wherever the browser is.
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] } },
    axes: [
      { ...axis, space: 70, values: [...timeFormats] },
      { ...axis, size: 44, space: 34, values: (_, ticks) => ticks.map((tick) => rateText(tick)) },
    ],
    series: [
      {},
      // The first of the names is the lowest of the stack, so what is drawn last lies in front of what is higher.
      ...names.toReversed().map((name) => ({
        stroke: () => colourOf(frame, `--series-${name}`),
        fill: () => colourOf(frame, `--series-${name}-area`),
        width: 1,
        ...stepped,
        points: { show: false },
      })),
    ],
    hooks: {
      setCursor: [({ cursor }) => point(cursor.idx ?? undefined)],
    },
  };
}

/** Each step is a count over that time, so it is level from its beginning to its end. */
const paths = uPlot.paths.stepped?.({ align: 1 });
const stepped = paths === undefined ? {} : { paths };

/** Hours and minutes, as on every clock on call; the date where a day begins. */
const timeFormats = [
  [3600 * 24, "{MMM} {D}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{MMM} {D}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{MMM} {D}", null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
];
