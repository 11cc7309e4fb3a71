import { useCallback, useState } from "preact/hooks";
import type { ActivitySeries, StatsView } from "../../admin/views.ts";
import { useConsole } from "../context.ts";
import { useLoaded } from "../loading.ts";
import { LiveEvents } from "../parts/live-events.tsx";
import { Plot } from "../parts/plot.tsx";
import { Processes } from "../parts/processes.tsx";
import { Trouble } from "../parts/trouble.tsx";
import { address, type Route } from "../route.ts";
import { counted, duration } from "../words.ts";

const windows = ["15m", "1h", "6h", "24h"] as const;
const activityEveryMs = 5_000; // Processes tell of themselves every few seconds, so asking more often shows nothing new.

const answers: readonly ActivitySeries[] = [
  "executed",
  "replayed",
  "inProgress",
  "unknown",
  "misused",
  "refused",
  "limited",
  "storeDown",
];
const outcomes: readonly ActivitySeries[] = ["completed", "failedRetryable", "suspended"];

export function Overview({ route, stats }: { readonly route: Route; readonly stats: StatsView | undefined }) {
  const { api } = useConsole();
  const window = windows.find((name) => name === route.query.get("window")) ?? "1h";
  const load = useCallback((signal: AbortSignal) => api.activity(window, signal), [api, window]);
  const { data: activity, error, reload } = useLoaded(load, activityEveryMs);
  // While another window is loaded the last one stays, so that the plots do not blink.
  const [shown, setShown] = useState(activity);
  if (activity !== undefined && activity !== shown) setShown(activity);
  return (
    <>
      <h1 class="unseen">Overview</h1>
      {stats !== undefined && <Breaker store={stats.store} />}
      <Tiles stats={stats} />
      <section aria-labelledby="over-time">
        <div class="section-head">
          <h2 id="over-time">Over time</h2>
          <nav class="choices" aria-label="Time window">
            {windows.map((name) => (
              <a
                key={name}
                href={address("overview", { window: name })}
                aria-current={name === window ? "true" : undefined}
              >
                {name}
              </a>
            ))}
          </nav>
        </div>
        <Trouble error={error} retry={reload} />
        <div class="columns">
          <Plot title="What requests came to" names={answers} activity={shown} />
          <Plot title="How executions ended" names={outcomes} activity={shown} />
        </div>
      </section>
      <div class="columns">
        <LiveEvents />
        <Processes processes={stats?.processes} />
      </div>
    </>
  );
}

/** While the breaker is not closed, nothing else on this page matters as much. */
function Breaker({ store }: { readonly store: StatsView["store"] }) {
  if (store.breaker === "closed" || store.breaker === "off") return null;
  return (
    <p class="trouble" role="alert">
      {store.breaker === "open"
        ? `The ${store.name} store is sick: requests that need it are answered 503 (the breaker is open).`
        : `The ${store.name} store was sick: a few requests are let through to see whether it is well (the breaker is half-open).`}
    </p>
  );
}

function Tiles({ stats }: { readonly stats: StatsView | undefined }) {
  const unknown = stats?.unknown;
  const outbox = stats?.outbox;
  const alive = stats?.processes.filter(({ isAlive }) => isAlive).length ?? 0;
  const silent = (stats?.processes.length ?? 0) - alive;
  return (
    <ul class="tiles" aria-label="Right now">
      <Tile
        label="Running now"
        href={address("records", { state: "in_progress" })}
        value={stats === undefined ? undefined : runningText(stats.running)}
        note="requests being executed"
      />
      <Tile
        label="Unknown outcomes"
        href={address("unknown")}
        value={unknown === undefined ? undefined : String(unknown.waiting + unknown.escalated)}
        note={unknown === undefined ? "" : unknownNote(unknown)}
        mood={
          unknown === undefined
            ? "calm"
            : unknown.escalated > 0
              ? "bad"
              : unknown.waiting > 0
                ? "warn"
                : "calm"
        }
      />
      <Tile
        label="Outbox"
        href={address("dead-letters")}
        value={outbox === undefined ? undefined : outbox === null ? "–" : outbox.waiting.toLocaleString("en")}
        note={outbox == null ? "this store has none" : outboxNote(outbox)}
      />
      <Tile
        label="Dead letters"
        href={address("dead-letters")}
        value={outbox === undefined ? undefined : outbox === null ? "–" : outbox.dead.toLocaleString("en")}
        note="nobody delivers these"
        mood={outbox != null && outbox.dead > 0 ? "bad" : "calm"}
      />
      <Tile
        label="Processes"
        href="#processes"
        value={stats === undefined ? undefined : String(alive)}
        note={
          stats === undefined
            ? ""
            : `${silent === 0 ? "all alive" : `${silent} silent`} · ${stats.store.name}`
        }
        mood={silent > 0 ? "warn" : "calm"}
      />
    </ul>
  );
}

interface TileProps {
  readonly label: string;
  readonly href: string;
  readonly value: string | undefined;
  readonly note: string;
  readonly mood?: "calm" | "warn" | "bad";
}

function Tile({ label, href, value, note, mood = "calm" }: TileProps) {
  const inner = (
    <>
      <span class="tile-label">{label}</span>
      <span class="tile-value">{value ?? "…"}</span>
      <span class="tile-note">{note}</span>
    </>
  );
  return (
    <li>
      {href.startsWith("#/") ? (
        <a class={`tile tile-${mood}`} href={href}>
          {inner}
        </a>
      ) : (
        <div class={`tile tile-${mood}`}>{inner}</div>
      )}
    </li>
  );
}

const runningMax = 1000; // More are not counted.

function runningText(running: number): string {
  return running >= runningMax ? `${runningMax}+` : String(running);
}

function unknownNote({ waiting, escalated, oldestMs }: StatsView["unknown"]): string {
  if (waiting + escalated === 0) return "every outcome is known";
  const who = escalated > 0 ? `${counted(escalated, "waits", "wait")} for you` : "being asked about";
  return `${who} · oldest ${duration(oldestMs)}`;
}

function outboxNote({ waiting, oldestDueMs }: NonNullable<StatsView["outbox"]>): string {
  if (waiting === 0) return "nothing waits";
  return oldestDueMs === 0 ? "none is late" : `oldest due ${duration(oldestDueMs)}`;
}
