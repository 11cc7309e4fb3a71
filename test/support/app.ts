import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { LatchkeyOptions } from "../../src/index.ts";

export interface AppOptions {
  readonly store:
    | {
        readonly kind: "postgres";
        readonly url: string;
        readonly lock?: "lease" | "advisory";
        readonly connections?: number;
      }
    /** Any shared store; with a Redis in front of it, if there is one. */
    | { readonly kind: "url"; readonly url: string; readonly front?: string };
  readonly ledger: string;
  readonly latchkey: Partial<
    Pick<LatchkeyOptions, "leaseMs" | "onCrash" | "onInFlight" | "waitMs" | "storeTimeoutMs">
  >;
}

export type FromApp =
  | { readonly type: "listening"; readonly port: number }
  | { readonly type: "holding"; readonly key: string }
  | { readonly type: "aborted"; readonly key: string };

export interface ToApp {
  /** The key whose handler may go on. */
  readonly release: string;
}

/** A payments API in a process of its own; see test/fixtures/app-server.ts. */
export interface App {
  readonly pid: number;
  readonly url: string;
  /** Sends a charge; with `hold` its handler waits, after it was executed, until it is released. */
  charge(key: string, options?: { readonly hold?: boolean }): Promise<Response>;
  /** Waits until the app has said this about the key. */
  said(type: "holding" | "aborted", key: string): Promise<void>;
  release(key: string): void;
  signal(signal: "SIGKILL" | "SIGSTOP" | "SIGCONT"): Promise<void>;
  stop(): Promise<void>;
}

const startMs = 15_000; // A busy machine needs two seconds.
const wedgedMs = 15_000; // Many leases of the tests that ask.

export async function startApp(options: AppOptions): Promise<App> {
  const child = fork(
    fileURLToPath(new URL("../fixtures/app-server.ts", import.meta.url)),
    [JSON.stringify(options)],
    {
      execArgv: ["--import", "tsx"],
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    },
  );
  const messages: FromApp[] = [];
  child.on("message", (message) => messages.push(message as FromApp));
  const seen = async <Type extends FromApp["type"]>(
    matches: (message: FromApp) => message is Extract<FromApp, { type: Type }>,
  ) => {
    for (;;) {
      const found = messages.find(matches);
      if (found !== undefined) return found;
      await Promise.race([
        once(child, "message"),
        once(child, "exit").then(() => {
          throw new Error("the app exited");
        }),
      ]);
    }
  };
  const { port } = await within(
    startMs,
    seen((message) => message.type === "listening"),
    () => {
      child.kill("SIGKILL");
      return `the app (process ${child.pid}) did not listen within ${startMs} ms`;
    },
  );
  const url = `http://127.0.0.1:${port}`;

  return {
    pid: child.pid as number,
    url,
    charge: (key, { hold = false } = {}) =>
      fetch(`${url}/charges`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          "idempotency-key": key,
          ...(hold ? { "x-hold": "yes" } : {}),
        },
        body: '{"amount":500}',
      }),
    async said(type, key) {
      await seen(
        (message): message is Extract<FromApp, { type: typeof type }> =>
          message.type === type && "key" in message && message.key === key,
      );
    },
    release: (key) => void child.send({ release: key } satisfies ToApp),
    async signal(signal) {
      child.kill(signal);
      if (signal === "SIGKILL") await exited(child);
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill("SIGKILL");
      await exited(child);
    },
  };
}

async function exited(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

/** A folder for one test's files, and what was executed in it. */
export function workspace() {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-test-"));
  const ledger = join(folder, "ledger.txt");
  return {
    ledger,
    /** The attempts that were executed under a key, in order. */
    executions(key: string): number[] {
      let text = "";
      try {
        text = readFileSync(ledger, "utf8");
      } catch {
        // Nothing was executed yet.
      }
      return text
        .split("\n")
        .map((line) => line.split(" "))
        .filter(([executed]) => executed === key)
        .map(([, attempt]) => Number(attempt));
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Asks again until the answer is not "in flight"; a wedged key fails the test, and so does a question without answer. */
export async function untilNotInFlight(ask: () => Promise<Response>): Promise<Response> {
  const deadline = performance.now() + wedgedMs;
  for (let asked = 1; ; asked += 1) {
    const left = deadline - performance.now();
    const response = await within(left, ask(), () => `question ${asked} was not answered`);
    if (response.status !== 409) return response;
    const problem = (await response.clone().json()) as { code: string };
    if (problem.code !== "in-flight") return response;
    if (performance.now() > deadline) throw new Error(`the key is in flight after ${wedgedMs} ms`);
    await sleep(20);
  }
}

/** What takes too long says so itself, because a test's own time-out does not say what it waited for. */
async function within<T>(ms: number, doing: Promise<T>, problem: () => string): Promise<T> {
  const timer = new AbortController();
  const late = sleep(ms, undefined, { signal: timer.signal }).then(() => {
    throw new Error(problem());
  });
  late.catch(() => {});
  try {
    return await Promise.race([doing, late]);
  } finally {
    timer.abort();
  }
}
