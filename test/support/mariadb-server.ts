import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdir, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createConnection } from "mysql2/promise";
import { onPath, unpackDebianPackages } from "./debian-packages.ts";
import { freePorts } from "./server-process.ts";

/** A real MariaDB of one's own: it can be killed without disturbing other tests. */
export interface MariadbServer {
  /** Root's URL, without a database. */
  readonly url: string;
  createDatabase(): Promise<TestDatabase>;
  /** SIGKILL, like a power cut but for what the operating system still writes. Resolves when the process is gone. */
  kill(): Promise<void>;
  /** Starts again on the same port and the same data; answers when the server does. */
  start(): Promise<void>;
  /** Ends the server and deletes its data. */
  remove(): Promise<void>;
}

export interface TestDatabase {
  readonly url: string;
  drop(): Promise<void>;
}

/** A server with durable settings; the one in `LATCHKEY_TEST_MYSQL_URL` if that is set, which can not be killed. */
export async function startMariadb(): Promise<MariadbServer> {
  const ownUrl = process.env.LATCHKEY_TEST_MYSQL_URL;
  return ownUrl ? borrowed(ownUrl) : startOwnMariadb();
}

/** One that may be killed, whatever the environment says. */
export async function startOwnMariadb(): Promise<MariadbServer> {
  const binaries = await findMariadb();
  const folder = await mkdtemp(join(tmpdir(), "latchkey-mariadb-"));
  const data = join(folder, "data");
  await mkdir(data);
  const [port = 0] = await freePorts(1);
  const url = `mysql://root@127.0.0.1:${port}/`;
  const watchdog = spawn("sh", ["-c", watchdogScript, "sh", folder], {
    detached: true, // Ctrl-C must not end it before its work.
    cwd: "/",
    stdio: ["pipe", "ignore", "ignore"],
  });
  const cleared = once(watchdog, "exit");
  let running: Running | undefined;

  function launch(args: readonly string[], input: string): Running {
    const child = spawn(binaries.server, [...commonArguments(binaries, data), ...args], {
      cwd: folder,
      env: { ...process.env, ...binaries.env },
      detached: true, // A group of its own, so that Ctrl-C reaches the tests and not the server below them.
      stdio: ["pipe", "ignore", "pipe"],
    });
    watchdog.stdin.write(`${child.pid}\n`);
    const launched: Running = { child, log: "", exited: once(child, "exit") };
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      launched.log = (launched.log + text).slice(-logCharactersMax);
    });
    child.stdin?.on("error", () => {}); // A server that refuses its input ends with a log that says why.
    child.stdin?.end(input);
    return launched;
  }

  async function start(): Promise<void> {
    const server = launch([...serverArguments, `--port=${port}`, `--socket=${join(folder, "socket")}`], "");
    running = server;
    const giveUpAt = performance.now() + startDeadlineMs;
    while (!(await answers(url))) {
      const hasEnded = server.child.exitCode !== null || server.child.signalCode !== null;
      if (hasEnded || performance.now() > giveUpAt) {
        throw new Error(`MariaDB did not start. The end of its log:\n${server.log}`);
      }
      await delay(startPollMs);
    }
  }

  async function remove(): Promise<void> {
    watchdog.stdin.end();
    await Promise.all([running?.exited, cleared]);
  }

  try {
    const bootstrap = launch(["--bootstrap", "--skip-networking"], systemTables(binaries.share));
    await bootstrap.exited;
    if (bootstrap.child.exitCode !== 0) throw new Error(`MariaDB made no tables:\n${bootstrap.log}`);
    await start();
  } catch (error) {
    await remove();
    throw error;
  }
  return {
    url,
    start,
    remove,
    createDatabase: () => createDatabase(url),
    async kill() {
      running?.child.kill("SIGKILL");
      await running?.exited;
    },
  };
}

interface Running {
  readonly child: ChildProcess;
  /** The end of what the process wrote to stderr. */
  log: string;
  readonly exited: Promise<unknown>;
}

const logCharactersMax = 4_000;
const startDeadlineMs = 15_000; // A start takes 0.3 s, recovery after a kill not much more.
const startPollMs = 20;

/**
 * Remembers the last process of which it was told, and when its stdin is closed, which the operating system does even
 * for a test process that was killed, ends that one and deletes the folder.
 */
const watchdogScript = `
while read -r pid; do last=$pid; done
[ -n "$last" ] && kill -KILL "$last"
for attempt in 1 2 3 4 5; do
  rm -rf "$1" && break # A process that is still dying may add a file meanwhile.
  sleep 1
done
`;

function commonArguments({ share, plugins }: Binaries, data: string): string[] {
  return [
    "--no-defaults",
    ...(process.getuid?.() === 0 ? ["--user=root"] : []),
    `--datadir=${data}`,
    `--lc-messages-dir=${share}`,
    `--character-sets-dir=${join(share, "charsets")}`,
    `--plugin-dir=${plugins}`,
    "--innodb-log-file-size=32M", // Made anew for each server.
    "--innodb-buffer-pool-size=64M",
  ];
}

const serverArguments = [
  "--bind-address=127.0.0.1",
  "--skip-name-resolve",
  "--max-connections=300",
  // Durable: what was acknowledged is on disk. It is the default, and the crash tests depend on it.
  "--innodb-flush-log-at-trx-commit=1",
  "--innodb-buffer-pool-load-at-startup=OFF",
];

/** What mariadb-install-db feeds to the server, without the help texts. Each line of these files is one statement. */
function systemTables(share: string): string {
  const files = ["mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"];
  return [
    "CREATE DATABASE mysql;",
    "USE mysql;",
    "SET @auth_root_socket = NULL;",
    "SET @current_hostname = '127.0.0.1';",
    ...files.map((file) => readFileSync(join(share, file), "utf8")),
  ].join("\n");
}

async function answers(url: string): Promise<boolean> {
  try {
    await runStatement(url, "SELECT 1");
    return true;
  } catch {
    return false;
  }
}

async function createDatabase(serverUrl: string): Promise<TestDatabase> {
  const name = `latchkey_${randomBytes(8).toString("hex")}`;
  await runStatement(serverUrl, `CREATE DATABASE ${name}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return { url: url.href, drop: () => runStatement(serverUrl, `DROP DATABASE IF EXISTS ${name}`) };
}

async function runStatement(uri: string, statement: string): Promise<void> {
  const connection = await createConnection({ uri, connectTimeout: 1_000 });
  // A connection that breaks while the server starts is one more reason to try again, not an uncaught error.
  connection.on("error", () => {});
  try {
    await connection.query(statement);
  } finally {
    connection.destroy();
  }
}

function borrowed(url: string): MariadbServer {
  const refuse = async () => {
    throw new Error("The server in LATCHKEY_TEST_MYSQL_URL is not this test's to kill.");
  };
  return {
    url,
    createDatabase: () => createDatabase(url),
    kill: refuse,
    start: refuse,
    remove: async () => {},
  };
}

interface Binaries {
  readonly server: string;
  readonly share: string;
  readonly plugins: string;
  readonly env: Readonly<Record<string, string>>;
}

async function findMariadb(): Promise<Binaries> {
  const installed = onPath("mariadbd");
  if (installed !== undefined) {
    const root = dirname(dirname(installed));
    return {
      server: installed,
      share: join(root, "share/mysql"),
      plugins: join(root, "lib/mysql/plugin"),
      env: {},
    };
  }
  try {
    const home = await unpackDebianPackages({
      packages: ["mariadb-server-core", "mariadb-client-core", "libmariadb3", "libaio1", "liburing2"],
    });
    const machine = { x64: "x86_64", arm64: "aarch64" }[process.arch as string] ?? process.arch;
    return {
      server: join(home, "usr/sbin/mariadbd"),
      share: join(home, "usr/share/mysql"),
      plugins: join(home, "usr/lib/mysql/plugin"),
      env: { LD_LIBRARY_PATH: join(home, `usr/lib/${machine}-linux-gnu`) },
    };
  } catch (cause) {
    throw new Error(
      "No MariaDB for the tests: put mariadbd on PATH, or set LATCHKEY_TEST_MYSQL_URL to a MySQL or MariaDB server on " +
        "which databases may be created, or run where apt-get can download Debian's packages (no root needed).",
      { cause },
    );
  }
}
