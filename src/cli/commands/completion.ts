import { type Command, command } from "../command.ts";
import { bashCompletion } from "../completion/bash.ts";
import { fishCompletion } from "../completion/fish.ts";
import { zshCompletion } from "../completion/zsh.ts";

const scripts = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion } as const;
type Shell = keyof typeof scripts;
const shells = Object.keys(scripts) as Shell[];

/** `table` is the one that this command is a row of. */
export function completionOf(table: () => readonly Command[]): Command {
  return command({
    name: "completion",
    summary: "prints a script with which a shell completes commands, options and values",
    description:
      "Prints the script. Load it where your shell is set up; it does not start latchkey when you press Tab.",
    arguments: { synopsis: shells.join(" | "), min: 1, max: 1, choices: shells },
    options: {},
    examples: [
      { command: "source <(latchkey completion bash)", does: "in ~/.bashrc" },
      { command: "source <(latchkey completion zsh)", does: "in ~/.zshrc, after compinit" },
      { command: "latchkey completion fish > ~/.config/fish/completions/latchkey.fish", does: "once" },
    ],
    async run({ stdout }, { args: [shell] }) {
      // The parser lets nothing else through.
      await stdout.write(scripts[shell as Shell](table()));
    },
  });
}
