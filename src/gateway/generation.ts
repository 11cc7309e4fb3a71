import type { IncomingMessage, ServerResponse } from "node:http";
import { isDeepStrictEqual } from "node:util";
import { type Policy, resolvePolicy } from "../core/policy.ts";
import { headerAllowList } from "../core/response.ts";
import type { TenantLimits } from "../engine/limits/options.ts";
import type { Latchkey } from "../latchkey.ts";
import type { ReconcileHook } from "../operation/reconciliation.ts";
import type { GatewayConfig, RouteConfig } from "./config/schema.ts";
import { defined, routePolicyInput, unmatchedPolicyInput } from "./policies.ts";
import { type ProxyOptions, Proxy as UpstreamProxy } from "./proxy/proxy.ts";
import { reconcileBy } from "./reconcile.ts";
import { Router } from "./router.ts";
import { type CallerOf, callerOf } from "./tenants.ts";

type Handler = (req: IncomingMessage, res: ServerResponse) => Promise<void>;

/** Whom records ask that were made by another generation, or another process, of the same routes. */
export class Hooks {
  readonly #byName = new Map<string, ReconcileHook>();
  #current: ReadonlyMap<string, ReconcileHook> = new Map();

  /** One for each name, for ever, so that a route is the same one after its configuration has changed. */
  of(name: string): ReconcileHook {
    const known = this.#byName.get(name);
    if (known !== undefined) return known;
    const hook: ReconcileHook = (question) => {
      const current = this.#current.get(name);
      if (current === undefined) throw new Error(`the route "${name}" has no reconcile any more`);
      return current(question);
    };
    this.#byName.set(name, hook);
    return hook;
  }

  use(hooks: ReadonlyMap<string, ReconcileHook>): void {
    this.#current = hooks;
  }
}

/** Everything that one configuration says about requests. A reload makes another one; this one ends what it began. */
export class Generation {
  readonly config: GatewayConfig;
  readonly proxy: UpstreamProxy;
  readonly callerOf: CallerOf;
  readonly hooks: ReadonlyMap<string, ReconcileHook>;
  readonly #router: Router;
  readonly #handlers: readonly (Handler | undefined)[];
  readonly #unmatched: Handler | undefined;
  readonly #unmatchedMethods: ReadonlySet<string>;

  static async of(
    config: GatewayConfig,
    host: { readonly latchkey: Latchkey; readonly hooks: Hooks; readonly before?: Generation | undefined },
  ): Promise<Generation> {
    const { before } = host;
    // Fetched keys are kept: a reload must not depend on whether their issuer answers right now. A file is read again.
    const isSame =
      before !== undefined &&
      config.jwt?.jwksFile === undefined &&
      isDeepStrictEqual([before.config.tenant, before.config.jwt], [config.tenant, config.jwt]);
    return new Generation(config, host, isSame ? before.callerOf : await callerOf(config));
  }

  private constructor(
    config: GatewayConfig,
    host: { readonly latchkey: Latchkey; readonly hooks: Hooks; readonly before?: Generation | undefined },
    caller: CallerOf,
  ) {
    const { latchkey, hooks, before } = host;
    const proxyOptions = proxyOptionsOf(config);
    this.config = config;
    this.callerOf = caller;
    this.#router = new Router(config);
    // Connections, and websockets, go on where nothing about them has changed.
    this.proxy =
      before !== undefined && isDeepStrictEqual(proxyOptionsOf(before.config), proxyOptions)
        ? before.proxy
        : new UpstreamProxy(proxyOptions);
    const ownHooks = new Map<string, ReconcileHook>();
    this.hooks = ownHooks;
    const { capabilities } = latchkey.store;
    this.#handlers = config.routes.map((route) => {
      if (route.protect === false) return undefined;
      const policy = resolvePolicy(capabilities, routePolicyInput(config, route));
      const reconcile = reconcileOf(config, route, policy);
      if (reconcile === undefined || policy.name === undefined) return this.proxy.protect(latchkey, policy);
      ownHooks.set(policy.name, reconcile);
      return this.proxy.protect(latchkey, { ...policy, reconcile: hooks.of(policy.name) });
    });
    const unmatched = unmatchedPolicyInput(config);
    this.#unmatchedMethods = new Set(unmatched.methods);
    this.#unmatched =
      config.unmatched === "protect"
        ? this.proxy.protect(latchkey, resolvePolicy(capabilities, unmatched))
        : undefined;
  }

  /** What protects a request; undefined if nothing does. */
  protection(method: string, path: string): Handler | undefined {
    const index = this.#router.find(method, path);
    if (index !== undefined) return this.#handlers[index];
    return this.#unmatchedMethods.has(method) ? this.#unmatched : undefined;
  }
}

export function upstreamUrl({ upstream }: GatewayConfig): string {
  return typeof upstream === "string" ? upstream : upstream.url;
}

/** What a tenant may do by a configuration. */
export function limitsOf({ limits }: GatewayConfig, tenant: string): TenantLimits {
  if (limits === undefined) return {};
  const { tenants, ...everybody } = limits;
  const own = tenants !== undefined && Object.hasOwn(tenants, tenant) ? tenants[tenant] : {};
  return { ...defined(everybody), ...defined(own ?? {}) } as TenantLimits;
}

function proxyOptionsOf(config: GatewayConfig): ProxyOptions {
  const { upstream, listen, problemTypeBase } = config;
  const { url, ...rest } = typeof upstream === "string" ? { url: upstream } : upstream;
  const { trustForwarded } = listen;
  return { upstream: url, ...defined({ ...rest, trustForwarded, problemTypeBase }) } as ProxyOptions;
}

function reconcileOf(config: GatewayConfig, route: RouteConfig, policy: Policy): ReconcileHook | undefined {
  if (route.reconcile === undefined) return undefined;
  return reconcileBy(route.reconcile, {
    upstream: upstreamUrl(config),
    responseBytesMax: policy.responseBytesMax,
    allowedHeaders: headerAllowList(policy.replayHeaders),
  });
}
