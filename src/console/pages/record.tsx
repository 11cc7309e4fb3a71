import type { ComponentChildren } from "preact";
import { useCallback, useMemo, useState } from "preact/hooks";
import type { DuplicatesView, RecordDetailView } from "../../admin/views.ts";
import type { RecordState } from "../../core/record.ts";
import { useConsole } from "../context.ts";
import { useLoaded } from "../loading.ts";
import { Answer } from "../parts/answer.tsx";
import { BustDialog } from "../parts/bust-dialog.tsx";
import { Name } from "../parts/copy.tsx";
import { Evidence } from "../parts/evidence.tsx";
import { Phases } from "../parts/phases.tsx";
import { StateBadge } from "../parts/state-badge.tsx";
import { Time } from "../parts/time.tsx";
import { Timeline } from "../parts/timeline.tsx";
import { Trouble } from "../parts/trouble.tsx";
import { Verdicts } from "../parts/verdicts.tsx";
import { address, type Route } from "../route.ts";
import { counted, stateMeanings } from "../words.ts";

const everyMs = 3_000; // Somebody who looks at one record waits for what becomes of it.

interface RecordPageProps {
  readonly route: Route;
  readonly onChanged: () => void;
}

/** All that is known of one record, and what can be done about it. */
export function RecordPage({ route, onChanged }: RecordPageProps) {
  const { api } = useConsole();
  const scope = route.query.get("scope") ?? "";
  const key = route.query.get("key") ?? "";
  const load = useCallback((signal: AbortSignal) => api.record({ scope, key }, signal), [api, scope, key]);
  const { data: record, error, reload } = useLoaded(load, everyMs);
  const changed = useMemo(
    () => () => {
      reload();
      onChanged();
    },
    [reload, onChanged],
  );
  return (
    <>
      <div class="section-head record-head">
        <h1>
          <Name text={key} what="the key" />
        </h1>
        {record !== undefined && <StateBadge state={record.state} />}
      </div>
      <Trouble error={error} retry={reload} />
      {record !== undefined && <Whole record={record} onChanged={changed} />}
    </>
  );
}

function Whole({ record, onChanged }: { readonly record: RecordDetailView; readonly onChanged: () => void }) {
  const { session } = useConsole();
  // As it was looked at: what this page hears of a later attempt must not make that one be busted.
  const [busted, setBusted] = useState<RecordDetailView>();
  return (
    <>
      <p class="meaning">{stateMeanings[record.state]}</p>
      <Facts record={record} />
      <div class="actions">
        {record.state === "unknown" && <Verdicts record={record} onChanged={onChanged} />}
        {record.state !== "unknown" && (
          <button type="button" disabled={!session.mayChange} onClick={() => setBusted(record)}>
            Bust this key…
          </button>
        )}
        <a class="button" href={address("audit", { scope: record.scope, key: record.key })}>
          Audit entries
        </a>
      </div>
      <Timeline record={record} />
      <div class="columns">
        <Answer response={record.response} />
        <div class="stack">
          {record.state === "unknown" && (
            <section class="card" aria-labelledby="evidence">
              <h2 id="evidence">What the reconciler knows</h2>
              <Evidence record={record} />
            </section>
          )}
          <section class="card" aria-labelledby="phases">
            <h2 id="phases">Phases</h2>
            <Phases phases={record.phases} />
          </section>
          <section class="card" aria-labelledby="duplicates">
            <h2 id="duplicates">Duplicates</h2>
            <Duplicates duplicates={record.duplicates} />
          </section>
        </div>
      </div>
      {busted !== undefined && (
        <BustDialog record={busted} onClose={() => setBusted(undefined)} onChanged={onChanged} />
      )}
    </>
  );
}

function Facts({ record }: { readonly record: RecordDetailView }) {
  const { scope, tenant, route, attempt, onCrash, owner, leaseUntil, createdAt, expiresAt, resumeAfter } =
    record;
  return (
    <dl class="facts">
      <Fact name="tenant">{tenant}</Fact>
      {scope !== tenant && <Fact name="scope">{scope}</Fact>}
      <Fact name="route">{route ?? "–"}</Fact>
      <Fact name="attempt (fence)">
        <span class="number">{attempt}</span>
      </Fact>
      <Fact name="first reserved">
        <Time at={createdAt} />
      </Fact>
      {expiryWords[record.state] !== undefined && (
        <Fact name={expiryWords[record.state] ?? ""}>
          <Time at={expiresAt} />
        </Fact>
      )}
      {owner !== null && <Fact name="held by">{owner}</Fact>}
      {leaseUntil !== null && (
        <Fact name="lease ends">
          <Time at={leaseUntil} />
        </Fact>
      )}
      {resumeAfter !== null && (
        <Fact name="a worker may take it">
          <Time at={resumeAfter} />
        </Fact>
      )}
      <Fact name="if its process dies">{crashWords[onCrash]}</Fact>
      <Fact name="fingerprint">
        <code class="fingerprint" title={record.fingerprint}>
          {record.fingerprint}
        </code>
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** What is not settled does not go, whatever its time. */
const expiryWords: Partial<Record<RecordState, string>> = {
  completed: "replayed until",
  failed_retryable: "kept until",
};

const crashWords = {
  reconcile: "its outcome is unknown",
  resume: "it goes on after what is recorded",
  retry: "it is executed from the start",
};

function Duplicates({ duplicates }: { readonly duplicates: DuplicatesView | null }) {
  if (duplicates === null) return <p class="empty">No process remembers a duplicate of it.</p>;
  const { replayed, inProgress, misused, unknown, lastAt } = duplicates;
  return (
    <ul class="duplicates">
      <li>{counted(replayed, "was", "were")} answered with the stored answer</li>
      {inProgress > 0 && <li>{counted(inProgress, "was", "were")} told that it is being executed (409)</li>}
      {unknown > 0 && <li>{counted(unknown, "was", "were")} told that the outcome is unknown (409)</li>}
      {misused > 0 && (
        <li class="bad-text">{counted(misused, "was", "were")} another request under this key (422)</li>
      )}
      <li class="muted">
        the last <Time at={lastAt} />
      </li>
    </ul>
  );
}
