import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { lastingPort } from "../support/server-process.ts";

export interface TroubledOptions {
  readonly database: string;
  readonly port: number;
  readonly metricsPort: number;
  readonly retentionMs: number;
}

export interface FromTroubled {
  readonly type: "ready";
}

export interface ToTroubled {
  readonly storeFails?: boolean;
  readonly receiverFails?: boolean;
  readonly bust?: { readonly tenant: string; readonly key: string };
}

/** One process of the service; see test/fixtures/troubled-server.ts. */
export class TroubledProcess {
  readonly url: string;
  /** What Prometheus scrapes; the same after a restart. */
  readonly target: string;
  readonly #options: TroubledOptions;
  #child: ChildProcess | undefined;

  constructor(options: TroubledOptions) {
    this.#options = options;
    this.url = `http://127.0.0.1:${options.port}`;
    this.target = `127.0.0.1:${options.metricsPort}`;
  }

  async start(): Promise<void> {
    const file = fileURLToPath(new URL("../fixtures/troubled-server.ts", import.meta.url));
    const child = fork(file, [JSON.stringify(this.#options)], {
      execArgv: ["--import", "tsx"],
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    this.#child = child;
    const died = once(child, "exit").then(() =>
      Promise.reject(new Error("the troubled service did not start")),
    );
    await Promise.race([once(child, "message"), died]);
    died.catch(() => {});
  }

  tell(message: ToTroubled): void {
    this.#child?.send(message);
  }

  signal(signal: "SIGSTOP" | "SIGCONT"): void {
    this.#child?.kill(signal);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }
}

export interface TroubledService {
  readonly processes: readonly [TroubledProcess, TroubledProcess];
  stop(): Promise<void>;
}

/** Two processes on one database. */
export async function startTroubledService(retentionMs: number): Promise<TroubledService> {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-troubled-"));
  const one = async () =>
    new TroubledProcess({
      database: join(folder, "latchkey.db"),
      port: await lastingPort(),
      metricsPort: await lastingPort(),
      retentionMs,
    });
  const processes = [await one(), await one()] as const;
  await Promise.all(processes.map((process) => process.start()));
  return {
    processes,
    async stop() {
      await Promise.all(processes.map((process) => process.kill()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
