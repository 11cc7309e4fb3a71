import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readdir } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { cachedFolder } from "./cache-folder.ts";

const run = promisify(execFile);

/** A program that is on PATH already. */
export function onPath(program: string): string | undefined {
  return (process.env.PATH ?? "")
    .split(delimiter)
    .filter((folder) => folder !== "")
    .map((folder) => join(folder, program))
    .find((path) => existsSync(path));
}

export interface UnpackOptions {
  readonly packages: readonly string[];
  /** Changes what was unpacked into `folder`, for programs that want to know where they are: `home` in the end. */
  readonly prepare?: (folder: string, home: string) => Promise<void>;
}

/**
 * The folder into which Debian's packages were unpacked, without root and without installing anything. Downloaded once
 * for each user, from whatever sources the system has.
 */
export function unpackDebianPackages({ packages, prepare }: UnpackOptions): Promise<string> {
  const name = createHash("sha256").update(packages.join(" ")).digest("hex").slice(0, 12);
  return cachedFolder(`${packages[0]}-${process.arch}-${name}`, async (work, home) => {
    const unpacked = join(work, "unpacked");
    await mkdir(unpacked);
    await download(packages, work);
    for (const file of await readdir(join(work, "packages"))) {
      await run("dpkg-deb", ["--extract", join(work, "packages", file), unpacked]);
    }
    await prepare?.(unpacked, home);
    return unpacked;
  });
}

/** Where the libraries of unpacked packages are, for `LD_LIBRARY_PATH`. */
export function librariesOf(home: string): string {
  const machine = { x64: "x86_64", arm64: "aarch64" }[process.arch as string] ?? process.arch;
  return join(home, `usr/lib/${machine}-linux-gnu`);
}

async function download(packages: readonly string[], work: string): Promise<void> {
  // The lists of packages may be missing or old, as in most images, and only root may refresh the system's own.
  const [lists, archives, target] = ["state/lists/partial", "cache/archives/partial", "packages"].map(
    (folder) => join(work, folder),
  );
  for (const folder of [lists, archives, target]) await mkdir(folder ?? work, { recursive: true });
  const options = [
    ...["-o", `Dir::State=${join(work, "state")}`],
    ...["-o", `Dir::Cache=${join(work, "cache")}`],
    ...["-o", "Dir::State::Status=/var/lib/dpkg/status"],
    ...(process.getuid?.() === 0 ? ["-o", "APT::Sandbox::User=root"] : []),
  ];
  await run("apt-get", [...options, "update"]);
  await run("apt-get", [...options, "download", ...packages], { cwd: target });
}
