import { ConfigError } from "./core/errors.ts";
import { type Policy, type PolicyInput, resolvePolicy } from "./core/policy.ts";
import { defaultProblemTypeBase } from "./core/problem.ts";
import type { Expiry, ReapCounts, Store, SweepCounts } from "./core/store.ts";
import { Engine } from "./engine/engine.ts";
import type { EventListener } from "./engine/events.ts";
import { type Runtime, systemRuntime } from "./engine/runtime.ts";

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

export interface LatchkeyOptions extends PolicyInput {
  /** Where records live, e.g. `sqliteStore("./latchkey.db")` or `postgresStore(pool)`. */
  readonly store: Store;
  /** Who is calling. An API with one caller says `"single"` out loud. */
  readonly tenant: "single" | TenantOf<TenantRequest>;
  /** How long a dead process holds its keys. A live one renews the lease three times in that time. */
  readonly leaseMs?: number;
  /** A store that takes longer to answer counts as down. */
  readonly storeTimeoutMs?: number;
  /** Whether expired records are deleted, or kept without their response for audit. */
  readonly expiry?: Expiry;
  /** Where the status resource is mounted; needed for `onInFlight: "accept"`. */
  readonly statusPath?: string;
  /** What the `type` of a problem document begins with, for teams that host their own documentation. */
  readonly problemTypeBase?: string;
  /** Called with everything that happens. */
  readonly onEvent?: EventListener;
  /** Clock, timers and randomness; for tests. */
  readonly runtime?: Runtime;
}

const leaseMsDefault = 15_000; // Long enough that a pause for garbage or a slow disk costs nobody the key.
const leaseMsMin = 100; // Below this, scheduling delays alone would lose leases.
const storeTimeoutMsDefault = 5_000; // A third of the lease: a request that was refused leaves nothing behind.

/** The idempotency layer of one process. Made once, mounted on any number of routes. */
export class Latchkey {
  readonly store: Store;
  readonly tenant: "single" | TenantOf<TenantRequest>;
  readonly statusPath: string | undefined;
  readonly problemTypeBase: string;
  readonly #expiry: Expiry;
  readonly #defaults: PolicyInput;
  /** @internal */
  readonly engine: Engine;

  constructor(options: LatchkeyOptions) {
    const {
      store,
      tenant,
      leaseMs,
      storeTimeoutMs,
      expiry,
      statusPath,
      problemTypeBase,
      onEvent,
      runtime,
      ...policy
    } = options;
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

    this.store = store;
    this.tenant = tenant;
    this.statusPath = statusPath;
    this.problemTypeBase = problemTypeBase ?? defaultProblemTypeBase;
    this.#expiry = expiry ?? "delete";
    this.#defaults = policy;
    this.engine = new Engine({
      store,
      runtime: runtime ?? systemRuntime,
      leaseMs: lease,
      storeTimeoutMs: storeTimeout,
    });
    if (onEvent !== undefined) this.subscribe(onEvent);
    this.policy();
  }

  /** The policy of a route that overrides some defaults; throws if it cannot be kept. */
  policy(overrides: PolicyInput = {}): Policy {
    const policy = resolvePolicy(this.store.capabilities, this.#defaults, overrides);
    if (policy.onInFlight === "accept" && this.statusPath === undefined) {
      throw new ConfigError(
        'onInFlight is "accept", which answers with the address of the status resource: pass statusPath to ' +
          "createLatchkey and mount statusResource(latchkey) there",
      );
    }
    return policy;
  }

  /** Calls `listener` with everything that happens from now on; returns how to stop it. */
  subscribe(listener: EventListener): () => void {
    return this.engine.events.subscribe(listener);
  }

  /** Ends up to `limit` executions whose process died, each as its `onCrash` says. Run it every minute or so. */
  sweep(options: { readonly limit?: number } = {}): Promise<SweepCounts> {
    return this.engine.sweep({ limit: options.limit ?? maintenanceBatch });
  }

  /** Removes up to `limit` records past their retention. Run it every minute or so, until it answers zero. */
  reap(options: { readonly limit?: number } = {}): Promise<ReapCounts> {
    return this.engine.reap({ limit: options.limit ?? maintenanceBatch, expiry: this.#expiry });
  }

  /**
   * Waits for what is still being executed (a handler whose client has gone, an outcome that the store has not
   * confirmed), but not for longer than `drainMs`; then stops the heartbeat and gives back what the store opened. Call
   * it after the server has stopped.
   */
  async close(options: { readonly drainMs?: number } = {}): Promise<void> {
    await this.engine.drain(options.drainMs ?? drainMsDefault);
    this.engine.close();
    await this.store.close();
  }
}

const drainMsDefault = 10_000; // What orchestrators leave of their usual thirty seconds after the server has stopped.

const maintenanceBatch = 1000; // Small enough that no statement holds its locks for more than some milliseconds.

/**
 * Makes the idempotency layer.
 *
 * @example
 * ```ts
 * const latchkey = createLatchkey({
 *   store: sqliteStore("./latchkey.db"),
 *   tenant: (request) => accountOf(request.header("authorization")),
 * });
 * ```
 */
export function createLatchkey(options: LatchkeyOptions): Latchkey {
  return new Latchkey(options);
}
