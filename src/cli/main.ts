#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { type Command, jsonOption } from "./command.ts";
import { commands } from "./commands.ts";
import { Context } from "./context.ts";
import { didYouMean } from "./did-you-mean.ts";
import { exitCodes, failureOf, usage } from "./failure.ts";
import { helpOf, overview } from "./help.ts";
import { parse } from "./parse.ts";
import { visibleJson, visibleLines } from "./screen.ts";

// What a driver has to say about next year's Node is nothing that was asked for.
process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED ??= "true";

const argv = process.argv.slice(2);
// Asked before anything is parsed, because what cannot be parsed is an error, too.
const context = new Context(process, { isJson: argv.includes(`--${Object.keys(jsonOption)[0]}`) });

// Whoever reads has seen enough, as `| head` has: no reason to complain.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) =>
    process.exit(error.code === "EPIPE" ? exitCodes.done : exitCodes.failed),
  );
}

let endedBy: "SIGINT" | "SIGTERM" | undefined;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    const isFirst = endedBy === undefined;
    endedBy ??= signal;
    if (isFirst && context.stop(signal)) return;
    if (context.stderr.isTerminal) process.stderr.write("\n");
    process.exit(signal === "SIGINT" ? exitCodes.interrupted : terminated);
  });
}
const terminated = 143; // 128 and the number of SIGTERM, as a shell says it.

process.exit(await exitCodeOf());

async function exitCodeOf(): Promise<number> {
  try {
    await run();
    return endedBy === "SIGINT" ? exitCodes.interrupted : exitCodes.done;
  } catch (error) {
    const { exitCode, code, message } = failureOf(error);
    const said = context.secrets.hidden(message);
    await context.stderr.write(
      context.isJson
        ? `${visibleJson({ error: { code, message: said } })}\n`
        : `${context.stderr.paint("red", "latchkey:")} ${visibleLines(said)}\n`,
    );
    return exitCode;
  }
}

async function run(): Promise<void> {
  const [name, ...rest] = argv;
  switch (name) {
    case undefined:
      await context.stderr.write(overview(commands, context.stderr));
      throw usage("which command?");
    case "-v":
    case "--version":
      return context.answer({ version: version() }, version);
    case "-h":
    case "--help":
      return help([]);
    case "help":
      return help(rest.filter((word) => !word.startsWith("-")));
    default: {
      const command = commandNamed(name);
      const input = parse(command, rest);
      if (input.options.help) return help([command.name]);
      return command.run(context, input);
    }
  }
}

function help([name]: readonly string[]): Promise<void> {
  const { stdout } = context;
  return stdout.write(name === undefined ? overview(commands, stdout) : helpOf(commandNamed(name), stdout));
}

function commandNamed(name: string): Command {
  const found = commands.find((command) => command.name === name);
  if (found !== undefined) return found;
  if (name.startsWith("-")) throw usage(`options come after the command: latchkey COMMAND ${name}`);
  const names = [...commands.map((command) => command.name), "help"];
  throw usage(`there is no command "${name}"${didYouMean(name, names)}: see latchkey help`);
}

/** As it was published: from source and from dist it lies two folders up. */
function version(): string {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  return version;
}
