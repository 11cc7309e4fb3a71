import { createInterface } from "node:readline/promises";
import type { Context } from "./context.ts";
import { failed, usage } from "./failure.ts";

/** Asks before something is changed. Without a person at a terminal the command line itself has to say so. */
export async function confirm(
  context: Context,
  question: string,
  { yes }: { readonly yes: boolean },
): Promise<void> {
  if (yes) return;
  if (!context.stdin.isTTY || !context.stderr.isTerminal) {
    throw usage("this changes something, and nobody is there to confirm it: add --yes");
  }
  const lines = createInterface({ input: context.stdin, output: process.stderr });
  try {
    // Ctrl-C while it asks is the reader's to notice, and means what it always means.
    lines.once("SIGINT", () => process.kill(process.pid, "SIGINT"));
    const answer = await lines.question(`${question} [y/N] `);
    if (/^y(es)?$/i.test(answer.trim())) return;
  } finally {
    lines.close();
  }
  throw failed("not confirmed: nothing was changed", "not-confirmed");
}
