import { useMemo } from "preact/hooks";
import { useConsole } from "../context.ts";
import { Filters } from "../parts/filters.tsx";
import { Pager } from "../parts/pager.tsx";
import { RecordsTable } from "../parts/records-table.tsx";
import { Trouble } from "../parts/trouble.tsx";
import { filtersOf, questionOf } from "../record-filters.ts";
import { address, type Route } from "../route.ts";
import { useRecordSearch } from "../searching.ts";
import { counted } from "../words.ts";

/** Records by what is known of them, the latest first, fifty at a time. */
export function RecordsPage({ route }: { readonly route: Route }) {
  const { api } = useConsole();
  const asked = route.query.toString();
  const filters = useMemo(() => filtersOf(new URLSearchParams(asked)), [asked]);
  const question = useMemo(() => questionOf(filters), [filters]);
  const search = useRecordSearch(api, question);
  const { records, isLooking, next, order } = search;
  return (
    <>
      <div class="section-head">
        <h1>Records</h1>
        <span class="muted results" role="status" aria-live="polite">
          {isLooking
            ? `Looking… ${counted(records.length, "record")} so far, ${counted(search.pages, "page")} looked through`
            : `${counted(records.length, "record")} on this page${next === null ? ", and none after them" : ""}`}
        </span>
        {isLooking ? (
          <button type="button" onClick={search.stop}>
            Stop looking
          </button>
        ) : (
          <button type="button" onClick={search.again}>
            Look again
          </button>
        )}
      </div>
      <Filters filters={filters} />
      {order === "unordered" && (
        <p class="muted">
          This store keeps records in no order of time: they are listed as it comes by them.
        </p>
      )}
      <Trouble error={search.error} retry={search.again} />
      <RecordsTable records={records} isLooking={isLooking} />
      {search.hasGivenUp && (
        <p class="trouble">
          Nothing more was found so far, and there is more to look through.{" "}
          <button type="button" onClick={search.goOn}>
            Keep looking
          </button>
        </p>
      )}
      <Pager
        isFirst={filters.cursor === undefined}
        latest={address("records", { ...filters, cursor: undefined })}
        older={next === null || isLooking ? undefined : address("records", { ...filters, cursor: next })}
      />
    </>
  );
}
