import { chmod, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { librariesOf, onPath, unpackDebianPackages } from "./debian-packages.ts";
import { freePorts, type ServerProcess, startServerProcess } from "./server-process.ts";

/**
 * A PgBouncer in transaction mode before a Postgres: each transaction goes to whichever of two connections is free. Its
 * `url` is that of the database behind it, by another way. A connection that is cut while it is made is made again at
 * once, and not after the quarter of a minute that PgBouncer waits if it is told nothing.
 */
export async function startPgBouncer(databaseUrl: string): Promise<ServerProcess> {
  const { command, env } = await findPgBouncer();
  const folder = await mkdtemp(join(tmpdir(), "latchkey-pgbouncer-"));
  const [port = 0] = await freePorts(1);
  const behind = new URL(databaseUrl);
  const isRoot = process.getuid?.() === 0;
  // It refuses to be root, and whoever it becomes has to read its settings.
  if (isRoot) await chmod(folder, 0o755);
  const settings = join(folder, "pgbouncer.ini");
  const database = behind.pathname.slice(1);
  await writeFile(
    settings,
    `[databases]
${database} = host=${behind.hostname} port=${behind.port} user=${behind.username || "postgres"}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
server_login_retry = 0
ignore_startup_parameters = extra_float_digits
${isRoot ? "user = nobody" : ""}
`,
  );
  const url = new URL(databaseUrl);
  url.port = String(port);
  return startServerProcess({
    command,
    args: [settings],
    env,
    folder,
    ready: async () => ((await answers(url.href)) ? url.href : undefined),
    readyWithinMs: 10_000,
  });
}

async function answers(url: string): Promise<boolean> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query("SELECT 1")).rowCount === 1;
  } finally {
    await client.end();
  }
}

async function findPgBouncer(): Promise<{ command: string; env: Record<string, string> }> {
  const installed = onPath("pgbouncer");
  if (installed !== undefined) return { command: installed, env: {} };
  try {
    const home = await unpackDebianPackages({ packages: ["pgbouncer", "libevent-2.1-7", "libc-ares2"] });
    return { command: join(home, "usr/sbin/pgbouncer"), env: { LD_LIBRARY_PATH: librariesOf(home) } };
  } catch (cause) {
    throw new Error(
      "No PgBouncer for the tests: put pgbouncer on PATH, or run where apt-get can download Debian's package (no root needed).",
      { cause },
    );
  }
}
