import { useRef } from "preact/hooks";
import { storeNow } from "../clock.ts";
import { type RecordFilters, spans } from "../record-filters.ts";
import { address, go } from "../route.ts";
import { recordStates, stateWords } from "../words.ts";
import { LinkButton } from "./link-button.tsx";

/** Everything is in the page's address, so what the form does is to go there. */
export function Filters({ filters }: { readonly filters: RecordFilters }) {
  const form = useRef<HTMLFormElement>(null);
  const apply = (event?: Event) => {
    event?.preventDefault();
    if (form.current === null) return;
    const given = new FormData(form.current);
    const text = (name: string) => String(given.get(name) ?? "").trim() || undefined;
    const last = text("last");
    const isBetween = last === "between";
    go(
      address("records", {
        state: text("state"),
        tenant: text("tenant"),
        route: text("route"),
        key: text("key"),
        last: isBetween ? undefined : last,
        from: isBetween ? (utc(text("from")) ?? new Date(storeNow() - spans["1h"]).toISOString()) : undefined,
        to: isBetween ? utc(text("to")) : undefined,
      }),
    );
  };
  const isBetween = filters.from !== undefined || filters.to !== undefined;
  const isFiltered = Object.values({ ...filters, cursor: undefined }).some((value) => value !== undefined);
  return (
    <form class="filters" ref={form} onSubmit={apply} aria-label="Filters" key={JSON.stringify(filters)}>
      <label>
        State
        <select name="state" onChange={() => apply()}>
          <option value="">any</option>
          {recordStates.map((state) => (
            <option key={state} value={state} selected={state === filters.state}>
              {stateWords[state]}
            </option>
          ))}
        </select>
      </label>
      <label>
        Tenant
        <input name="tenant" defaultValue={filters.tenant ?? ""} spellcheck={false} />
      </label>
      <label>
        Route
        <input name="route" defaultValue={filters.route ?? ""} spellcheck={false} />
      </label>
      <label class="wide">
        Key
        <input name="key" defaultValue={filters.key ?? ""} spellcheck={false} />
      </label>
      <label>
        First reserved
        <select name="last" onChange={() => apply()}>
          <option value="">at any time</option>
          {Object.keys(spans).map((span) => (
            <option key={span} value={span} selected={span === filters.last}>
              in the last {span}
            </option>
          ))}
          <option value="between" selected={isBetween}>
            between (UTC)…
          </option>
        </select>
      </label>
      {isBetween && (
        <div class="between">
          <label class="moment">
            From (UTC)
            <input name="from" type="datetime-local" step="1" defaultValue={field(filters.from)} />
          </label>
          <label class="moment">
            To (UTC)
            <input name="to" type="datetime-local" step="1" defaultValue={field(filters.to)} />
          </label>
        </div>
      )}
      <button type="submit" class="primary">
        Apply
      </button>
      <LinkButton href={isFiltered ? address("records") : undefined}>Clear</LinkButton>
    </form>
  );
}

/** A field of the form has no zone; everything here is UTC. */
function utc(text: string | undefined): string | undefined {
  const at = text === undefined ? Number.NaN : Date.parse(`${text}Z`);
  return Number.isNaN(at) ? undefined : new Date(at).toISOString();
}

function field(iso: string | undefined): string {
  return iso === undefined ? "" : new Date(iso).toISOString().slice(0, 19);
}
