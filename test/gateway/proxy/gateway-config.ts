import type { SiteOptions } from "../../adapters/harness.ts";

/** What a case asks for, as the configuration of a gateway; throws where it is a function, which none can say. */
export function configOf(
  options: SiteOptions,
  {
    address,
    tenant,
    paths,
  }: { readonly address: string; readonly tenant: string; readonly paths: readonly string[] },
): object {
  const { policy = {}, mount = "route", routeBinding, routeTenant } = options;
  const {
    tenant: _,
    statusPath,
    leaseMs,
    storeTimeoutMs,
    problemTypeBase,
    limits,
    expiry,
    ...rest
  } = options.latchkey ?? {};
  const { methods, name, ...fields } = { ...rest, ...policy };
  const config = {
    upstream: address,
    listen: { port: 0 },
    store: "memory:",
    tenant,
    statusPath,
    leaseMs,
    storeTimeoutMs,
    problemTypeBase,
    limits,
    expiry,
    // In a configuration methods are written in capitals.
    defaults: { ...fields, methods: methods?.map((method) => method.toUpperCase()) },
    routes: mount === "route" ? paths.map((path) => ({ path, name })) : [],
    unmatched: mount === "application" || mount === "both" ? "protect" : "pass",
    workers: false,
  };
  const hasCallers = routeTenant !== undefined || typeof options.latchkey?.tenant === "function";
  if (routeBinding !== undefined || hasFunction(config) || (hasCallers && tenant === "single")) {
    throw new Error("the case asks for what no configuration can say: name it among those that run past it");
  }
  return config;
}

function hasFunction(value: unknown): boolean {
  if (typeof value === "function") return true;
  return typeof value === "object" && value !== null && Object.values(value).some(hasFunction);
}
