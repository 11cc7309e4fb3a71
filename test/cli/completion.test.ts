import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { commands } from "../../src/cli/commands.ts";
import { CommandLine } from "./command-line.ts";

let latchkey: CommandLine;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
});
afterAll(() => latchkey.remove());

async function script(shell: string): Promise<string> {
  const { code, stdout, stderr } = await latchkey.run(["completion", shell]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

describe("bash", () => {
  let file: string;
  beforeAll(async () => {
    file = join(latchkey.folder, "completion.bash");
    writeFileSync(file, await script("bash"));
  });

  /** What Tab would offer after the last of these words. */
  function offered(...words: readonly string[]): string[] {
    const { stdout, stderr, status } = spawnSync(
      "bash",
      [
        "--noprofile",
        "--norc",
        "-c",
        // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the shell that fills it in.
        'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _latchkey; printf "%s\\n" "${COMPREPLY[@]}"',
        file,
        ...words,
      ],
      { encoding: "utf8", cwd: latchkey.folder },
    );
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    return stdout.split("\n").filter((word) => word !== "");
  }

  it("offers commands, and what is left of one that was begun", () => {
    expect(offered("latchkey", "")).toEqual([
      ...commands.map(({ name }) => name),
      "help",
      "--help",
      "--version",
    ]);
    expect(offered("latchkey", "mig")).toEqual(["migrate"]);
    expect(offered("latchkey", "help", "insp")).toEqual(["inspect"]);
  });

  it("offers every option of every command", () => {
    for (const { name, options } of commands) {
      expect(offered("latchkey", name, "--")).toEqual(Object.keys(options).map((option) => `--${option}`));
    }
  });

  it("offers the values that an option can have, also after an equals sign", () => {
    expect(offered("latchkey", "list", "--state", "")).toContain("failed_retryable");
    expect(offered("latchkey", "list", "--state", "un")).toEqual(["unknown"]);
    expect(offered("latchkey", "list", "--state", "=", "un")).toEqual(["unknown"]);
    expect(offered("latchkey", "list", "--state", "=")).toContain("completed");
    expect(offered("latchkey", "completion", "z")).toEqual(["zsh"]);
    expect(offered("latchkey", "dead-letters", "re")).toEqual(["requeue"]);
  });

  it("offers files where a file is wanted, and nothing where nobody can know the value", () => {
    expect(offered("latchkey", "resolve", "--body", "completion.")).toEqual(["completion.bash"]);
    expect(offered("latchkey", "list", "--store", "")).toEqual([]);
  });
});

/** For shells that may not be on this machine: what their scripts have to name is checked wherever they run. */
describe.each(["zsh", "fish"])("%s", (shell) => {
  it("names every command, option and choice", async () => {
    const text = await script(shell);
    for (const { name, options } of commands) {
      expect(text).toContain(name);
      for (const [option, { choices }] of Object.entries(options)) {
        expect(text).toMatch(shell === "zsh" ? `--${option}` : `-l ${option}`);
        if (choices !== undefined) expect(text).toContain(choices.join(" "));
      }
    }
  });

  it("is a script that the shell itself accepts, where there is one", async () => {
    const text = await script(shell);
    const isThere = spawnSync(shell, ["--version"]).error === undefined;
    if (isThere) expect(complaintsOf(shell, text)).toBe("");
    else if (shell === "zsh") expect(complaintsOf("bash", text)).toBe("");
    else for (const line of text.trimEnd().split("\n")) expect(line).toMatch(fishLine);
  });
});

/** What a shell says about a script that it only reads. What is used of zsh's grammar, bash has as well. */
function complaintsOf(shell: string, text: string): string {
  const { status, stderr } = spawnSync(shell, ["-n"], { input: text, encoding: "utf8" });
  return status === 0 ? stderr : `exit code ${status}: ${stderr}`;
}

/** A comment, or one command of plain words and of quoted ones, in which only quotes and backslashes are escaped. */
const fishLine = /^(?:#.*|complete(?: (?:[\w-]+|'(?:[^'\\]|\\['\\])*'))+)$/;
