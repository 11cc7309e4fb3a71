import { storeNow } from "./clock.ts";
import type { Query } from "./route.ts";
import { recordStates } from "./words.ts";

export const spans = {
  "15m": 15 * 60_000,
  "1h": 3_600_000,
  "6h": 6 * 3_600_000,
  "24h": 24 * 3_600_000,
} as const;
export type Span = keyof typeof spans;

/** What the page's address says: by what records are looked for. A type alias, so that it is a `Query` too. */
export type RecordFilters = {
  readonly state: string | undefined;
  readonly tenant: string | undefined;
  readonly route: string | undefined;
  readonly key: string | undefined;
  /** First reserved within this long before now. */
  readonly last: Span | undefined;
  /** Or between these two, as ISO times. */
  readonly from: string | undefined;
  readonly to: string | undefined;
  readonly cursor: string | undefined;
};

export function filtersOf(query: URLSearchParams): RecordFilters {
  const text = (name: string) => query.get(name)?.trim() || undefined;
  const last = text("last");
  const state = text("state");
  return {
    state: recordStates.find((known) => known === state),
    tenant: text("tenant"),
    route: text("route"),
    key: text("key"),
    last: last !== undefined && last in spans ? (last as Span) : undefined,
    from: timeOf(text("from")),
    to: timeOf(text("to")),
    cursor: text("cursor"),
  };
}

/** What the admin API is asked. */
export function questionOf({ last, from, to, ...rest }: RecordFilters): Query {
  return {
    ...rest,
    from: last === undefined ? from && Date.parse(from) : Math.floor(storeNow() - spans[last]),
    to: last === undefined ? to && Date.parse(to) : undefined,
  };
}

/** An address may hold anything: what is no time is as if it were not there. */
function timeOf(text: string | undefined): string | undefined {
  return text === undefined || Number.isNaN(Date.parse(text)) ? undefined : text;
}
