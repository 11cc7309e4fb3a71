import type { Command } from "../command.ts";

/** What can come first. */
export function rootWords(commands: readonly Command[]): readonly string[] {
  return [...commands.map(({ name }) => name), "help", "--help", "--version"];
}

/** What can come after a command's name. */
export function optionWords({ options, arguments: { choices = [] } }: Command): readonly string[] {
  return [...choices, ...Object.keys(options).map((name) => `--${name}`)];
}
