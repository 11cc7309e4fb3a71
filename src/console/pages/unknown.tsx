import { useCallback, useMemo } from "preact/hooks";
import type { RecordView } from "../../admin/views.ts";
import type { RecordId } from "../../core/record.ts";
import { useConsole } from "../context.ts";
import { useLoaded } from "../loading.ts";
import { Name } from "../parts/copy.tsx";
import { Evidence } from "../parts/evidence.tsx";
import { Pager } from "../parts/pager.tsx";
import { Phases } from "../parts/phases.tsx";
import { Time } from "../parts/time.tsx";
import { Trouble } from "../parts/trouble.tsx";
import { Verdicts } from "../parts/verdicts.tsx";
import { address, go, type Route, recordAddress } from "../route.ts";
import { useRecordSearch } from "../searching.ts";
import { counted } from "../words.ts";

interface UnknownPageProps {
  readonly route: Route;
  readonly onChanged: () => void;
}

/** What nobody knows yet: the queue, and beside it what is known of the one that is looked at. */
export function UnknownPage({ route, onChanged }: UnknownPageProps) {
  const { api } = useConsole();
  const cursor = route.query.get("cursor") ?? undefined;
  const question = useMemo(() => ({ state: "unknown", cursor }), [cursor]);
  const search = useRecordSearch(api, question);
  const { records, isLooking, next } = search;
  const queue = useMemo(() => records.toSorted(byUrgency), [records]);
  const named = useMemo(() => recordIn(route.query), [route]);
  // Whoever came for one must not be shown another in its place.
  const chosen = named === undefined ? queue[0] : queue.find((record) => isSame(record, named));
  const changed = useCallback(() => {
    go(address("unknown", { cursor }));
    search.again();
    onChanged();
  }, [search.again, onChanged, cursor]);
  return (
    <>
      <div class="section-head">
        <h1>Unknown outcomes</h1>
        <span class="muted results" role="status" aria-live="polite">
          {isLooking ? "Looking…" : queueWords(queue, next)}
        </span>
        <button type="button" disabled={isLooking} onClick={search.again}>
          Look again
        </button>
      </div>
      <p class="meaning">
        These may have been executed, and no retry executes them. The reconciler asks; what it cannot find out
        waits for you.
      </p>
      <Trouble error={search.error} retry={search.again} />
      <div class="queue">
        <ol class="queue-list card" aria-label="Queue of unknown outcomes">
          {queue.map((record) => (
            <Entry
              key={`${record.scope} ${record.key}`}
              record={record}
              cursor={cursor}
              isChosen={record === chosen}
            />
          ))}
          {queue.length === 0 && <li class="empty">{isLooking ? "Looking…" : "Every outcome is known."}</li>}
        </ol>
        {chosen !== undefined && (
          <Case key={`${chosen.scope} ${chosen.key}`} record={chosen} onChanged={changed} />
        )}
        {chosen === undefined && named !== undefined && !isLooking && (
          <p class="card not-shown">
            <a href={recordAddress(named)}>{named.key}</a> is not among these: its outcome is known by now, or
            it is on another page.
          </p>
        )}
      </div>
      <Pager
        isFirst={cursor === undefined}
        latest={address("unknown")}
        older={next === null || isLooking ? undefined : address("unknown", { cursor: next })}
      />
    </>
  );
}

/** The one that the page's address names. */
function recordIn(query: URLSearchParams): RecordId | undefined {
  const [scope, key] = [query.get("scope"), query.get("key")];
  return scope === null || key === null ? undefined : { scope, key };
}

function isSame(one: RecordId, other: RecordId): boolean {
  return one.key === other.key && one.scope === other.scope;
}

/** What waits for an operator comes first, and of that what has waited longest. */
function byUrgency(one: RecordView, other: RecordView): number {
  const since = ({ escalatedAt }: RecordView) => escalatedAt ?? Number.POSITIVE_INFINITY;
  return since(one) === since(other) ? one.createdAt - other.createdAt : since(one) - since(other);
}

function queueWords(queue: readonly RecordView[], next: string | null): string {
  const waiting = queue.filter(({ escalatedAt }) => escalatedAt !== null).length;
  const more = next === null ? "" : " on this page";
  return `${counted(waiting, "waits", "wait")} for you, ${queue.length - waiting} being asked about${more}`;
}

interface EntryProps {
  readonly record: RecordView;
  readonly cursor: string | undefined;
  readonly isChosen: boolean;
}

function Entry({ record, cursor, isChosen }: EntryProps) {
  const { scope, key, tenant, route, escalatedAt, createdAt, reason } = record;
  return (
    <li>
      <a
        href={address("unknown", { cursor, scope, key })}
        aria-current={isChosen ? "true" : undefined}
        class={escalatedAt === null ? "case" : "case case-escalated"}
      >
        <span class="case-head">
          <code>{key}</code>
          <Time at={escalatedAt ?? createdAt} />
        </span>
        <span class="case-about">
          {escalatedAt === null ? (
            <span class="mark">being asked</span>
          ) : (
            <span class="mark mark-bad">waits for you</span>
          )}
          {tenant} · {route ?? "no route"}
        </span>
        <span class="case-why">{reason}</span>
      </a>
    </li>
  );
}

function Case({ record, onChanged }: { readonly record: RecordView; readonly onChanged: () => void }) {
  const { api } = useConsole();
  const { scope, key } = record;
  const load = useCallback((signal: AbortSignal) => api.record({ scope, key }, signal), [api, scope, key]);
  const { data: detail, error, reload } = useLoaded(load);
  return (
    <section class="card case-detail" aria-label={`Evidence about ${key}`}>
      <div class="section-head">
        <h2>
          <Name text={key} what="the key" href={recordAddress(record)} />
        </h2>
        <a href={recordAddress(record)}>the whole record</a>
      </div>
      <Evidence record={record} />
      <Trouble error={error} retry={reload} />
      <h3>Phases</h3>
      {detail === undefined ? <p class="empty">Looking…</p> : <Phases phases={detail.phases} />}
      <div class="actions verdicts">
        {detail?.state === "unknown" && <Verdicts record={detail} onChanged={onChanged} />}
        {detail !== undefined && detail.state !== "unknown" && <p>It has been settled meanwhile.</p>}
      </div>
    </section>
  );
}
