import type { Command } from "../command.ts";
import type { Option } from "../option.ts";

/** For fish: `latchkey completion fish | source`, or as a file in `~/.config/fish/completions`. */
export function fishCompletion(commands: readonly Command[]): string {
  return [
    "# latchkey: completion for fish. To be sourced, or put into ~/.config/fish/completions/latchkey.fish.",
    "complete -c latchkey -f",
    ...commands.map(
      ({ name, summary }) => `complete -c latchkey -n __fish_use_subcommand -a ${name} -d ${quoted(summary)}`,
    ),
    "complete -c latchkey -n __fish_use_subcommand -a help -d 'tells more about a command'",
    "complete -c latchkey -n __fish_use_subcommand -l help -s h",
    "complete -c latchkey -n __fish_use_subcommand -l version -s v",
    `complete -c latchkey -n '__fish_seen_subcommand_from help' -a ${quoted(commands.map(({ name }) => name).join(" "))}`,
    ...commands.flatMap(commandLines),
    "",
  ].join("\n");
}

function commandLines({ name, options, arguments: { choices } }: Command): string[] {
  const when = `complete -c latchkey -n '__fish_seen_subcommand_from ${name}'`;
  const args = choices === undefined ? [] : [`${when} -a ${quoted(choices.join(" "))}`];
  return [
    ...args,
    ...Object.entries(options).map(([option, spec]) => `${when} ${optionWords(option, spec)}`),
  ];
}

function optionWords(name: string, { short, placeholder, choices, isFile, description }: Option): string {
  const parts = [`-l ${name}`];
  if (short !== undefined) parts.push(`-s ${short}`);
  // A file is completed as fish does it anyway, and nothing else is.
  if (placeholder !== undefined) parts.push(isFile ? "-r -F" : "-x");
  if (choices !== undefined) parts.push(`-a ${quoted(choices.join(" "))}`);
  return [...parts, `-d ${quoted(description)}`].join(" ");
}

function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}
