import type { RecordDetailView, TimelineEntry } from "../../admin/views.ts";
import { isOver, type Stretch, stretchesOf } from "../timeline.ts";
import { absolute, duration, stateWords } from "../words.ts";
import { StateBadge, StateShape } from "./state-badge.tsx";
import { Time } from "./time.tsx";

/** What happened to a record: as a picture, one lane for each attempt, and then in words. */
export function Timeline({ record }: { readonly record: RecordDetailView }) {
  const stretches = stretchesOf(record.timeline, record.now);
  const attempts = [...new Set(stretches.map(({ attempt }) => attempt))].toSorted(
    (one, other) => one - other,
  );
  return (
    <section class="card" aria-labelledby="timeline">
      <div class="section-head">
        <h2 id="timeline">Timeline</h2>
        <span class="muted">widths are not to scale: how long each took is written on it</span>
      </div>
      <div class="lanes" aria-hidden="true">
        {attempts.map((attempt) => (
          <div class="lane" key={attempt}>
            <span class="lane-name">attempt {attempt}</span>
            <div class="lane-track">
              {stretches
                .filter((stretch) => stretch.attempt === attempt)
                .map((stretch) => (
                  <Bar key={`${stretch.from} ${stretch.state}`} stretch={stretch} status={record.status} />
                ))}
            </div>
          </div>
        ))}
      </div>
      <ol class="events" aria-label="Timeline">
        {record.timeline.map((entry) => (
          <Entry key={`${entry.at} ${entry.attempt} ${entry.from} ${entry.to}`} entry={entry} />
        ))}
      </ol>
    </section>
  );
}

function Bar({ stretch, status }: { readonly stretch: Stretch; readonly status: number | null }) {
  const { state, from, to, isOpen, left, width } = stretch;
  const isAnswer = isOpen && state === "completed" && status !== null;
  const took = isOpen && isOver(state) ? "" : duration(to - from);
  return (
    <div
      class={isOpen && !isOver(state) ? `stretch state-${state} open` : `stretch state-${state}`}
      style={{ left: `${left}%`, width: `${width}%` }}
      title={`${stateWords[state]} from ${absolute(from)}${took === "" ? "" : ` for ${took}`}`}
    >
      <StateShape state={state} />
      <span>{isAnswer ? status : stateWords[state]}</span>
      <span class="took">{took}</span>
    </div>
  );
}

function Entry({ entry: { at, attempt, from, to, by, reason } }: { readonly entry: TimelineEntry }) {
  return (
    <li>
      <span class="event-time">
        <Time at={at} />
      </span>
      <span class="event-attempt">
        {to === "requeued" || to === "dead_letter" ? "message" : `attempt ${attempt}`}
      </span>
      <span class="event-states">
        <StateBadge state={from} /> <span aria-hidden="true">→</span>
        <span class="unseen">to</span> <StateBadge state={to} />
      </span>
      <span class="event-why">
        {by === null ? <span class="muted">the request itself</span> : <b>{by}</b>}
        {reason !== null && <span>: {reason}</span>}
      </span>
    </li>
  );
}
