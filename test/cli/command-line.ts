import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { bundle, root } from "../support/bundle.ts";

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string | Uint8Array;
}

export interface TerminalOptions extends RunOptions {
  /** What is typed when a question has been asked. */
  readonly answer?: string;
  readonly columns?: number;
  /** Where stdout goes in place of the terminal; stderr and stdin stay there. */
  readonly stdoutTo?: string;
}

/** The real entry, as a process of its own. */
export class CommandLine {
  /** Where it is run. */
  readonly folder: string;
  readonly main: string;

  private constructor(folder: string, main: string) {
    this.folder = folder;
    this.main = main;
  }

  static async bundled(): Promise<CommandLine> {
    const folder = await mkdtemp(join(tmpdir(), "latchkey-cli-"));
    const cache = join(root, "node_modules/.cache");
    await mkdir(cache, { recursive: true });
    const bundled = await mkdtemp(join(cache, "latchkey-cli-"));
    await bundle(bundled, { latchkey: join(root, "src/cli/main.ts") }, "external");
    return new CommandLine(folder, join(bundled, "latchkey.mjs"));
  }

  start(args: readonly string[], { env = {} }: RunOptions = {}): ChildProcess {
    return spawn(process.execPath, [this.main, ...args], { cwd: this.folder, env: cleanEnv(env) });
  }

  startFromSource(args: readonly string[]): ChildProcess {
    return spawn(process.execPath, ["--import", "tsx", join(root, "src/cli/main.ts"), ...args], {
      cwd: root,
      env: cleanEnv({}),
    });
  }

  async run(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
    const child = this.start(args, options);
    child.stdin?.on("error", () => {}); // It may have ended before it has read anything.
    child.stdin?.end(options.input ?? "");
    return endOf(child);
  }

  /** On a pseudo-terminal; stdout is everything that the terminal was told. */
  async inTerminal(args: readonly string[], options: TerminalOptions = {}): Promise<Ended> {
    const { env = {}, answer = "", columns = 80, stdoutTo = "" } = options;
    const command = [process.execPath, this.main, ...args];
    const script = fileURLToPath(new URL("fixtures/terminal.py", import.meta.url));
    const child = spawn("python3", [script, String(columns), answer, stdoutTo, ...command], {
      cwd: this.folder,
      env: cleanEnv(env),
    });
    return endOf(child);
  }

  async remove(): Promise<void> {
    await rm(dirname(this.main), { recursive: true, force: true });
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** What a person's shell has set must not decide what a test sees. */
function cleanEnv(env: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH, HOME: process.env.HOME, TERM: "xterm-256color", ...env };
}

export async function endOf(child: ChildProcess): Promise<Ended> {
  const [stdout, stderr, [code]] = await Promise.all([
    child.stdout ? text(child.stdout) : "",
    child.stderr ? text(child.stderr) : "",
    once(child, "exit"),
  ]);
  return { code, stdout, stderr };
}
