import { useEffect, useRef, useState } from "preact/hooks";
import type { PaymentView } from "../trace.ts";
import { type Axis, axisOf } from "./axis.ts";
import { type Bar, type Scene, sceneOf } from "./bars.ts";

const headPx = 22; // The name of a lane.
const gapPx = 10; // Between lanes.
const footPx = 22; // The time.
const labelPx = 6.4; // What a character of a label takes, about.
const emptyLanePx = 26;
const coinPx = 10; // The radius, at most.
const labelledMax = 14; // More bars than this are a pattern to look at, and not a text to read.

/** The three parties from top to bottom, time from left to right. */
export function Picture({ payment }: { readonly payment: PaymentView }) {
  const [frame, width] = useWidth();
  const now = useNow(payment);
  const scene = sceneOf(payment.entries, now);
  const isEmpty = scene.requests.length === 0;
  return (
    <div class="picture" ref={frame}>
      {isEmpty || width === 0 ? null : (
        <Lanes scene={scene} width={width} isProtected={payment.isProtected} />
      )}
    </div>
  );
}

function Lanes(props: { readonly scene: Scene; readonly width: number; readonly isProtected: boolean }) {
  const { scene, width, isProtected } = props;
  const intervals = [
    ...scene.requests,
    ...scene.handlers,
    ...scene.calls,
    ...scene.outages,
    ...scene.questions.map((at) => ({ from: at, to: at })),
  ];
  const axis = axisOf(intervals, width);
  const client = lane(0, scene.requests);
  const api = lane(client.bottom, scene.handlers);
  const provider = lane(api.bottom, scene.calls);
  const height = provider.bottom + footPx - gapPx;
  const barOf = (bars: readonly Bar[], id: number) => bars.find((bar) => bar.id === id);
  return (
    <svg
      width={width}
      height={height}
      role="img"
      aria-label={`${scene.requests.length} requests from the app, ${scene.handlers.length} executed by the API, ${scene.charges.length} charges by the provider. What happened is told below in words.`}
    >
      <Grid axis={axis} height={height} />
      {[client, api, provider].map(({ top, bottom }) => (
        <rect key={top} class="lane" x={0} y={top} width={width} height={bottom - top - gapPx / 2} rx={6} />
      ))}
      {scene.outages.map(({ from, to }) => (
        <g key={from} class="outage">
          <rect
            x={axis.x(from)}
            y={api.top + headPx}
            width={Math.max(2, axis.x(to) - axis.x(from))}
            height={api.bottom - gapPx - api.top - headPx}
          />
          <text x={axis.x(from) + 6} y={api.bottom - gapPx - 8}>
            {axis.x(to) - axis.x(from) > 120 ? "✕ killed, restarting" : "✕"}
          </text>
        </g>
      ))}
      {wired(scene.handlers).map((handler) => {
        const request = barOf(scene.requests, handler.id);
        if (request === undefined) return null;
        const x = axis.x(handler.from);
        return (
          <line
            key={handler.id}
            class="wire"
            x1={x}
            x2={x}
            y1={client.y(request) + client.barPx}
            y2={api.y(handler)}
          />
        );
      })}
      {wired(scene.calls).map((call) => {
        const x = axis.x(call.from);
        return (
          <line key={call.id} class="wire" x1={x} x2={x} y1={api.bottom - gapPx} y2={provider.y(call)} />
        );
      })}
      {scene.questions.map((at) => (
        <g key={at} class="question">
          <line x1={axis.x(at)} x2={axis.x(at)} y1={api.top + headPx} y2={provider.top + headPx + 12} />
          <circle cx={axis.x(at)} cy={provider.top + headPx + 12} r={8} />
          <text x={axis.x(at)} y={provider.top + headPx + 16} text-anchor="middle">
            ?
          </text>
          {axis.x(at) + 130 > width ? null : (
            <text class="beside" x={axis.x(at) + 13} y={provider.top + headPx + 16}>
              the reconciler asks
            </text>
          )}
        </g>
      ))}
      <Bars bars={scene.requests} lane={client} axis={axis} width={width} />
      <Bars bars={scene.handlers} lane={api} axis={axis} width={width} />
      <Bars bars={scene.calls} lane={provider} axis={axis} width={width} tailPx={coinPx} />
      {scene.charges.map(({ at, call }, index) => {
        const bar = barOf(scene.calls, call);
        if (bar === undefined) return null;
        return (
          <Coin
            key={call}
            x={axis.x(at)}
            y={provider.y(bar) + provider.barPx / 2}
            lane={provider}
            isFirst={index === 0}
          />
        );
      })}
      <LaneName name="Customer's app" lane={client} />
      <LaneName
        name={isProtected ? "Payments API, behind Latchkey" : "Payments API, unprotected"}
        lane={api}
      />
      <LaneName name="Payment provider" lane={provider} />
    </svg>
  );
}

interface Lane {
  readonly top: number;
  readonly bottom: number;
  readonly barPx: number;
  y(bar: Bar): number;
}

/** Which bars are joined with what caused them: where there are many, nobody could follow the lines. */
function wired(bars: readonly Bar[]): readonly Bar[] {
  return bars.length > labelledMax ? [] : bars;
}

/** Thinner bars where there are many, so that fifty requests still fit. */
function lane(top: number, bars: readonly Bar[]): Lane {
  const rows = Math.max(0, ...bars.map(({ row }) => row + 1));
  const barPx = rows <= 4 ? 22 : rows <= 10 ? 13 : 6;
  const rowPx = barPx + (barPx > 6 ? 4 : 2);
  const bottom = top + headPx + Math.max(emptyLanePx, rows * rowPx) + gapPx;
  return { top, bottom, barPx, y: ({ row }) => top + headPx + row * rowPx };
}

/** Drawn last, so that nothing crosses it. */
function LaneName({ name, lane: { top } }: { readonly name: string; readonly lane: Lane }) {
  return (
    <text class="lane-name" x={8} y={top + 15}>
      {name}
    </text>
  );
}

function Grid({ axis, height }: { readonly axis: Axis; readonly height: number }) {
  return (
    <g class="grid">
      {axis.ticks.map(({ x, label }) => (
        <g key={x}>
          <line x1={x} x2={x} y1={0} y2={height - footPx + 4} />
          <text x={x} y={height - 6} text-anchor={x < 10 ? "start" : "middle"}>
            {label}
          </text>
        </g>
      ))}
      {axis.breaks.map(({ x, label }) => (
        <g key={x} class="break">
          <line x1={x} x2={x} y1={0} y2={height - footPx + 4} />
          <title>{label} in which nothing happened</title>
        </g>
      ))}
    </g>
  );
}

function Bars(props: {
  readonly bars: readonly Bar[];
  readonly lane: Lane;
  readonly axis: Axis;
  readonly width: number;
  /** What is drawn at the end of a bar, and must not be written over. */
  readonly tailPx?: number;
}) {
  const { bars, lane: at, axis, width, tailPx = 0 } = props;
  return (
    <g>
      {bars.map((bar) => {
        const x = axis.x(bar.from);
        const barWidth = Math.max(4, axis.x(bar.to) - x);
        const y = at.y(bar);
        const textPx = bar.label.length * labelPx + 10 + tailPx;
        const others = bars.filter(({ row, id }) => row === bar.row && id !== bar.id);
        const freeFrom = Math.max(
          0,
          ...others.filter(({ to }) => to <= bar.from).map(({ to }) => axis.x(to)),
        );
        const freeTo = Math.min(
          width,
          ...others.filter(({ from }) => from > bar.from).map(({ from }) => axis.x(from)),
        );
        const place =
          bars.length > labelledMax ? "nowhere" : placeOf({ x, barWidth, textPx, freeFrom, freeTo });
        return (
          <g key={bar.id} class={`bar ${bar.tone}${bar.isOpen ? " open" : ""}`}>
            <rect x={x} y={y} width={barWidth} height={at.barPx} rx={Math.min(4, at.barPx / 3)}>
              <title>{`${bar.label}, ${bar.to - bar.from} ms`}</title>
            </rect>
            {place === "nowhere" ? null : (
              <text
                class={place === "inside" ? "inside" : "beside"}
                x={place === "inside" ? x + 6 : place === "right" ? x + barWidth + tailPx + 5 : x - 5}
                y={y + at.barPx / 2 + 4}
                text-anchor={place === "left" ? "end" : "start"}
              >
                {bar.label}
              </text>
            )}
          </g>
        );
      })}
    </g>
  );
}

function placeOf(room: {
  readonly x: number;
  readonly barWidth: number;
  readonly textPx: number;
  readonly freeFrom: number;
  readonly freeTo: number;
}): "inside" | "right" | "left" | "nowhere" {
  const { x, barWidth, textPx, freeFrom, freeTo } = room;
  if (barWidth >= textPx) return "inside";
  if (x + barWidth + textPx < freeTo) return "right";
  return x - textPx > freeFrom ? "left" : "nowhere";
}

function Coin(props: {
  readonly x: number;
  readonly y: number;
  readonly lane: Lane;
  readonly isFirst: boolean;
}) {
  const { x, y, lane: at, isFirst } = props;
  const r = Math.max(4, Math.min(coinPx, at.barPx / 2));
  return (
    <g class={isFirst ? "coin" : "coin again"}>
      <circle cx={x} cy={y} r={r} />
      {r < 6 ? null : (
        <text x={x} y={y + r * 0.42} text-anchor="middle">
          €
        </text>
      )}
    </g>
  );
}

function useWidth() {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [frame, width] as const;
}

const tickMs = 50;

/** The time, while something is under way; afterwards the picture stands still. */
function useNow({ entries }: PaymentView): number {
  const [now, setNow] = useState(Date.now);
  const { requests, handlers, calls, outages } = sceneOf(entries, now);
  const isRunning = [requests, handlers, calls, outages].some((bars) => bars.some(({ isOpen }) => isOpen));
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => setNow(Date.now()), tickMs);
    return () => clearInterval(timer);
  }, [isRunning]);
  return now;
}
