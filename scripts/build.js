// Compiles src/ to dist/, bundles the pages, and puts SQL and Lua beside the code that reads them.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const root = new URL("../", import.meta.url);
const path = (/** @type {string} */ name) => fileURLToPath(new URL(name, root));

// The compiler only writes what has changed since its own notes were taken, so notes and output go together.
const notes = path("node_modules/.cache/tsc/build.tsbuildinfo");
if (!existsSync(notes) || !existsSync(path("dist"))) {
  rmSync(notes, { force: true });
  // All but the pages, which are not the compiler's: somebody may be serving them.
  removeAllBut("dist", ["console", "demo"]);
  removeAllBut("dist/demo", ["page"]);
}

const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
const { status } = spawnSync(process.execPath, [tsc, "-p", path("tsconfig.build.json")], {
  stdio: "inherit",
});
if (status !== 0) process.exit(status ?? 1);

const pages = spawnSync(process.execPath, [path("scripts/build-pages.js")], { stdio: "inherit" });
if (pages.status !== 0) process.exit(pages.status ?? 1);

// What the stores read at run time is not TypeScript, and not the compiler's business.
for (const folder of ["sqlite/migrations", "postgres/migrations", "mysql/migrations", "redis/scripts"]) {
  cpSync(path(`src/stores/${folder}`), path(`dist/stores/${folder}`), { recursive: true });
}

/**
 * @param {string} folder
 * @param {readonly string[]} kept
 */
function removeAllBut(folder, kept) {
  if (!existsSync(path(folder))) return;
  for (const name of readdirSync(path(folder))) {
    if (!kept.includes(name)) rmSync(path(`${folder}/${name}`), { recursive: true, force: true });
  }
}
