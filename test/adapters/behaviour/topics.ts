import type { Case } from "../harness.ts";
import { bindingCases } from "./binding.ts";
import { bodyCases } from "./body.ts";
import { concurrencyCases } from "./concurrency.ts";
import { disconnectCases } from "./disconnect.ts";
import { failureCases } from "./failure.ts";
import { mountingCases } from "./mounting.ts";
import { operationCases } from "./operations.ts";
import { refusalCases } from "./refusal.ts";
import { replayCases } from "./replay.ts";
import { storeCases } from "./store.ts";
import { streamingCases } from "./streaming.ts";

/** Everything that an adapter has to do, by topic. */
export const topics: Readonly<Record<string, readonly Case[]>> = {
  replay: replayCases,
  "the body": bodyCases,
  refusals: refusalCases,
  sessions: bindingCases,
  concurrency: concurrencyCases,
  failures: failureCases,
  disconnects: disconnectCases,
  streaming: streamingCases,
  "the store": storeCases,
  mounting: mountingCases,
  operations: operationCases,
};
