import type { MemberPath } from "./problems.ts";
import type { GatewayConfig } from "./schema.ts";

/** Something that is wrong between members that are each good in themselves. */
export interface Finding {
  readonly severity: "error" | "warning";
  readonly path: MemberPath;
  readonly sentence: string;
}

export const error = (path: MemberPath, sentence: string): Finding => ({ severity: "error", path, sentence });
export const warning = (path: MemberPath, sentence: string): Finding => ({
  severity: "warning",
  path,
  sentence,
});

/** Whether this process runs a worker. */
export function runs(config: GatewayConfig, worker: "completer" | "reconciler"): boolean {
  if (typeof config.workers === "boolean") return config.workers;
  return config.workers[worker] !== false;
}
