import { isDeepStrictEqual } from "node:util";
import type { GatewayConfig } from "./config/schema.ts";

/** What a running gateway is built on. Whatever else is configured can be swapped between two requests. */
const builtOn = [
  "listen",
  "store",
  "migrate",
  "statusPath",
  "expiry",
  "leaseMs",
  "storeTimeoutMs",
  "breaker",
  "encryption",
  "hashKeys",
  "metrics",
  "admin",
  "workers",
  "problemTypeBase",
  "logKeys",
] as const satisfies readonly (keyof GatewayConfig)[];

/** The members that differ and that only a restart can change. */
export function needingRestart(before: GatewayConfig, after: GatewayConfig): string[] {
  const changed: string[] = builtOn.filter((name) => !isDeepStrictEqual(before[name], after[name]));
  // The status resource speaks as all routes do by default.
  if (before.defaults.profile !== after.defaults.profile) changed.push("defaults.profile");
  return changed;
}
