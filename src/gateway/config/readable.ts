import * as v from "valibot";
import type { MemberPath } from "./problems.ts";
import { type GatewayConfig, gatewaySchema } from "./schema.ts";

/**
 * What can be read of a configuration whose members are not all what they must be: the same without those. So what is
 * wrong between members is found together with what is wrong inside of them. `removed` is what it is not known of.
 */
export function readablePart(value: unknown): {
  readonly config: GatewayConfig | undefined;
  readonly removed: readonly MemberPath[];
} {
  const removed: MemberPath[] = [];
  const rest = structuredClone(value);
  for (let rounds = 0; rounds < roundsMax; rounds += 1) {
    const result = v.safeParse(gatewaySchema, rest);
    if (result.success) return { config: result.output, removed };
    for (const issue of result.issues) {
      const path = (issue.path ?? []).map(({ key }) => key as string | number);
      if (path.length === 0) return { config: undefined, removed };
      takeOut(rest, path, removed);
    }
  }
  return { config: undefined, removed };
}

const roundsMax = 50;

/** What stands in for members without which there is no configuration. */
const standIns: Readonly<Record<string, unknown>> = { upstream: "http://127.0.0.1", tenant: "single" };

/** In place of a route that cannot be read, so that the others keep their numbers. */
const noRoute = { path: "/-/latchkey/unreadable", protect: false };

function takeOut(value: unknown, path: MemberPath, removed: MemberPath[]): void {
  const [first, second, third] = path;
  const root = value as Record<string, unknown>;
  removed.push(path);
  if (typeof first === "string" && path.length === 1 && first in standIns) {
    root[first] = standIns[first];
    return;
  }
  if (first === "routes" && typeof second === "number") {
    const routes = root.routes as unknown[];
    const route = routes[second] as Record<string, unknown> | null;
    // Its policy may be left out; without a path, or as no map at all, it is no route.
    if (third === "protect" || third === "reconcile" || third === "methods" || third === "name") {
      if (route !== null && third in route) delete route[third];
    } else routes[second] = noRoute;
    return;
  }
  // A member of a section is left out if it is there; where one is missing, the section is.
  const section = root[String(first)] as Record<string, unknown> | null;
  if (typeof second === "string" && typeof section === "object" && section !== null && second in section) {
    delete section[second];
  } else delete root[String(first)];
}
