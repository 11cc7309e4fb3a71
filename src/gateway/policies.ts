import type { PolicyInput } from "../core/policy.ts";
import type { GatewayConfig, RouteConfig } from "./config/schema.ts";

type PolicyConfig = GatewayConfig["defaults"];

/** The fields of a policy as the engine takes them: what is left out is not there. */
export function policyOf(config: PolicyConfig): PolicyInput {
  return defined(config) as PolicyInput;
}

/** The policy of a protected route: the defaults, and what it says itself. */
export function routePolicyInput(config: GatewayConfig, route: RouteConfig): PolicyInput {
  const own = typeof route.protect === "object" ? policyOf(route.protect) : {};
  const methods = methodsOf(config, route);
  return {
    ...policyOf(config.defaults),
    ...own,
    ...(methods === "all" ? {} : { methods }),
    name: route.name ?? nameOf(methods, route.path),
  };
}

/** What requests that match no route are protected by. */
export function unmatchedPolicyInput(config: GatewayConfig): PolicyInput {
  return { ...policyOf(config.defaults), methods: protectedMethods(config), name: unmatchedName };
}

const unmatchedName = "unmatched";

export function methodsOf(config: GatewayConfig, route: RouteConfig): readonly string[] | "all" {
  return route.methods ?? (route.protect === false ? "all" : protectedMethods(config));
}

function protectedMethods(config: GatewayConfig): readonly string[] {
  return config.defaults.methods ?? ["POST", "PATCH"];
}

/** Every route has a name in its records, so that people and the policy of a verdict find it. */
function nameOf(methods: readonly string[] | "all", path: string): string | undefined {
  const name = `${methods === "all" ? "" : methods.join(",")} ${path}`;
  return name.length <= 100 ? name : undefined;
}

/** How a route compares text: a route that is not protected takes nothing but its own spelling. */
export function foldOf(config: GatewayConfig, route: RouteConfig): (text: string) => string {
  if (route.protect === false || config.matching.case === "exact") return (text) => text;
  return (text) => text.toLowerCase();
}

/** Without members that are undefined: options tell "left out" from "undefined". */
export function defined<T extends object>(object: T): Defined<T> {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as Defined<T>;
}

type Defined<T> = { [Name in keyof T]?: Exclude<T[Name], undefined> };
