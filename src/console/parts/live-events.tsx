import type { LiveEventView } from "../../admin/views.ts";
import { useConsole } from "../context.ts";
import { type LiveLine, useLive } from "../live.ts";
import { recordAddress } from "../route.ts";
import { absolute } from "../words.ts";

/** What happens, while it happens: the latest on top. */
export function LiveEvents() {
  const { api } = useConsole();
  const { lines, connection, isPaused, missed, setPaused } = useLive(api);
  return (
    <section class="card" aria-labelledby="live">
      <div class="section-head">
        <h2 id="live">
          Live <span class={`connection connection-${connection}`}>{connectionWords[connection]}</span>
        </h2>
        <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
          {isPaused ? `Go on (${missed} missed)` : "Pause"}
        </button>
      </div>
      {/* Not read out line by line: a busy service would never let anybody hear anything else. */}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <ol class="live" aria-label="Live events" tabIndex={0}>
        {lines.length === 0 && <li class="empty">Nothing has happened since this page was opened.</li>}
        {lines.map((line) => (
          <Line key={line.id} line={line} />
        ))}
      </ol>
    </section>
  );
}

const connectionWords = {
  connecting: "connecting…",
  connected: "connected",
  lost: "connection lost, trying again…",
};

function Line({ line: { event } }: { readonly line: LiveLine }) {
  const { at, type, outcome, scope, key, detail, process } = event;
  const title = process === null ? absolute(at) : `${absolute(at)}, in ${process}`;
  return (
    <li class={`live-${moodOf(event)}`}>
      <time dateTime={new Date(at).toISOString()} title={title}>
        {new Date(at).toISOString().slice(11, 19)}
      </time>
      <span class="live-what">
        {type.replaceAll("_", " ")}
        {outcome !== null && <b> {outcome.replaceAll("_", " ")}</b>}
      </span>
      <span class="live-about">
        {key !== null && scope !== null && <a href={recordAddress({ scope, key })}>{key}</a>}
        {key !== null && scope === null && key} {detail !== null && <span class="muted">{detail}</span>}
      </span>
    </li>
  );
}

const badTypes = new Set([
  "lease_lost",
  "execution_timeout",
  "handler_failed",
  "store_error",
  "delivery_failed",
  "dead_letter",
  "worker_error",
  "breaker",
]);
const badOutcomes = new Set(["unknown", "store_down", "unprotected", "escalated", "failed"]);
const oddOutcomes = new Set([
  "key_misuse",
  "failed_retryable",
  "takeover",
  "limited",
  "in_progress",
  "still-unknown",
]);

function moodOf({ type, outcome }: LiveEventView): "bad" | "odd" | "good" {
  if (badTypes.has(type) || (outcome !== null && badOutcomes.has(outcome))) return "bad";
  if (type === "limited" || type === "refused" || type === "busted") return "odd";
  return outcome !== null && oddOutcomes.has(outcome) ? "odd" : "good";
}
