import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { librariesOf, onPath, unpackDebianPackages } from "./debian-packages.ts";
import { lastingPort, type ServerProcess, startServerProcess } from "./server-process.ts";

/** A Redis or Valkey that was started for a test. */
export interface RedisServer extends ServerProcess {
  readonly port: number;
  /** Ends it as a crash would; what was written down stays for `restart`. */
  kill(): Promise<void>;
  /** Starts it again on the same port and with the same files. */
  restart(): Promise<void>;
}

export interface RedisOptions {
  /** More settings, as on the command line: `["--appendonly", "yes"]`. */
  readonly args?: readonly string[];
  readonly port?: number;
}

/**
 * A Redis, kept in memory only unless the options say otherwise; the one in `LATCHKEY_TEST_REDIS_URL` if that is set and
 * nothing special is asked for.
 */
export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  const ownUrl = process.env.LATCHKEY_TEST_REDIS_URL;
  if (ownUrl && options.args === undefined) return serverOfUser(ownUrl);
  const args = ["--save", "", ...(options.args ?? [])];
  if (options.port !== undefined) return startProgram({ args, port: options.port });
  return withOtherPorts(async () => startProgram({ args, port: await lastingPort() }));
}

/** A cluster of three primaries with a replica each, which fails over within seconds. */
export interface RedisCluster {
  readonly nodes: readonly { readonly host: string; readonly port: number }[];
  readonly url: string;
  /** Ends the primary of a key as a crash would, and answers its port. */
  killPrimaryOf(key: string): Promise<number>;
  /** Starts a node again that was killed: it follows whoever has taken its place. */
  restart(port: number): Promise<void>;
  /** Resolves when every slot is served again, by somebody else than the node at `port`. */
  recovered(port: number): Promise<void>;
  stop(): Promise<void>;
}

export function startRedisCluster(options: RedisOptions = {}): Promise<RedisCluster> {
  return withOtherPorts(() => startClusterOnce(options));
}

async function startClusterOnce(options: RedisOptions): Promise<RedisCluster> {
  const ports = await lastingPorts(6);
  const busPorts = await lastingPorts(6);
  const servers = await allStarted(
    ports.map((port, index) =>
      startRedis({
        port,
        args: [
          ...["--cluster-enabled", "yes", "--cluster-port", String(busPorts[index])],
          ...["--cluster-node-timeout", String(nodeTimeoutMs)],
          // Otherwise a replica that has just come does not take part in an election.
          ...["--repl-diskless-sync-delay", "0", "--cluster-require-full-coverage", "no"],
          ...(options.args ?? []),
        ],
      }),
    ),
  );
  const [first = 0] = ports;
  await Promise.all(ports.map((port, index) => ask(port, "CLUSTER", "SET-CONFIG-EPOCH", String(index + 1))));
  const meeting = ["127.0.0.1", String(first), String(busPorts[0])];
  await Promise.all(ports.slice(1).map((port) => ask(port, "CLUSTER", "MEET", ...meeting)));
  for (const [index, port] of ports.slice(0, 3).entries()) {
    const [from, to] = [Math.floor((16_384 * index) / 3), Math.floor((16_384 * (index + 1)) / 3) - 1];
    await ask(port, "CLUSTER", "ADDSLOTSRANGE", String(from), String(to));
  }
  for (const [index, port] of ports.slice(3).entries()) {
    const primary = String(await ask(ports[index] ?? 0, "CLUSTER", "MYID"));
    await until(`node ${port} follows ${primary}`, async () => {
      await ask(port, "CLUSTER", "REPLICATE", primary);
      return true;
    });
  }
  await until("the cluster is whole", async () => {
    const states = await Promise.all(ports.map((port) => ask(port, "CLUSTER", "INFO")));
    const links = await Promise.all(ports.slice(3).map((port) => ask(port, "INFO", "replication")));
    return (
      states.every((state) => /cluster_state:ok.*cluster_known_nodes:6/s.test(String(state))) &&
      links.every((link) => String(link).includes("master_link_status:up"))
    );
  });

  const alive = new Set(ports);
  return {
    nodes: ports.map((port) => ({ host: "127.0.0.1", port })),
    url: `redis-cluster://${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
    async killPrimaryOf(key) {
      const port = await primaryOf(key, [...alive]);
      alive.delete(port);
      await servers[ports.indexOf(port)]?.kill();
      return port;
    },
    async restart(port) {
      await servers[ports.indexOf(port)]?.restart();
      alive.add(port);
      await until("the node follows", async () =>
        String(await ask(port, "INFO", "replication")).includes("master_link_status:up"),
      );
    },
    recovered: (port) =>
      until("another node serves the slots", async () => {
        const states = await Promise.all(
          [...alive].map(async (each) => [
            String(await ask(each, "CLUSTER", "INFO")),
            String(await ask(each, "CLUSTER", "NODES")),
          ]),
        );
        return states.every(([info, nodes]) => {
          const lost = nodes?.split("\n").find((line) => line.includes(`:${port}@`)) ?? "";
          const [, , , , , , , , ...slots] = lost.split(" ");
          return info?.includes("cluster_slots_ok:16384") && slots.length === 0;
        });
      }),
    stop: async () => void (await Promise.all(servers.map((server) => server.stop()))),
  };
}

/** A primary with a replica, and three sentinels that watch them under the name `latchkey`. */
export interface RedisSentinel {
  readonly name: string;
  readonly sentinels: readonly { readonly host: string; readonly port: number }[];
  killPrimary(): Promise<void>;
  stop(): Promise<void>;
}

export async function startSentinel(): Promise<RedisSentinel> {
  const name = "latchkey";
  const primary = await startRedis({ args: ["--repl-diskless-sync-delay", "0"] });
  const replica = await startRedis({ args: ["--replicaof", "127.0.0.1", String(primary.port)] });
  await until("the replica follows", async () =>
    String(await ask(replica.port, "INFO", "replication")).includes("master_link_status:up"),
  );
  const ports = await lastingPorts(3);
  const watching = await Promise.all(ports.map((port) => startProgram({ isSentinel: true, args: [], port })));
  for (const port of ports) {
    await ask(port, "SENTINEL", "MONITOR", name, "127.0.0.1", String(primary.port), "2");
    for (const [setting, value] of [
      ["down-after-milliseconds", "500"],
      ["failover-timeout", "5000"],
    ] as const) {
      await ask(port, "SENTINEL", "SET", name, setting, value);
    }
  }
  await until("the sentinels know each other and the replica", async () => {
    const known = await Promise.all(ports.map((port) => ask(port, "SENTINEL", "MASTER", name)));
    return known.every((fields) => {
      const told = Array.isArray(fields) ? fields.map(String) : [];
      const count = (field: string) => told[told.indexOf(field) + 1];
      return count("num-other-sentinels") === "2" && count("num-slaves") === "1";
    });
  });
  return {
    name,
    sentinels: ports.map((port) => ({ host: "127.0.0.1", port })),
    killPrimary: () => primary.kill(),
    stop: async () =>
      void (await Promise.all([...watching, primary, replica].map((server) => server.stop()))),
  };
}

/** Short, so that a failover takes a few seconds; long enough for a busy machine not to begin one by itself. */
const nodeTimeoutMs = 2_000;

async function startProgram(options: {
  readonly isSentinel?: boolean;
  readonly args: readonly string[];
  readonly port: number;
}): Promise<RedisServer> {
  const { port } = options;
  const { command, env } = await findRedis();
  const folder = await mkdtemp(join(tmpdir(), "latchkey-redis-"));
  // A sentinel is the same program, with a file in which it writes down what it finds out.
  const settings = options.isSentinel ? [join(folder, "sentinel.conf"), "--sentinel"] : [];
  if (settings[0] !== undefined) await writeFile(settings[0], "");
  const address = ["--bind", "127.0.0.1", "--port", String(port)];
  const pid = async () => Number(await readFile(join(folder, "pid"), "utf8").catch(() => 0));
  const started = await startServerProcess({
    command: "sh",
    args: ["-c", supervisorScript, command, ...settings, ...address, ...options.args],
    env,
    folder,
    // Somebody else's may answer on the port, if it was faster.
    async ready() {
      const isOwn = String(await ask(port, "INFO", "server")).includes(`process_id:${await pid()}\r`);
      return isOwn ? `redis://127.0.0.1:${port}` : undefined;
    },
    // Six of them start at once, on a machine that may be busy with another test.
    readyWithinMs: 30_000,
  });
  await writeFile(join(folder, "started"), "");
  return {
    ...started,
    port,
    async kill() {
      process.kill(await pid(), "SIGKILL");
      await until("the server has ended", async () => (await pid()) === 0);
    },
    async restart() {
      await writeFile(join(folder, "restart"), "");
      await until("the server answers", async () => String(await ask(port, "PING")) === "PONG");
    },
  };
}

/** Outlives a server that has been up, so that what it wrote down is still there when it is started again. */
const supervisorScript = `
while :; do
  "$0" "$@" &
  echo "$!" > pid
  wait "$!"
  [ -e started ] || exit 1
  rm pid
  until [ -e restart ]; do sleep 0.05; done
  rm restart
done
`;

function serverOfUser(url: string): RedisServer {
  const refuse = async () => {
    throw new Error("LATCHKEY_TEST_REDIS_URL names a server that is not the tests' own: it is left running");
  };
  return {
    url,
    port: Number(new URL(url).port || 6379),
    stop: async () => {},
    kill: refuse,
    restart: refuse,
  };
}

/** One command on a connection of its own. */
async function ask(port: number, command: string, ...args: string[]): Promise<unknown> {
  const client = new Redis(port, "127.0.0.1", { lazyConnect: true, retryStrategy: () => null });
  client.on("error", () => {});
  try {
    await client.connect();
    return await client.call(command, ...args);
  } finally {
    client.disconnect();
  }
}

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const giveUpAt = Date.now() + 30_000;
  for (;;) {
    if (await isSo().catch(() => false)) return;
    if (Date.now() > giveUpAt) throw new Error(`Redis for the tests: waited in vain until ${what}`);
    await sleep(20);
  }
}

/** The port of the node that serves a key. */
async function primaryOf(key: string, ports: readonly number[]): Promise<number> {
  const [asked = 0] = ports;
  const slot = Number(await ask(asked, "CLUSTER", "KEYSLOT", key));
  const ranges = (await ask(asked, "CLUSTER", "SLOTS")) as [number, number, [string, number]][];
  const range = ranges.find(([from, to]) => from <= slot && slot <= to);
  if (range === undefined) throw new Error(`nobody serves slot ${slot}`);
  return range[2][1];
}

/** Another process may begin to listen on a port after it was found free: then there are other ports. */
async function withOtherPorts<T>(start: () => Promise<T>, attempts = 3): Promise<T> {
  try {
    return await start();
  } catch (error) {
    if (attempts === 1 || !String(error).includes("Address already in use")) throw error;
    return withOtherPorts(start, attempts - 1);
  }
}

/** All of them, or none: what has started is stopped again if another one could not. */
async function allStarted(starting: readonly Promise<RedisServer>[]): Promise<RedisServer[]> {
  const outcomes = await Promise.allSettled(starting);
  const started = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
  const failed = outcomes.find((outcome) => outcome.status === "rejected");
  if (failed === undefined) return started;
  await Promise.all(started.map((server) => server.stop()));
  throw failed.reason;
}

const lastingPorts = (count: number) => Promise.all(Array.from({ length: count }, () => lastingPort()));

export async function findRedis(): Promise<{ command: string; env: Record<string, string> }> {
  const installed = onPath("redis-server") ?? onPath("valkey-server");
  if (installed !== undefined) return { command: installed, env: {} };
  try {
    const home = await unpackDebianPackages({
      packages: ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"],
    });
    return { command: join(home, "usr/bin/redis-server"), env: { LD_LIBRARY_PATH: librariesOf(home) } };
  } catch (cause) {
    throw new Error(
      "No Redis for the tests: put redis-server or valkey-server on PATH, or run where apt-get can download Debian's " +
        "package (no root needed); LATCHKEY_TEST_REDIS_URL names a single server for most of them.",
      { cause },
    );
  }
}
