import { ConfigError } from "../../core/errors.ts";
import { keepsRequest, type Policy, resolvePolicy } from "../../core/policy.ts";
import { policyOf, routePolicyInput } from "../policies.ts";
import { accessChecks } from "./access-checks.ts";
import { error, type Finding, runs, warning } from "./findings.ts";
import type { MemberPath } from "./problems.ts";
import { routeChecks } from "./route-checks.ts";
import type { GatewayConfig } from "./schema.ts";
import { capabilitiesOf, storeUrlProblem } from "./store-kinds.ts";

/** Everything that can be said about a configuration without opening a port or a connection. */
export function crossChecks(config: GatewayConfig): readonly Finding[] {
  return [...policyChecks(config), ...routeChecks(config), ...accessChecks(config), ...placeChecks(config)];
}

/** Whether each policy can be kept on this kind of store, and with what else is configured. */
function policyChecks(config: GatewayConfig): Finding[] {
  const findings: Finding[] = [];
  const capabilities = capabilitiesOf(config.store);
  if (capabilities === undefined) {
    findings.push(
      error(
        ["store"],
        "is not the URL of a store: use memory:, sqlite:./file.db, postgres://…, mysql://…, redis://…, redis-cluster://… or dynamodb://region/table",
      ),
    );
    return findings;
  }
  const problem = storeUrlProblem(config.store);
  if (problem !== undefined) findings.push(error(["store"], `cannot be opened: ${problem}`));
  const seen = new Set<string>();
  const check = (path: MemberPath, policy: () => Policy) => {
    try {
      findings.push(...policyFindings(config, path, policy(), seen));
    } catch (problem) {
      if (!(problem instanceof ConfigError)) throw problem;
      if (seen.has(problem.message)) return;
      seen.add(problem.message);
      findings.push(
        error(path, `cannot be kept: ${problem.message.replace("the policy cannot be kept: ", "")}`),
      );
    }
  };
  // What is wrong with the defaults is said once, and not again for every route.
  check(["defaults"], () => resolvePolicy(capabilities, policyOf(config.defaults)));
  for (const [index, route] of config.routes.entries()) {
    if (route.protect === false) continue;
    const path = ["routes", index, ...(route.protect === true ? [] : ["protect"])];
    check(path, () => resolvePolicy(capabilities, routePolicyInput(config, route)));
  }
  const { leaseMs = 15_000, storeTimeoutMs } = config;
  if (leaseMs < 100)
    findings.push(error(["leaseMs"], "must be at least 100 ms: scheduling delays alone would lose leases"));
  if (storeTimeoutMs !== undefined && storeTimeoutMs > leaseMs) {
    findings.push(error(["storeTimeoutMs"], `must be no longer than the lease (${leaseMs} ms)`));
  }
  return findings;
}

function policyFindings(
  config: GatewayConfig,
  path: MemberPath,
  policy: Policy,
  seen: Set<string>,
): Finding[] {
  const findings: Finding[] = [];
  const once = (finding: Finding) => {
    if (seen.has(finding.sentence)) return;
    seen.add(finding.sentence);
    findings.push(finding);
  };
  if (policy.onInFlight === "accept" && config.statusPath === undefined) {
    once(
      error(
        path,
        "accepts requests (onInFlight: accept), and there is no statusPath where clients learn what became of them: add one",
      ),
    );
  }
  if (policy.onInFlight === "accept" && !runs(config, "completer")) {
    once(
      warning(
        path,
        "accepts requests, and this process has no completer to execute them: another one has to run workers",
      ),
    );
  }
  const header =
    /^header:(.*)$/.exec(config.tenant)?.[1] ??
    (config.tenant.startsWith("jwt:") ? (config.jwt?.header ?? "Authorization") : undefined);
  const isKept = (name: string) =>
    policy.keepRequestHeaders.some((kept) => kept.toLowerCase() === name.toLowerCase());
  if (policy.onInFlight === "accept" && header !== undefined && !isKept(header)) {
    once(
      warning(
        path,
        `accepts requests, and ${header} is not in keepRequestHeaders: the service gets what a worker sends without it`,
      ),
    );
  }
  if (config.hashKeys !== undefined && config.encryption === undefined && keepsRequest(policy)) {
    once(
      error(
        path,
        "keeps requests for the workers, with the key in their headers, and hashKeys is set: add encryption, or keepRequest: false",
      ),
    );
  }
  return findings;
}

/** Ports and paths that the gateway keeps for itself. */
function placeChecks(config: GatewayConfig): Finding[] {
  const findings: Finding[] = [];
  const ports = new Map<number, string>();
  const paths = new Map<string, string>();
  if (config.listen.port !== 0) ports.set(config.listen.port, "listen.port");
  if (config.statusPath !== undefined) paths.set(config.statusPath, "statusPath");
  for (const name of ["metrics", "admin"] as const) {
    const section = config[name];
    if (section === undefined) continue;
    const { port, path } = section;
    if ((port === undefined) === (path === undefined)) {
      findings.push(
        error(
          [name],
          `needs either a port of its own or a path of the gateway's${path === undefined ? "" : ", not both"}`,
        ),
      );
      continue;
    }
    if (port !== undefined && port !== 0) {
      const taken = ports.get(port);
      if (taken !== undefined)
        findings.push(error([name, "port"], `is ${port}, which is ${taken} as well: use another`));
      ports.set(port, `${name}.port`);
    }
    if (path !== undefined) {
      for (const [other, taken] of paths) {
        if (path === other || path.startsWith(`${other}/`) || other.startsWith(`${path}/`)) {
          findings.push(
            error([name, "path"], `is ${path}, and ${taken} is ${other}: neither may be below the other`),
          );
        }
      }
      paths.set(path, `${name}.path`);
    }
    if (path !== undefined && section.host !== undefined) {
      findings.push(
        error([name, "host"], "is for a port of its own: leave it out, or use a port in place of path"),
      );
    }
  }
  if (config.metrics?.path !== undefined && config.metrics.token === undefined) {
    findings.push(
      warning(
        ["metrics"],
        "is on a path that every client reaches, without a token: whoever calls may read the metrics",
      ),
    );
  }
  return findings;
}
