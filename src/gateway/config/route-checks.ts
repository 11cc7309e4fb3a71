import { covers, parsePattern } from "../pattern.ts";
import { foldOf, methodsOf } from "../policies.ts";
import { error, type Finding, runs, warning } from "./findings.ts";
import type { GatewayConfig, ReconcileConfig, RouteConfig } from "./schema.ts";

/** What is wrong between routes, and with what they ask upstream. */
export function routeChecks(config: GatewayConfig): Finding[] {
  const findings: Finding[] = [];
  const names = new Map<string, number>();
  for (const [index, route] of config.routes.entries()) {
    const { name, reconcile } = route;
    const known = name === undefined ? undefined : names.get(name);
    if (known !== undefined) {
      findings.push(
        error(
          ["routes", index, "name"],
          `is "${name}", which is the name of routes[${known}] as well: records find their route by its name, so rename one`,
        ),
      );
    } else if (name !== undefined) names.set(name, index);
    if (reconcile !== undefined) findings.push(...reconcileChecks(config, route, reconcile, index));
    findings.push(...shadowed(config, route, index));
    if (route.path === "/-/latchkey" || route.path.startsWith("/-/latchkey/")) {
      findings.push(
        warning(
          ["routes", index, "path"],
          "is below /-/latchkey, which is the gateway's own: it never matches",
        ),
      );
    }
  }
  if (config.unmatched === "pass" && config.routes.every(({ protect }) => protect === false)) {
    findings.push(
      warning(
        ["unmatched"],
        "is pass, and no route is protected: nothing is. Add a route, or set it to protect",
      ),
    );
  }
  return findings;
}

/** A route that can never be reached, because an earlier one takes everything that it would. */
function shadowed(config: GatewayConfig, route: RouteConfig, index: number): Finding[] {
  const pattern = parsePattern(route.path);
  const methods = methodsOf(config, route);
  const taker = config.routes.slice(0, index).findIndex((earlier) => {
    const taken = methodsOf(config, earlier);
    const hasMethods =
      taken === "all" || (methods !== "all" && methods.every((method) => taken.includes(method)));
    return hasMethods && covers(parsePattern(earlier.path), pattern, foldOf(config, earlier));
  });
  if (taker === -1) return [];
  return [
    warning(
      ["routes", index, "path"],
      `is ${route.path}, and never matches: routes[${taker}] (${config.routes[taker]?.path}) takes all of it. Put this one before it`,
    ),
  ];
}

function reconcileChecks(
  config: GatewayConfig,
  route: RouteConfig,
  reconcile: ReconcileConfig,
  index: number,
): Finding[] {
  const findings: Finding[] = [];
  const path = ["routes", index, "reconcile"];
  if (route.protect === false) {
    findings.push(error(path, "is for protected routes: remove it, or protect: false"));
  }
  if (route.name === undefined) {
    findings.push(
      error(
        path,
        "needs a name on its route, by which records find it again after a restart: add name beside it",
      ),
    );
  }
  const url = [...path, "url"];
  for (const problem of questionProblems(reconcile.url, tenantMeaning(config))) {
    findings.push(error(url, problem));
  }
  if (config.hashKeys !== undefined && reconcile.url.includes("{key}")) {
    findings.push(
      error(
        url,
        "names {key}, and with hashKeys nobody knows the key of a stored request: remove hashKeys, or leave reconcile out and let an operator settle",
      ),
    );
  }
  const both = reconcile.executed.filter((status) => reconcile.notExecuted.includes(status));
  if (both.length > 0) {
    findings.push(
      error(path, `takes ${both.join(", ")} both for executed and for notExecuted: it can mean only one`),
    );
  }
  if (!runs(config, "reconciler")) {
    findings.push(
      warning(
        path,
        "is never asked by this process, because it has no reconciler: another one has to run it",
      ),
    );
  }
  return findings;
}

/**
 * What is wrong with the address of a question about an outcome, each as the rest of a sentence that begins with its
 * name. A question that does not say which request it is about is answered for another one, and settles it wrongly.
 * `tenantMeaning` tells what is put in for the tenant; undefined where everybody shares one key space.
 */
export function questionProblems(url: string, tenantMeaning: string | undefined): string[] {
  // What follows this sign is never sent.
  const [sent = ""] = url.split("#", 1);
  const names = new Set([...sent.matchAll(/\{([^}]*)\}/g)].map(([, name = ""]) => name));
  const problems = [...names]
    .filter((name) => !["key", "tenant", "route"].includes(name))
    .map((name) => `names {${name}}: there are {key}, {tenant} and {route}`);
  if (!names.has("key")) {
    problems.push(
      "does not name {key}, so that every request would be asked about in the same way: put it in",
    );
  }
  if (tenantMeaning !== undefined && !names.has("tenant")) {
    problems.push(
      `does not name {tenant} (${tenantMeaning}), and two callers may use the same key: one of them would get what became of the other's request. Put it in, as in ?tenant={tenant}, and have the service look at it`,
    );
  }
  return problems;
}

function tenantMeaning({ tenant }: GatewayConfig): string | undefined {
  if (tenant === "single") return undefined;
  return tenant.startsWith("header:")
    ? "h. and the SHA-256 of the header's value, as base64url"
    : "the name in the token";
}
