import type { Server } from "node:http";
import type { Application, Framework, Kind } from "./application.ts";
import { type Case, registerCase, type Site, type SiteOptions, type Trial } from "./harness.ts";

/** An application that one test builds for itself, with the same store, client and checks as all the others. */
export function custom(kind: Kind, start: (application: Application) => Promise<Server>): Framework {
  return { name: `${kind}, built for one test`, kind, parserFirst: false, start };
}

/** One test of one application. */
export function itServes(
  name: string,
  framework: Framework,
  options: SiteOptions,
  run: (site: Site, trial: Trial) => Promise<void>,
): void {
  const one: Case = { name, run: async (trial) => run(await trial.start(options), trial) };
  registerCase(framework, one);
}
