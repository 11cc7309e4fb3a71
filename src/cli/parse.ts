import { parseArgs } from "node:util";
import type { Command, Input } from "./command.ts";
import { didYouMean } from "./did-you-mean.ts";
import { usage } from "./failure.ts";
import type { Option } from "./option.ts";

/** What was asked for, checked against the command's row; throws a usage failure that says what to write instead. */
export function parse(command: Command, argv: readonly string[]): Input {
  const { given, args } = gather(command, argv);
  // Whoever asks for help has not finished writing.
  if (given.has("help")) return { options: { help: true }, args: [] };
  const options = Object.fromEntries(
    Object.entries(command.options).map(([name, option]) => [
      name,
      option.read(given.get(name) ?? [], `--${name}`),
    ]),
  );
  checkArguments(command, args);
  return { options, args };
}

function gather(
  command: Command,
  argv: readonly string[],
): { readonly given: ReadonlyMap<string, readonly string[]>; readonly args: readonly string[] } {
  const given = new Map<string, string[]>();
  const args: string[] = [];
  for (const token of tokensOf(command, argv)) {
    switch (token.kind) {
      case "positional":
        args.push(token.value);
        break;
      case "option": {
        const option = command.options[token.name];
        if (option === undefined || !Object.hasOwn(command.options, token.name)) {
          throw unknownOption(command, token.rawName);
        }
        const values = given.get(token.name) ?? [];
        if (values.length > 0 && !option.isRepeatable) throw usage(`${token.rawName} was given twice`);
        given.set(token.name, [...values, givenValue(option, token)]);
        break;
      }
      case "option-terminator":
        break;
      default:
        token satisfies never;
    }
  }
  return { given, args };
}

/** Not strict: its complaints are about its own table, and do not say what was meant. */
function tokensOf(command: Command, argv: readonly string[]) {
  const options = Object.entries(command.options).map(([name, { placeholder, short }]) => [
    name,
    { type: placeholder === undefined ? "boolean" : "string", multiple: true, ...(short && { short }) },
  ]);
  const { tokens } = parseArgs({
    args: [...argv],
    options: Object.fromEntries(options),
    allowPositionals: true,
    strict: false,
    tokens: true,
  });
  return tokens;
}

function givenValue(
  { placeholder }: Option,
  token: {
    readonly rawName: string;
    readonly value?: string | undefined;
    readonly inlineValue?: boolean | undefined;
  },
): string {
  const { rawName, value, inlineValue } = token;
  if (placeholder === undefined) {
    if (value === undefined) return "";
    throw usage(`${rawName} takes no value`);
  }
  // What follows is another option, unless it is written as one word with this one.
  if (value === undefined || value === "" || (!inlineValue && value.startsWith("--"))) {
    throw usage(`${rawName} needs a value: ${rawName} ${placeholder}`);
  }
  return value;
}

function unknownOption(command: Command, rawName: string) {
  const known = Object.keys(command.options).map((name) => `--${name}`);
  return usage(
    `${command.name} has no option ${rawName}${didYouMean(rawName, known)}: see latchkey ${command.name} --help`,
  );
}

function checkArguments(
  { name, arguments: { synopsis, min, max, choices } }: Command,
  args: readonly string[],
) {
  const [first] = args;
  if (args.length < min) throw usage(`${name} needs ${synopsis}: see latchkey ${name} --help`);
  if (choices !== undefined && first !== undefined && !choices.includes(first)) {
    throw usage(`${name} has no "${first}"${didYouMean(first, choices)}: it takes ${choices.join(", ")}`);
  }
  const surplus = args[max];
  if (surplus !== undefined) {
    throw usage(
      `${name} does not know what to do with "${surplus}"${max === 0 ? "" : `: it takes ${synopsis}`}`,
    );
  }
}
