import { execFile } from "node:child_process";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { cachedFolder } from "./cache-folder.ts";

const run = promisify(execFile);

/** The versions that are in use beside the one that runs the tests, as npm has them. */
export const newerNodes = { 22: "22.23.3", 24: "24.21.0" } as const;

/** The program of another version of Node: the one that is named, or npm's, fetched once for each user. */
export async function newerNode(major: keyof typeof newerNodes): Promise<string> {
  const variable = `LATCHKEY_TEST_NODE_${major}`;
  const named = process.env[variable];
  if (named) return named;
  const version = newerNodes[major];
  const machine = `${process.platform}-${process.arch}`;
  try {
    const home = await cachedFolder(`node-${machine}-${version}`, async (work) => {
      const packed = join(work, "packed");
      await mkdir(packed);
      await run("npm", ["pack", `node-${machine}@${version}`, "--pack-destination", packed], { cwd: work });
      for (const file of await readdir(packed)) await run("tar", ["-xzf", join(packed, file), "-C", work]);
      return join(work, "package");
    });
    return join(home, "bin", "node");
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(
      `Node ${version} could not be fetched from npm: set ${variable} to the path of one. ${reason}`,
    );
  }
}
