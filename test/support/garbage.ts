import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");

/** Collects all garbage, or only what is young, before it comes back. */
export const collectGarbage = runInNewContext("gc") as (options?: { readonly type: "minor" }) => void;

/**
 * How many bytes stay after short collections when something came and went 5,000 times, 64 at a time: `step` brings the next
 * and takes away the one that came 64 steps before.
 */
export function leftBehind(step: (index: number) => void): number {
  for (let index = 0; index < 64; index += 1) step(index);
  // What is there by now is old, and will not be looked at before the next full collection.
  for (let collections = 0; collections < 3; collections += 1) collectGarbage({ type: "minor" });
  const before = process.memoryUsage().heapUsed;
  for (let index = 64; index < 5_064; index += 1) {
    step(index);
    if (index % 500 === 0) collectGarbage({ type: "minor" });
  }
  collectGarbage({ type: "minor" });
  return process.memoryUsage().heapUsed - before;
}
