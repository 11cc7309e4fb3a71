import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";

/** A server that was started for a test. */
export interface ServerProcess {
  readonly url: string;
  /** Ends it and deletes what it wrote. */
  stop(): Promise<void>;
}

/** Environment of a process; what is undefined is left out. */
type Environment = Record<string, string | undefined>;

export interface StartOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Environment;
  /** Everything that the server writes; deleted with it. */
  readonly folder: string;
  /** Its address, once it answers. */
  readonly ready: () => Promise<string | undefined>;
  readonly readyWithinMs: number;
}

/** Starts a server that ends with this process, even if that is killed. */
export async function startServerProcess(options: StartOptions): Promise<ServerProcess> {
  const child = spawn(options.command, options.args, {
    cwd: options.folder,
    env: { ...process.env, ...options.env },
    detached: true, // A group of its own, so that whatever it starts can be ended with it.
    stdio: ["ignore", "pipe", "pipe"],
  });
  let log = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk) => {
      log = (log + chunk).slice(-logCharactersMax);
    });
  }
  const exited = once(child, "exit");
  const watchdog = spawn("sh", ["-c", watchdogScript, "sh", String(child.pid), options.folder], {
    detached: true, // Ctrl-C must not end it before its work.
    cwd: "/",
    stdio: ["pipe", "ignore", "ignore"],
  });
  const cleared = once(watchdog, "exit");

  async function stop(): Promise<void> {
    watchdog.stdin.end();
    await Promise.all([exited, cleared]);
  }

  const giveUpAt = Date.now() + options.readyWithinMs;
  for (;;) {
    const url = await options.ready().catch(() => undefined);
    if (url !== undefined) return { url, stop };
    if (child.exitCode !== null || child.signalCode !== null || Date.now() > giveUpAt) {
      await stop();
      throw new Error(`${options.command} did not start. The end of its log:\n${log}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const logCharactersMax = 4_000;

/**
 * Waits for its stdin to close, which the operating system does even for a test process that was killed, then ends the
 * server with all of its children and deletes the folder.
 */
const watchdogScript = `
cat > /dev/null
kill -KILL "-$1"
for attempt in 1 2 3 4 5; do
  rm -rf "$2" && break # A process that is still dying may add a file meanwhile.
  sleep 1
done
`;

/** Ports that nobody listened on a moment ago. */
export async function freePorts(count: number): Promise<number[]> {
  const probes = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"));
  await Promise.all(probes.map((probe) => once(probe, "listening")));
  const ports = probes.map((probe) => (probe.address() as AddressInfo).port);
  await Promise.all(probes.map((probe) => once(probe.close(), "close")));
  return ports;
}

/** Whoever got one may not have begun to listen yet. */
const handedOut = new Set<number>();

/**
 * A port below the ephemeral ranges (from 32768 on Linux): while the server is stopped, an outgoing connection can
 * neither be given its port nor, by a reconnecting client's bad luck, connect to itself.
 */
export async function lastingPort(): Promise<number> {
  for (;;) {
    const port = randomInt(15_000, 32_000);
    if (handedOut.has(port)) continue;
    handedOut.add(port);
    const probe = createServer();
    const free = await new Promise<boolean>((resolve) => {
      probe.once("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!free) continue;
    probe.close();
    await once(probe, "close");
    return port;
  }
}
