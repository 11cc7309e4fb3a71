// Compiles src/ to dist/ and puts the SQL migrations beside the code that reads them.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const root = new URL("../", import.meta.url);
const path = (/** @type {string} */ name) => fileURLToPath(new URL(name, root));

// The compiler only writes what has changed since its own notes were taken, so notes and output go together.
const notes = path("node_modules/.cache/tsc/build.tsbuildinfo");
if (!existsSync(notes) || !existsSync(path("dist"))) {
  rmSync(notes, { force: true });
  rmSync(path("dist"), { recursive: true, force: true });
}

const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
const { status } = spawnSync(process.execPath, [tsc, "-p", path("tsconfig.build.json")], {
  stdio: "inherit",
});
if (status !== 0) process.exit(status ?? 1);

for (const store of ["sqlite", "postgres", "mysql"]) {
  cpSync(path(`src/stores/${store}/migrations`), path(`dist/stores/${store}/migrations`), {
    recursive: true,
  });
}
