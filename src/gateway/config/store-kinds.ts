import { ConfigError } from "../../core/errors.ts";
import type { Capabilities } from "../../core/store.ts";
import { assertStoreUrl } from "../../stores/open-store.ts";

/** What is known about a store by its URL alone; the store itself says the rest when it is opened. */
export function capabilitiesOf(url: string): Capabilities | undefined {
  const scheme = /^([a-z][a-z0-9+-]*):/i.exec(url)?.[1]?.toLowerCase() ?? "";
  if (!Object.hasOwn(kinds, scheme)) return undefined;
  return { ...permissive, ...kinds[scheme] };
}

/** Why no store can be opened by a URL; undefined if one may be. Does not repeat the URL, which may hold a password. */
export function storeUrlProblem(url: string): string | undefined {
  try {
    assertStoreUrl(url);
    return undefined;
  } catch (problem) {
    if (!(problem instanceof ConfigError)) throw problem;
    return problem.message;
  }
}

const permissive: Capabilities = {
  transactions: true,
  push: true,
  storeClock: true,
  durability: "server",
  responseBytesMax: Number.MAX_SAFE_INTEGER,
  listing: "latest-first",
};

const kinds: Readonly<Record<string, Partial<Capabilities>>> = {
  memory: { transactions: false, durability: "none" },
  sqlite: { durability: "machine" },
  postgres: {},
  postgresql: {},
  mysql: {},
  mariadb: {},
  redis: { transactions: false, durability: "configured" },
  rediss: { transactions: false, durability: "configured" },
  "redis-cluster": { transactions: false, durability: "configured" },
  "rediss-cluster": { transactions: false, durability: "configured" },
  dynamodb: {},
};
