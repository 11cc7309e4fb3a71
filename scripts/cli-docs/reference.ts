import type { Command } from "../../src/cli/command.ts";
import { aboutOption, optionText, synopsisOf } from "../../src/cli/help.ts";

const begin = "<!-- commands: made by npm run docs:cli from the table of commands -->";
const end = "<!-- end of commands -->";

/** The page with the reference of every command put in place of the one that it has. */
export function withReference(page: string, commands: readonly Command[]): string {
  const [before, after] = [page.indexOf(begin), page.indexOf(end)];
  if (before === -1 || after < before) throw new Error(`the page needs the lines ${begin} and ${end}`);
  const reference = commands.map(sectionOf).join("\n");
  return `${page.slice(0, before)}${begin}\n\n${reference}\n${page.slice(after)}`;
}

function sectionOf(command: Command): string {
  const { name, description, options, examples } = command;
  const rows = Object.entries(options)
    .filter(([option]) => option !== "help")
    .map(([option, spec]) => `| \`${optionText(option, spec)}\` | ${cell(aboutOption(spec))} |`);
  return [
    `### ${name}`,
    "",
    `\`${synopsisOf(command)}\``,
    "",
    prose(description),
    "",
    ...(rows.length === 0 ? [] : ["| option | |", "|---|---|", ...rows, ""]),
    "```sh",
    ...examples.map(({ command: line, does }) => `${line}  # ${does}`),
    "```",
    "",
  ].join("\n");
}

function cell(text: string): string {
  return prose(text).replaceAll("|", "\\|");
}

/** Markdown takes some characters of a plain text for its own. */
function prose(text: string): string {
  return text.replaceAll(/([*_<])/g, "\\$1");
}
