// Bundles the pages for the browser: the console and the playground. Each only if something has changed since.
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../${name}`, import.meta.url));

/** Source folder, and where its bundle goes. */
const pages = [
  { source: "src/console", output: "dist/console" },
  { source: "src/demo/page", output: "dist/demo/page" },
];

// What a page imports from elsewhere, and what it is built with.
const shared = ["src/admin/views.ts", "src/browser", "scripts/build-pages.js", "package-lock.json"];

for (const { source, output } of pages) {
  if (!existsSync(path(source))) continue;
  const newest = Math.max(...[source, ...shared].map((name) => changedAt(path(name))));
  const marker = path(`${output}/index.html`);
  if (existsSync(marker) && statSync(marker).mtimeMs > newest) continue;
  // Loading it takes a second, which nobody has to wait for if nothing has changed.
  const { build } = await import("vite");
  // Built elsewhere and then put in its place: whoever looks, or builds, at the same time finds all of it or nothing.
  const fresh = path(`node_modules/.cache/pages/${process.pid}/${output}`);
  await build({
    configFile: false,
    root: path(source),
    // Pages are served under whatever path an operator chooses.
    base: "./",
    logLevel: "warn",
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    build: {
      outDir: fresh,
      emptyOutDir: true,
      target: "es2022",
      // A page under a strict content security policy loads nothing that is written into it.
      assetsInlineLimit: 0,
      modulePreload: false,
    },
  });
  mkdirSync(dirname(path(output)), { recursive: true });
  rmSync(path(output), { recursive: true, force: true });
  try {
    renameSync(fresh, path(output));
  } catch (error) {
    // Somebody else was faster, with the same.
    if (!existsSync(marker)) throw error;
  }
  rmSync(path(`node_modules/.cache/pages/${process.pid}`), { recursive: true, force: true });
}

/**
 * When the file, or the newest file of the folder, was changed.
 * @param {string} name
 * @returns {number}
 */
function changedAt(name) {
  const stat = statSync(name);
  if (!stat.isDirectory()) return stat.mtimeMs;
  return Math.max(stat.mtimeMs, ...readdirSync(name).map((entry) => changedAt(`${name}/${entry}`)));
}
