import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const root = fileURLToPath(new URL("../../", import.meta.url));

/** The part of esbuild that is used here. It comes with tsx, which runs everything else. */
interface Esbuild {
  build(options: {
    readonly entryPoints: Readonly<Record<string, string>>;
    readonly outdir: string;
    readonly [option: string]: unknown;
  }): Promise<unknown>;
}

interface PluginBuild {
  onLoad(
    options: { readonly filter: RegExp },
    load: (file: { readonly path: string }) => Promise<{ contents: string; loader: "ts" }>,
  ): void;
}

/**
 * Makes one file of each program, named after it and `.mjs`, so that a process starts in a fraction of the time. Source
 * files keep their addresses, by which they find migrations and drivers.
 */
export async function bundle(
  folder: string,
  entryPoints: Readonly<Record<string, string>>,
  /** `external`: installed packages stay where they are, and `folder` has to be where they are found from. */
  packages: "bundle" | "external" = "bundle",
): Promise<void> {
  const require = createRequire(createRequire(import.meta.url).resolve("tsx"));
  const { build } = require("esbuild") as Esbuild;
  await build({
    entryPoints,
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    platform: "node",
    format: "esm",
    target: "node20",
    tsconfig: join(root, "tsconfig.json"),
    packages,
    external: ["pg-native"],
    minifyWhitespace: true,
    // What is not bundled, and what CommonJS packages ask for, is found from here.
    banner: {
      js: `import { createRequire as latchkeyRequire } from "node:module"; const require = latchkeyRequire(${JSON.stringify(import.meta.url)});`,
    },
    plugins: [{ name: "addresses", setup: keepAddresses }],
    logLevel: "error",
  });
}

function keepAddresses(build: PluginBuild): void {
  build.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
    const source = await readFile(path, "utf8");
    const contents = source.replaceAll("import.meta.url", JSON.stringify(pathToFileURL(path).href));
    return { contents, loader: "ts" };
  });
}
