import { mkdtemp, readdir, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onPath, unpackDebianPackages } from "./debian-packages.ts";
import { type ServerProcess, startServerProcess } from "./server-process.ts";

/** A NATS server with JetStream; the one in `LATCHKEY_TEST_NATS_URL` if that is set. */
export async function startNats(): Promise<ServerProcess> {
  const ownUrl = process.env.LATCHKEY_TEST_NATS_URL;
  if (ownUrl) return { url: ownUrl, stop: async () => {} };

  const command = await findNats();
  const folder = await mkdtemp(join(tmpdir(), "latchkey-nats-"));
  const args = ["--addr", "127.0.0.1", "--port", "-1", "--ports_file_dir", folder];
  return startServerProcess({
    command,
    args: [...args, "--jetstream", "--store_dir", folder],
    folder,
    // The server chooses its port and writes it down when it listens.
    async ready() {
      const file = (await readdir(folder)).find((name) => name.endsWith(".ports"));
      if (file === undefined) return undefined;
      const ports: { nats: string[] } = JSON.parse(await readFile(join(folder, file), "utf8"));
      return ports.nats[0];
    },
    readyWithinMs: 10_000,
  });
}

async function findNats(): Promise<string> {
  const installed = onPath("nats-server");
  if (installed !== undefined) return installed;
  try {
    const home = await unpackDebianPackages({ packages: ["nats-server"] });
    return join(home, "usr/sbin/nats-server");
  } catch (cause) {
    throw new Error(
      "No NATS for the tests: put nats-server on PATH, or set LATCHKEY_TEST_NATS_URL to a server with JetStream, or run " +
        "where apt-get can download Debian's package (no root needed).",
      { cause },
    );
  }
}
