import { type ChildProcess, fork } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { LiveEventView } from "../admin/views.ts";
import type { ProcessState } from "./trace.ts";

export interface PaymentsSettings {
  readonly databasePath: string;
  readonly providerUrl: string;
  /** 0 for a free one; a process that is started again listens where its predecessor did. */
  readonly port: number;
}

/** What the process of the payments API tells. */
export type FromPayments =
  | { readonly kind: "listening"; readonly port: number }
  | {
      readonly kind: "handler";
      readonly at: number;
      readonly order: string;
      readonly request: number;
      readonly state: "begun" | "answered" | "failed";
    }
  | { readonly kind: "event"; readonly event: LiveEventView };

export interface SupervisorOptions {
  readonly databasePath: string;
  readonly providerUrl: string;
  onMessage(message: Exclude<FromPayments, { kind: "listening" }>, pid: number): void;
  /** A process has gone (`killed` if it was killed here), or another one answers in its place. */
  onProcess(what: "killed" | "ended" | "started", pid: number): void;
}

const restartsInARowMax = 5; // A process that dies five times before it listens will not do better the sixth time.
const endMs = 3_000; // Longer than it takes to drain; then it is killed.

/** Runs the payments API in a process of its own, and starts it again when it dies. */
export class PaymentsSupervisor {
  readonly #options: SupervisorOptions;
  #child: ChildProcess | undefined;
  #isListening = false;
  #port = 0;
  #restarts = 0;
  #isEnding = false;

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  get port(): number {
    return this.#port;
  }

  get state(): ProcessState {
    return { pid: this.#isListening ? (this.#child?.pid ?? null) : null, restarts: this.#restarts };
  }

  /** Resolves when the API answers; rejects if it cannot be started. */
  async start(): Promise<void> {
    for (let failures = 1; ; failures += 1) {
      if (await this.#spawn()) return;
      if (this.#isEnding) return;
      if (failures >= restartsInARowMax) throw new Error("the payments API of the playground does not start");
    }
  }

  /** SIGKILL: nothing in the process gets to say anything any more. */
  kill(): void {
    this.#child?.kill("SIGKILL");
  }

  async end(): Promise<void> {
    this.#isEnding = true;
    const child = this.#child;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    const tooLate = setTimeout(() => child.kill("SIGKILL"), endMs);
    // One that has just died cannot be told any more, and then nothing is left to do but to hear of it.
    if (child.connected) child.send({ kind: "end" }, () => {});
    await gone;
    clearTimeout(tooLate);
  }

  /** Whether it came to listen. From then on it is watched, and started again when it dies. */
  #spawn(): Promise<boolean> {
    const { databasePath, providerUrl, onMessage, onProcess } = this.#options;
    const settings: PaymentsSettings = { databasePath, providerUrl, port: this.#port };
    const child = fork(program, [JSON.stringify(settings)], { execArgv: [...loader] });
    const pid = child.pid ?? 0;
    this.#child = child;
    return new Promise((resolve) => {
      child.on("message", (message: FromPayments) => {
        if (message.kind !== "listening") return onMessage(message, pid);
        this.#port = message.port;
        this.#isListening = true;
        onProcess("started", pid);
        resolve(true);
      });
      // It could not be started, or not be killed; the latter is heard of as its exit.
      child.on("error", () => {
        if (child.pid === undefined) resolve(false);
      });
      child.on("exit", (_, signal) => {
        if (!this.#isListening) return resolve(false);
        this.#isListening = false;
        onProcess(signal === "SIGKILL" ? "killed" : "ended", pid);
        if (this.#isEnding) return;
        this.#restarts += 1;
        this.start().catch((error) => process.emitWarning(error));
      });
    });
  }
}

/** From source it runs as this does: as TypeScript. */
const isSource = import.meta.url.endsWith(".ts");
const program = fileURLToPath(new URL(`./payments-process.${isSource ? "ts" : "js"}`, import.meta.url));
const loader = isSource
  ? ["--import", pathToFileURL(createRequire(import.meta.url).resolve("tsx")).href]
  : [];
