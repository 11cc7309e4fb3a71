import type { Case } from "../harness.ts";
import { bodyCases } from "./body.ts";
import { replayCases } from "./replay.ts";

/** Everything that an adapter has to do, by topic. */
export const topics: Readonly<Record<string, readonly Case[]>> = {
  replay: replayCases,
  "the body": bodyCases,
};
