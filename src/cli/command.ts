import type { Context } from "./context.ts";
import { flag, type Options, type ValuesOf } from "./option.ts";

/** What a command takes beside its options. */
export interface Arguments {
  /** As the synopsis shows them, such as `KEY` or `[list | requeue ID…]`. */
  readonly synopsis: string;
  readonly min: number;
  readonly max: number;
  /** What the first can be, where that can be listed. */
  readonly choices?: readonly string[];
}

export interface Example {
  readonly command: string;
  readonly does: string;
}

/** One row of the table of commands, from which everything that is known about commands is made. */
export interface Command {
  readonly name: string;
  /** One line, for the list of commands. */
  readonly summary: string;
  /** What somebody has to know before using it. */
  readonly description: string;
  readonly arguments: Arguments;
  readonly options: Options;
  readonly examples: readonly Example[];
  run(context: Context, input: Input): Promise<void>;
}

export interface Input<O extends Options = Options> {
  readonly options: ValuesOf<O>;
  readonly args: readonly string[];
}

export const noArguments: Arguments = { synopsis: "", min: 0, max: 0 };

/** A command whose `run` knows the types of its options. Every command has `--help`. */
export function command<O extends Options>(
  spec: Omit<Command, "options" | "run"> & {
    readonly options: O;
    run(context: Context, input: Input<O>): Promise<void>;
  },
): Command {
  return {
    ...spec,
    options: { ...spec.options, help: flag("Shows this text.", "h") },
    // The parser has read every option by this very table.
    run: (context, input) => spec.run(context, input as Input<O>),
  };
}

/** On every command that answers something. */
export const jsonOption = {
  json: flag("Answers with JSON on stdout and nothing else; errors are JSON on stderr."),
};
