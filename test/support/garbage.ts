import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");

/** Collects all garbage, or only what is young, before it comes back. */
export const collectGarbage = runInNewContext("gc") as (options?: { readonly type: "minor" }) => void;
