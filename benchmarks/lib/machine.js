import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { cpus, platform, release, totalmem } from "node:os";

const require = createRequire(import.meta.url);

/**
 * Where and with what the figures were taken.
 *
 * @param {{ postgres: string }} servers
 * @returns {[what: string, is: string][]}
 */
export function machineFacts({ postgres }) {
  const [cpu] = cpus();
  return [
    ["date", new Date().toISOString().slice(0, 16).replace("T", " ").concat(" UTC")],
    ["processor", `${cpus().length} x ${cpu?.model.trim() ?? "unknown"}`],
    ["memory", `${(totalmem() / 2 ** 30).toFixed(0)} GiB`],
    ["system", `${platform()} ${release()}`],
    ["Node.js", process.version],
    ["Postgres", `${postgres}, on the same processors, fsync and synchronous_commit on`],
    ["Latchkey", latchkeyVersion()],
    [
      "packages",
      ["pg", "libsql", "express", "fastify", "hono", ...peers]
        .map((name) => `${name} ${versionOf(name)}`)
        .join(", "),
    ],
  ];
}

const peers = ["@node-idempotency/core", "express-idempotency", "canonicalize"];

function latchkeyVersion() {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  try {
    const commit = execFileSync("git", ["rev-parse", "--short", "HEAD"], {
      cwd: new URL("../..", import.meta.url),
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    });
    return `${version} (${commit.trim()})`;
  } catch {
    return version; // Not every copy of the code is a repository.
  }
}

/** @param {string} name of a package, which may hide its package.json */
function versionOf(name) {
  for (const folder of require.resolve.paths(name) ?? []) {
    try {
      return JSON.parse(readFileSync(`${folder}/${name}/package.json`, "utf8")).version;
    } catch {}
  }
  return "unknown";
}
