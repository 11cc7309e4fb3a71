import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { unpackDebianPackages } from "./debian-packages.ts";
import { freePorts, type ServerProcess, startServerProcess } from "./server-process.ts";

/**
 * A RabbitMQ; the one in `LATCHKEY_TEST_RABBITMQ_URL` if that is set. Debian's own start script wants root and one
 * broker for each machine, so the broker's script below it is called, with every path in a folder of the test's own.
 */
export async function startRabbitMq(): Promise<ServerProcess> {
  const ownUrl = process.env.LATCHKEY_TEST_RABBITMQ_URL;
  if (ownUrl) return { url: ownUrl, stop: async () => {} };

  const home = await findRabbitMq();
  const folder = await mkdtemp(join(tmpdir(), "latchkey-rabbitmq-"));
  const [port, distributionPort, epmdPort] = await freePorts(3);
  await writeFile(join(folder, "rabbitmq.conf"), `listeners.tcp.1 = 127.0.0.1:${port}\n`);
  return startServerProcess({
    command: "sh",
    args: ["-c", startScript, "sh", join(home, brokerScript)],
    env: {
      HOME: folder, // For the cookie with which Erlang's nodes know each other.
      PATH: `${join(home, "usr/lib/erlang/bin")}:${process.env.PATH}`,
      ERL_EPMD_ADDRESS: "127.0.0.1",
      ERL_EPMD_PORT: String(epmdPort),
      RABBITMQ_DIST_PORT: String(distributionPort),
      RABBITMQ_NODENAME: `latchkey-${randomBytes(6).toString("hex")}@localhost`,
      RABBITMQ_CONFIG_FILE: join(folder, "rabbitmq.conf"),
      RABBITMQ_ADVANCED_CONFIG_FILE: join(folder, "advanced.config"),
      RABBITMQ_CONF_ENV_FILE: join(folder, "rabbitmq-env.conf"),
      RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, "enabled_plugins"),
      RABBITMQ_MNESIA_BASE: join(folder, "mnesia"),
      RABBITMQ_LOG_BASE: join(folder, "log"),
      RABBITMQ_LOGS: "-",
      RABBITMQ_PID_FILE: join(folder, "pid"),
      // Two schedulers and no busy waiting: the tests beside it need the machine too.
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: "+S 2:2 +sbwt none",
    },
    folder,
    ready: async () => ((await accepts(port)) ? `amqp://guest:guest@127.0.0.1:${port}` : undefined),
    readyWithinMs: 60_000,
  });
}

const brokerScript = "usr/lib/rabbitmq/bin/rabbitmq-server";

/** Erlang would start its name service as a daemon that outlives the test; in the foreground it ends with the group. */
const startScript = 'epmd & exec "$1"';

const erlangPackages = ["base", "asn1", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools"]
  .concat(["public-key", "runtime-tools", "ssl", "syntax-tools", "tools", "xmerl"])
  .map((name) => `erlang-${name}`);

/** The folder below which Debian's paths lie. */
async function findRabbitMq(): Promise<string> {
  if (existsSync(join("/", brokerScript))) return "/";
  try {
    return await unpackDebianPackages({
      packages: ["rabbitmq-server", ...erlangPackages],
      async prepare(folder, home) {
        // The path in it is fixed, whatever its environment says.
        const script = join(folder, "usr/lib/erlang/bin/erl");
        const text = await readFile(script, "utf8");
        await writeFile(script, text.replaceAll("ROOTDIR=/usr/", `ROOTDIR=${home}/usr/`));
      },
    });
  } catch (cause) {
    throw new Error(
      "No RabbitMQ for the tests: set LATCHKEY_TEST_RABBITMQ_URL to a broker, or run where apt-get can download Debian's " +
        "packages (no root needed).",
      { cause },
    );
  }
}

function accepts(port: number | undefined): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port: port ?? 0, host: "127.0.0.1" });
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
