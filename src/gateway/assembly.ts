import { resolvePolicy } from "../core/policy.ts";
import type { Store } from "../core/store.ts";
import type { LimitsOptions } from "../engine/limits/options.ts";
import type { Logger } from "../engine/logging.ts";
import { createLatchkey, type Latchkey } from "../latchkey.ts";
import type { LatchkeyOptions } from "../latchkey-options.ts";
import { keyRing } from "../privacy/key-ring.ts";
import { type DispatchRequest, dispatchTo, type RunningWorkers, startWorkers } from "../workers/workers.ts";
import type { GatewayConfig } from "./config/schema.ts";
import { defined, policyOf } from "./policies.ts";

/** The idempotency layer of a gateway. Routes bring their whole policies, so a reload can change them. */
export function latchkeyOf(
  config: GatewayConfig,
  host: {
    readonly store: Store;
    readonly logger: Logger;
    readonly tenant: LatchkeyOptions["tenant"];
    readonly limits: LimitsOptions;
  },
): Latchkey {
  const {
    breaker,
    expiry,
    statusPath,
    problemTypeBase,
    leaseMs,
    storeTimeoutMs,
    hashKeys,
    logKeys,
    encryption,
  } = config;
  // What is asked of the layer itself: how the status resource speaks, and verdicts on routes that nobody knows.
  const { profile, retentionMs, replayHeaders, responseBytesMax } = resolvePolicy(
    host.store.capabilities,
    policyOf(config.defaults),
  );
  return createLatchkey({
    ...host,
    profile,
    retentionMs,
    replayHeaders,
    responseBytesMax,
    ...defined({
      breaker: typeof breaker === "object" ? defined(breaker) : breaker,
      expiry,
      statusPath,
      problemTypeBase,
      leaseMs,
      storeTimeoutMs,
      hashKeys,
      logKeys,
    }),
    ...(encryption === undefined
      ? {}
      : {
          encryption: keyRing(
            encryption.keys,
            defined({ perTenant: encryption.perTenant, refusePlain: encryption.refusePlain }),
          ),
        }),
  });
}

/** The workers that are configured; undefined if none is. */
export function workersOf(
  config: GatewayConfig,
  host: {
    readonly latchkey: Latchkey;
    readonly url: string;
    readonly headersFor: (request: DispatchRequest) => Readonly<Record<string, string>>;
  },
): RunningWorkers | undefined {
  if (config.workers === false) return undefined;
  const chosen: Partial<Exclude<GatewayConfig["workers"], boolean>> =
    config.workers === true ? {} : config.workers;
  const of = (worker: boolean | object | undefined) =>
    worker === false ? false : typeof worker === "object" ? defined(worker) : {};
  const completer = of(chosen.completer);
  return startWorkers(host.latchkey, {
    sweeper: of(chosen.sweeper),
    reaper: of(chosen.reaper),
    reconciler: of(chosen.reconciler),
    completer:
      completer === false ? false : { ...completer, dispatch: dispatchTo(host.url, host.headersFor) },
  });
}
