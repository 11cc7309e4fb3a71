import type { Command } from "./command.ts";
import { exitCodes } from "./failure.ts";
import type { Option } from "./option.ts";
import type { Screen } from "./screen.ts";

/** All commands, for whoever has named none. */
export function overview(commands: readonly Command[], screen: Screen): string {
  const width = Math.max(...commands.map(({ name }) => name.length));
  const rows = commands.map(
    ({ name, summary }) => `  ${screen.paint("bold", name.padEnd(width))}  ${summary}`,
  );
  return [
    "Every state-changing request runs at most once, and every retry gets the same answer.",
    "",
    "usage: latchkey COMMAND [OPTIONS]",
    "",
    ...rows,
    "",
    "latchkey COMMAND --help tells more about one; latchkey --version, which this is.",
    "The store is --store URL or LATCHKEY_STORE: sqlite:./file.db, postgres://…, mysql://…, redis://…,",
    "redis-cluster://… or dynamodb://region/table.",
    "",
    `exit codes: ${exitCodesText}`,
    "",
  ].join("\n");
}

const exitCodesText = [
  `${exitCodes.done} done`,
  `${exitCodes.failed} it failed`,
  `${exitCodes.badUsage} bad usage`,
  `${exitCodes.notFound} nothing found`,
  `${exitCodes.refused} refused because of the record's state`,
  `${exitCodes.interrupted} interrupted`,
].join(", ");

/** One command, whole. */
export function helpOf(command: Command, screen: Screen): string {
  const { description, examples, options } = command;
  const rows = Object.entries(options).map(([name, option]) => [optionText(name, option), option] as const);
  const width = Math.max(...rows.map(([text]) => text.length));
  return [
    `usage: ${synopsisOf(command)}`,
    "",
    ...wrapped(description, 0),
    "",
    ...rows.flatMap(([text, option]) => {
      const [first = "", ...rest] = wrapped(aboutOption(option), width + 4);
      return [`  ${screen.paint("bold", text.padEnd(width))}  ${first.trimStart()}`, ...rest];
    }),
    "",
    ...(examples.length === 0 ? [] : ["examples:"]),
    ...examples.flatMap(({ command: line, does }) => [`  ${line}`, `      ${does}`]),
    ...(examples.length === 0 ? [] : [""]),
  ].join("\n");
}

export function synopsisOf({ name, arguments: { synopsis }, options }: Command): string {
  const hasOptions = Object.keys(options).length > 0;
  return ["latchkey", name, synopsis, hasOptions ? "[OPTIONS]" : ""].filter((part) => part !== "").join(" ");
}

/** An option as it is written, such as `-h, --help` or `--state STATE`. */
export function optionText(name: string, { short, placeholder }: Option): string {
  return [
    short === undefined ? "" : `-${short}, `,
    `--${name}`,
    placeholder === undefined ? "" : ` ${placeholder}`,
  ].join("");
}

/** What it does, what it can be, and what it is if it is left out. */
export function aboutOption({ description, choices, byDefault, isRepeatable }: Option): string {
  return [
    description,
    choices === undefined ? "" : `One of: ${choices.join(", ")}.`,
    isRepeatable ? "May be given more than once." : "",
    byDefault === undefined ? "" : `Default: ${byDefault}.`,
  ]
    .filter((sentence) => sentence !== "")
    .join(" ");
}

const lineLength = 100;

function wrapped(text: string, indent: number): string[] {
  const lines: string[] = [];
  let line = " ".repeat(indent);
  for (const word of text.split(/\s+/)) {
    if (line.trim() !== "" && line.length + word.length + 1 > lineLength) {
      lines.push(line);
      line = " ".repeat(indent);
    }
    line += line.trim() === "" ? word : ` ${word}`;
  }
  return [...lines, line];
}
