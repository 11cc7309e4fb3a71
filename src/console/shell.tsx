import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import type { StatsView } from "../admin/views.ts";
import { applyTheme, chosenTheme, themeAfter } from "../browser/theme.ts";
import { useConsole } from "./context.ts";
import { useKeyboard } from "./keyboard.ts";
import { useLoaded } from "./loading.ts";
import { AuditPage } from "./pages/audit.tsx";
import { DeadLettersPage } from "./pages/dead-letters.tsx";
import { Overview } from "./pages/overview.tsx";
import { RecordPage } from "./pages/record.tsx";
import { RecordsPage } from "./pages/records.tsx";
import { UnknownPage } from "./pages/unknown.tsx";
import { Help } from "./parts/help.tsx";
import { Trouble } from "./parts/trouble.tsx";
import { address, go, type PageName, type Route, useRoute } from "./route.ts";

const statsEveryMs = 2_000; // What somebody watches while it gets better or worse.

/** What is around every page: where one can go, what waits there, search, and who one is. */
export function Shell({ onSignOut }: { readonly onSignOut: () => void }) {
  const { api } = useConsole();
  const route = useRoute();
  const search = useRef<HTMLInputElement>(null);
  const [isHelpShown, setIsHelpShown] = useState(false);
  useKeyboard(
    useMemo(() => ({ search: () => search.current?.select(), help: () => setIsHelpShown(true) }), []),
  );
  const load = useCallback((signal: AbortSignal) => api.stats(signal), [api]);
  const stats = useLoaded(load, statsEveryMs);
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("content")?.focus()}>
        Skip to the content
      </button>
      <header class="bar">
        <a class="brand" href={address("overview")}>
          Latchkey
        </a>
        <Navigation page={route.page} stats={stats.data} />
        <Search input={search} query={route.page === "records" ? (route.query.get("key") ?? "") : ""} />
        <Me onSignOut={onSignOut} onHelp={() => setIsHelpShown(true)} />
      </header>
      <main id="content" tabIndex={-1}>
        <Trouble error={stats.error} retry={stats.reload} />
        <Page route={route} stats={stats.data} reloadStats={stats.reload} />
      </main>
      {isHelpShown && <Help onClose={() => setIsHelpShown(false)} />}
    </>
  );
}

interface PageProps {
  readonly route: Route;
  readonly stats: StatsView | undefined;
  readonly reloadStats: () => void;
}

function Page({ route, stats, reloadStats }: PageProps) {
  switch (route.page) {
    case "overview":
      return <Overview route={route} stats={stats} />;
    case "records":
      return <RecordsPage route={route} />;
    case "record":
      return <RecordPage route={route} onChanged={reloadStats} />;
    case "unknown":
      return <UnknownPage route={route} onChanged={reloadStats} />;
    case "dead-letters":
      return <DeadLettersPage route={route} onChanged={reloadStats} />;
    case "audit":
      return <AuditPage route={route} />;
    default:
      return route.page satisfies never;
  }
}

function Navigation({ page, stats }: { readonly page: PageName; readonly stats: StatsView | undefined }) {
  const unknown = stats === undefined ? 0 : stats.unknown.waiting + stats.unknown.escalated;
  const dead = stats?.outbox?.dead ?? 0;
  const entries: readonly (readonly [page: PageName, words: string, count: number])[] = [
    ["overview", "Overview", 0],
    ["records", "Records", 0],
    ["unknown", "Unknown", unknown],
    ["dead-letters", "Dead letters", dead],
    ["audit", "Audit", 0],
  ];
  const current = page === "record" ? "records" : page;
  return (
    <nav class="pages" aria-label="Pages">
      {entries.map(([name, words, count]) => (
        <a key={name} href={address(name)} aria-current={name === current ? "page" : undefined}>
          {words}
          <span class={count > 0 ? "waiting" : "waiting none"}>
            {count > 0 ? count.toLocaleString("en") : ""}
          </span>
        </a>
      ))}
    </nav>
  );
}

interface SearchProps {
  readonly input: { current: HTMLInputElement | null };
  readonly query: string;
}

function Search({ input, query }: SearchProps) {
  const submit = (event: Event) => {
    event.preventDefault();
    const key = input.current?.value.trim() ?? "";
    go(address("records", { key }));
  };
  return (
    <form class="search" aria-label="Search by key" onSubmit={submit}>
      <input
        ref={input}
        type="search"
        aria-label="Search by key"
        placeholder="Search by key (the whole key)   /"
        defaultValue={query}
        key={query}
        spellcheck={false}
      />
    </form>
  );
}

function Me({ onSignOut, onHelp }: { readonly onSignOut: () => void; readonly onHelp: () => void }) {
  const { session } = useConsole();
  const [theme, setTheme] = useState(chosenTheme);
  const change = () => {
    const next = themeAfter(theme);
    applyTheme(next);
    setTheme(next);
  };
  return (
    <div class="me">
      <span class="operator" title={session.mayChange ? "May change things" : "May look, and change nothing"}>
        {session.operator}
        {!session.mayChange && <span class="muted"> (read only)</span>}
      </span>
      <button type="button" class="quiet theme" aria-label={`Theme: ${theme}. Change it`} onClick={change}>
        {theme}
      </button>
      <button type="button" class="quiet" aria-label="Keyboard help" onClick={onHelp}>
        ?
      </button>
      <button type="button" class="quiet" onClick={onSignOut}>
        Sign out
      </button>
    </div>
  );
}
