import { useEffect, useMemo, useState } from "preact/hooks";
import type { RecordId } from "../core/record.ts";

export const pageNames = ["overview", "records", "record", "unknown", "dead-letters", "audit"] as const;
export type PageName = (typeof pageNames)[number];

/** Everything that a page shows is named by its address, so that a link shows somebody else the same. */
export interface Route {
  readonly page: PageName;
  readonly query: URLSearchParams;
}

/** After the `#`: the server knows nothing of pages, and nothing of this is in its logs. */
export function routeOf(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?");
  return { page: pageNames.find((name) => name === path) ?? "overview", query: new URLSearchParams(search) };
}

export type Query = Readonly<Record<string, string | number | undefined>>;

export function address(page: PageName, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return search === "" ? `#/${page}` : `#/${page}?${search}`;
}

export function recordAddress({ scope, key }: RecordId): string {
  return address("record", { scope, key });
}

export function go(to: string): void {
  location.hash = to;
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    // Effects come after the page is shown, and whoever was faster would be left on the page before.
    changed();
    return () => removeEventListener("hashchange", changed);
  }, []);
  return useMemo(() => routeOf(hash), [hash]);
}
