import { ConfigError } from "../../core/errors.ts";
import type { Engine } from "./database.ts";

export interface PostgresStoreOptions {
  /**
   * How others learn that a process has died: when its leases run out (`lease`), or at once, because one long-lived
   * connection of each process holds an advisory lock that names it (`advisory`; needs a `pg` pool and a direct
   * connection, not a transaction pool).
   */
  readonly lock?: "lease" | "advisory";
  /**
   * Wakes waiting duplicates and relays by LISTEN/NOTIFY, on one long-lived connection; with `advisory` they are woken
   * anyway. Close the store before the pool: the pool waits for that connection.
   */
  readonly listen?: boolean;
  /**
   * For tables that were made by `migrate(pool, { partitioned: … })`: expired records are dropped a whole partition at
   * a time. They cannot be kept, so `expiry: "soft"` is refused.
   */
  readonly partitioned?: boolean;
  /**
   * Sends what is concurrent in this process as one statement, which is several times as fast under load. True unless
   * you say otherwise; false sends one statement for each call, and needs none of the functions for requests.
   */
  readonly groupCommit?: boolean;
  /**
   * `distributed` for CockroachDB, YugabyteDB, Aurora DSQL or Citus: plain statements on tables that were made by
   * `migrate(pool, { engine: "distributed" })`, without functions, locks, notifications or group commit. What loses
   * against another transaction is tried again.
   */
  readonly engine?: Engine;
}

export function checkedOptions(options: PostgresStoreOptions): Required<PostgresStoreOptions> {
  const { lock = "lease", listen = false, partitioned = false, engine = "postgres" } = options;
  const { groupCommit = engine === "postgres" } = options;
  if (lock !== "lease" && lock !== "advisory") {
    throw new ConfigError(`lock is "${lock}" and must be "lease" or "advisory"`);
  }
  for (const [name, value] of Object.entries({ listen, partitioned, groupCommit })) {
    if (typeof value !== "boolean") throw new ConfigError(`${name} is "${value}" and must be true or false`);
  }
  checkEngine(engine, { 'lock: "advisory"': lock === "advisory", listen, partitioned, groupCommit });
  return { lock, listen, partitioned, groupCommit, engine };
}

/** `chosen` has what was asked for that only Postgres itself has. */
export function checkEngine(engine: Engine, chosen: Readonly<Record<string, boolean>>): void {
  if (engine !== "postgres" && engine !== "distributed") {
    throw new ConfigError(`engine is "${engine}" and must be "postgres" or "distributed"`);
  }
  const refused = Object.entries(chosen).flatMap(([name, isChosen]) => (isChosen ? [name] : []));
  if (engine === "postgres" || refused.length === 0) return;
  throw new ConfigError(
    `engine is "distributed", which sends nothing but plain statements: leave out ${refused.join(" and ")}, or leave ` +
      "out engine if this is Postgres itself",
  );
}
