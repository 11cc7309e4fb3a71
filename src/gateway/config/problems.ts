import { ConfigError } from "../../core/errors.ts";

/** The way to a member: `["routes", 2, "protect", "waitMs"]`. */
export type MemberPath = readonly (string | number)[];

/** Something that is wrong with a configuration, or (a warning) that is probably not meant. */
export interface ConfigProblem {
  readonly severity: "error" | "warning";
  /** `gateway.yaml:12:5`, or the flag that said so. */
  readonly place: string;
  readonly path: MemberPath;
  /** What is wrong and what to do, without the member's name. Never the value of a secret. */
  readonly sentence: string;
}

/** `routes[2].protect.waitMs` */
export function shownPath(path: MemberPath): string {
  let shown = "";
  for (const part of path) {
    if (typeof part === "number") shown += `[${part}]`;
    else if (/^[\w$-]+$/.test(part)) shown += shown === "" ? part : `.${part}`;
    else shown += `[${JSON.stringify(part)}]`;
  }
  return shown;
}

/** One line for people. */
export function problemLine({ place, path, sentence, severity }: ConfigProblem): string {
  const start = severity === "warning" ? `${place}: warning:` : `${place}:`;
  return path.length === 0 ? `${start} ${sentence}` : `${start} ${shownPath(path)} ${sentence}`;
}

/** A configuration cannot be used. Every problem has its line in the message. */
export class GatewayConfigError extends ConfigError {
  readonly problems: readonly ConfigProblem[];

  constructor(problems: readonly ConfigProblem[]) {
    super(`the gateway's configuration cannot be used:\n${problems.map(problemLine).join("\n")}`);
    this.problems = problems;
  }
}
