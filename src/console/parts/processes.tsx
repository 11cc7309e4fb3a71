import type { ProcessView, WorkerView } from "../../admin/views.ts";
import { Time } from "./time.tsx";

/** Who works on this store, and how its workers are. */
export function Processes({ processes }: { readonly processes: readonly ProcessView[] | undefined }) {
  return (
    <section class="card" aria-labelledby="processes">
      <div class="section-head">
        <h2 id="processes">Processes and workers</h2>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <section class="scroll" aria-labelledby="processes" tabIndex={0}>
        {processes?.length === 0 && <p class="empty">No process has told of itself lately.</p>}
        <table class="dense">
          <thead class={processes?.length ? "" : "unseen"}>
            <tr>
              <th scope="col">process, worker</th>
              <th scope="col">health</th>
              <th scope="col">last seen, last round</th>
              <th scope="col">has done</th>
            </tr>
          </thead>
          {processes?.map((process) => (
            <tbody key={process.id}>
              <tr class="process">
                <th scope="row">
                  {process.role}{" "}
                  <span class="muted">
                    {process.host}:{process.pid}
                  </span>
                </th>
                <td>
                  {process.isAlive ? <Health is="good" word="alive" /> : <Health is="bad" word="silent" />}
                </td>
                <td>
                  <Time at={process.seenAt} />
                </td>
                <td class="muted">
                  since <Time at={process.startedAt} />
                </td>
              </tr>
              {process.workers.map((worker) => (
                <Worker key={worker.name} worker={worker} />
              ))}
            </tbody>
          ))}
        </table>
      </section>
    </section>
  );
}

function Worker({ worker }: { readonly worker: WorkerView }) {
  const { name, rounds, lastRoundAt, counts, errors, lastError, lastErrorAt } = worker;
  // An error that a later round has made good is history.
  const isFailing = lastErrorAt !== null && (lastRoundAt === null || lastErrorAt > lastRoundAt);
  const done = Object.entries(counts).filter(([, count]) => count > 0);
  return (
    <tr>
      <th scope="row" class="worker">
        {name}
      </th>
      <td>
        {isFailing ? <Health is="bad" word="failing" /> : <Health is="good" word="well" />}
        {errors > 0 && (
          <span class="muted" title={lastError ?? undefined}>
            {" "}
            {errors} {errors === 1 ? "error" : "errors"}
          </span>
        )}
      </td>
      <td>
        {lastRoundAt === null ? "no round yet" : <Time at={lastRoundAt} />}
        <span class="muted number"> · {rounds.toLocaleString("en")}</span>
      </td>
      <td class="counts">
        {done.length === 0 && <span class="muted">nothing yet</span>}
        {done.map(([what, count]) => (
          <span key={what}>
            {count.toLocaleString("en")} {what.replace(/([A-Z])/g, " $1").toLowerCase()}
          </span>
        ))}
        {isFailing && lastError !== null && <span class="bad-text">{lastError}</span>}
      </td>
    </tr>
  );
}

function Health({ is, word }: { readonly is: "good" | "bad"; readonly word: string }) {
  return (
    <span class={`health health-${is}`}>
      <svg viewBox="0 0 12 12" aria-hidden="true">
        {is === "good" ? <circle cx="6" cy="6" r="4.5" /> : <path d="M6 .8l5.6 10.4H.4z" />}
      </svg>
      {word}
    </span>
  );
}
