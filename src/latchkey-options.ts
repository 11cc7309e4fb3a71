import { ConfigError } from "./core/errors.ts";
import type { PolicyInput } from "./core/policy.ts";
import type { Expiry, Store } from "./core/store.ts";
import type { BreakerOptions } from "./engine/breaker.ts";
import type { EventListener } from "./engine/events.ts";
import type { LimitsOptions } from "./engine/limits/options.ts";
import type { Logger, LogKeys } from "./engine/logging.ts";
import type { ReplayCacheOptions } from "./engine/replay-cache.ts";
import type { Runtime } from "./engine/runtime.ts";
import type { ReconcileHook } from "./operation/reconciliation.ts";
import type { KeyRing } from "./privacy/key-ring.ts";

/** What a tenant is read from: the request, before its body was looked at. */
export interface TenantRequest {
  readonly method: string;
  readonly path: string;
  header(name: string): string | undefined;
  /** The framework's own request: `req`, `ctx`, `c`, … */
  readonly native: unknown;
}

/** Names the caller from its authentication, never from the body. No name is a 401. */
export type TenantOf<Request> = (request: Request) => string | undefined | Promise<string | undefined>;

export interface LatchkeyOptions<Tx = unknown> extends PolicyInput {
  /** Where records live, e.g. `sqliteStore("./latchkey.db")` or `postgresStore(pool)`. */
  readonly store: Store<Tx>;
  /** Who is calling. An API with one caller says `"single"` out loud. */
  readonly tenant: "single" | TenantOf<TenantRequest>;
  /** How long a dead process holds its keys. A live one renews the lease three times in that time. */
  readonly leaseMs?: number;
  /** A store that takes longer to answer counts as down. */
  readonly storeTimeoutMs?: number;
  /**
   * Keeps completed answers in this process's memory too, so that most replays cost no round trip. Needs a store that
   * tells every process at once when a key is busted; off unless it is given, `{}` for the default limits.
   */
  readonly cache?: ReplayCacheOptions;
  /** What each tenant may do, in all processes together; left out, everything. */
  readonly limits?: LimitsOptions;
  /** When a store that is sick is left alone for a while; `false` for never. */
  readonly breaker?: BreakerOptions | false;
  /** Whether expired records are deleted, or kept without their response for audit. */
  readonly expiry?: Expiry;
  /** Where the status resource is mounted; needed for `onInFlight: "accept"`. */
  readonly statusPath?: string;
  /** What the `type` of a problem document begins with, for teams that host their own documentation. */
  readonly problemTypeBase?: string;
  /** Asked about unknown outcomes of routes that have no `reconcile` of their own. */
  readonly reconcile?: ReconcileHook;
  /** Seals what is stored of requests and answers, with the keys of a `keyRing`; stored as it is if left out. */
  readonly encryption?: KeyRing;
  /**
   * A secret of 32 bytes: keys are stored only as what it makes of them, so that nobody can read them in the store.
   * It cannot be changed while answers are kept: what was stored under another is not found.
   */
  readonly hashKeys?: Uint8Array | string;
  /** Called with everything that happens. */
  readonly onEvent?: EventListener;
  /** Where everything that is out of the ordinary is logged, one line each; of pino's shape. */
  readonly logger?: Logger;
  /** Whether keys and scopes are logged as they are; `"plain"` if left out. */
  readonly logKeys?: LogKeys;
  /** Clock, timers and randomness; for tests. */
  readonly runtime?: Runtime;
}

const leaseMsDefault = 15_000; // Long enough that a pause for garbage or a slow disk costs nobody the key.
const leaseMsMin = 100; // Below this, scheduling delays alone would lose leases.
const storeTimeoutMsDefault = 5_000; // A third of the lease: a request that was refused leaves nothing behind.

/** Refuses options that cannot be meant, and says how long leases last and how long the store may take. */
export function checkedTimes<Tx>(options: LatchkeyOptions<Tx>): {
  readonly leaseMs: number;
  readonly storeTimeoutMs: number;
} {
  const { store, tenant, expiry, statusPath, leaseMs, storeTimeoutMs } = options;
  if (typeof store?.reserve !== "function") {
    throw new ConfigError(
      'createLatchkey needs a store, for example sqliteStore("./latchkey.db") from latchkey/sqlite',
    );
  }
  if (tenant !== "single" && typeof tenant !== "function") {
    throw new ConfigError(
      "createLatchkey needs to know its tenants: pass tenant: (request) => the authenticated caller's id, " +
        'or tenant: "single" if everybody may share one key space',
    );
  }
  if (expiry !== undefined && expiry !== "delete" && expiry !== "soft") {
    throw new ConfigError(`expiry is "${expiry}" and must be "delete" or "soft"`);
  }
  if (statusPath !== undefined && !/^\/[^?#\s]*[^/?#\s]$/.test(statusPath)) {
    throw new ConfigError(`statusPath is "${statusPath}" and must be a path such as "/idempotency"`);
  }
  const lease = leaseMs ?? leaseMsDefault;
  if (typeof lease !== "number" || !(lease >= leaseMsMin) || !Number.isFinite(lease)) {
    throw new ConfigError(`leaseMs is ${leaseMs} and must be at least ${leaseMsMin}`);
  }
  const storeTimeout = storeTimeoutMs ?? Math.min(storeTimeoutMsDefault, lease);
  if (typeof storeTimeout !== "number" || !(storeTimeout > 0 && storeTimeout <= lease)) {
    throw new ConfigError(
      `storeTimeoutMs is ${storeTimeoutMs} and must be a number above 0 and no longer than the lease (${lease})`,
    );
  }
  return { leaseMs: lease, storeTimeoutMs: storeTimeout };
}
