import { useCallback } from "preact/hooks";
import { useConsole } from "../context.ts";
import { useLoaded } from "../loading.ts";
import { Pager } from "../parts/pager.tsx";
import { StateBadge } from "../parts/state-badge.tsx";
import { Time } from "../parts/time.tsx";
import { Trouble } from "../parts/trouble.tsx";
import { address, type Route, recordAddress } from "../route.ts";
import { counted } from "../words.ts";

const pageRows = 50;

/** Who changed what off the happy path, and why: the latest first. */
export function AuditPage({ route }: { readonly route: Route }) {
  const { api } = useConsole();
  const text = (name: string) => route.query.get(name) ?? undefined;
  const [scope, key, cursor] = [text("scope"), text("key"), text("cursor")];
  const load = useCallback(
    (signal: AbortSignal) => api.audit({ scope, key, limit: pageRows, cursor }, signal),
    [api, scope, key, cursor],
  );
  const { data: page, error, isLoading, reload } = useLoaded(load);
  const entries = page?.entries ?? [];
  return (
    <>
      <div class="section-head">
        <h1>Audit trail</h1>
        <span class="muted results" role="status" aria-live="polite">
          {page === undefined ? "Looking…" : `${counted(entries.length, "entry", "entries")} on this page`}
        </span>
        <button type="button" disabled={isLoading} onClick={reload}>
          Look again
        </button>
        {(scope !== undefined || key !== undefined) && (
          <a class="button" href={address("audit")}>
            All entries
          </a>
        )}
      </div>
      {key !== undefined && (
        <p class="meaning">
          Only of <code>{key}</code>
          {scope === undefined ? "" : ` of ${scope}`}.
        </p>
      )}
      <Trouble error={error} retry={reload} />
      <div class="scroll card">
        <table aria-label="Audit trail" aria-busy={isLoading}>
          <thead>
            <tr>
              <th scope="col">when</th>
              <th scope="col">who</th>
              <th scope="col">from, to</th>
              <th scope="col">key</th>
              <th scope="col" class="number">
                attempt
              </th>
              <th scope="col">why</th>
            </tr>
          </thead>
          <tbody>
            {entries.map((entry) => (
              <tr key={entry.id}>
                <td>
                  <Time at={entry.at} />
                </td>
                <td class="cut" title={entry.by}>
                  <b>{entry.by}</b>
                </td>
                <td class="nowrap">
                  <StateBadge state={entry.from} /> <span aria-hidden="true">→</span>
                  <span class="unseen">to</span> <StateBadge state={entry.to} />
                </td>
                <td class="cut" title={`${entry.key} of ${entry.scope}`}>
                  {entry.to === "requeued" ? (
                    <code>{entry.key}</code>
                  ) : (
                    <a href={recordAddress(entry)}>
                      <code>{entry.key}</code>
                    </a>
                  )}
                </td>
                <td class="number">{entry.attempt}</td>
                <td>{entry.reason}</td>
              </tr>
            ))}
            {entries.length === 0 && (
              <tr>
                <td colSpan={6} class="empty">
                  {page === undefined ? "Looking…" : "Nothing was off the happy path."}
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
      <Pager
        isFirst={cursor === undefined}
        latest={address("audit", { scope, key })}
        older={page?.next == null ? undefined : address("audit", { scope, key, cursor: page.next })}
      />
    </>
  );
}
