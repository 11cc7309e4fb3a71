import { userInfo } from "node:os";
import type { Logger } from "../engine/logging.ts";
import { jsonLogger } from "../gateway/log.ts";
import { Screen, visibleJson } from "./screen.ts";
import { Secrets } from "./secrets.ts";

/** What a command has around it. */
export class Context {
  readonly env: NodeJS.ProcessEnv;
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: Screen;
  readonly stderr: Screen;
  readonly isJson: boolean;
  /** What must not be in any output. */
  readonly secrets = new Secrets();
  readonly #stop: (signal: "SIGINT" | "SIGTERM") => void;
  readonly #stopped: Promise<"SIGINT" | "SIGTERM">;
  #drains = false;

  constructor({ env, stdin, stdout, stderr }: NodeJS.Process, { isJson }: { readonly isJson: boolean }) {
    this.env = env;
    this.stdin = stdin;
    this.stdout = new Screen(stdout, env);
    this.stderr = new Screen(stderr, env);
    this.isJson = isJson;
    const { promise, resolve } = withResolvers<"SIGINT" | "SIGTERM">();
    this.#stopped = promise;
    this.#stop = resolve;
  }

  /** Writes what was asked for: the document as JSON, or the text that is made of it. */
  async answer(document: unknown, text: () => string): Promise<void> {
    const written = this.isJson ? visibleJson(document) : text();
    await this.stdout.write(written.endsWith("\n") ? written : `${written}\n`);
  }

  /** Says something to whoever is watching, beside what was asked for. */
  note(text: string): Promise<void> {
    return this.stderr.write(`${this.secrets.hidden(text)}\n`);
  }

  /** For servers: one line of JSON for each, on stderr. */
  get logger(): Logger {
    return jsonLogger((line) => process.stderr.write(this.secrets.hidden(line)));
  }

  /** Once a command has asked this, the first signal only tells it to end, and the second ends the process. */
  untilStopped(): Promise<"SIGINT" | "SIGTERM"> {
    this.#drains = true;
    return this.#stopped;
  }

  /** False if the process has to end at once, because nobody ends anything in order. */
  stop(signal: "SIGINT" | "SIGTERM"): boolean {
    if (!this.#drains) return false;
    this.#stop(signal);
    return true;
  }

  /** Who is sitting there, as the operating system knows it. */
  get user(): string {
    try {
      return userInfo().username;
    } catch {
      // A container may run under a number that has no name.
      return this.env.USER || this.env.LOGNAME || "unknown";
    }
  }
}

function withResolvers<T>() {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}
