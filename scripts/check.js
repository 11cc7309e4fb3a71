// Everything that can be said about the code without running it, side by side: each check needs only some seconds.
import { spawn, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const bin = (/** @type {string} */ name) => `${root}node_modules/.bin/${name}`;

/** @type {Record<string, [command: string, ...args: string[]]>} */
const checks = {
  "format, lint and import direction": [bin("biome"), "check", "--error-on-warnings", "."],
  types: [bin("tsc"), "-p", "tsconfig.json"],
  "types of the pages": [bin("tsc"), "-p", "tsconfig.pages.json"],
  "unused code": [bin("knip")],
  "package.json": [bin("publint"), "--strict"],
  "package exports": [bin("attw"), "--pack", ".", "--profile", "esm-only", "--format", "ascii"],
};

// The last two look at what would be published.
const build = spawnSync(process.execPath, ["scripts/build.js"], { cwd: root, stdio: "inherit" });
if (build.status !== 0) process.exit(build.status ?? 1);

const failed = await Promise.all(
  Object.entries(checks).map(async ([name, [command, ...args]]) => {
    const { code, output } = await run(command, args);
    console.log(`${code === 0 ? "ok    " : "FAILED"} ${name}`);
    if (code !== 0) console.log(output);
    return code !== 0;
  }),
);
process.exit(failed.includes(true) ? 1 : 0);

/**
 * @param {string} command
 * @param {string[]} args
 * @returns {Promise<{ code: number | null, output: string }>}
 */
function run(command, args) {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: root,
      env: { ...process.env, npm_config_ignore_scripts: "true" },
    });
    let output = "";
    child.stdout.on("data", (chunk) => (output += chunk));
    child.stderr.on("data", (chunk) => (output += chunk));
    child.on("close", (code) => resolve({ code, output }));
  });
}
