import { ConfigError } from "../core/errors.ts";

/** An optional peer that is needed now. */
export async function driver<Module>(name: string, load: () => Promise<Module>): Promise<Module> {
  const module = await installed(name, load);
  if (module === undefined) throw new ConfigError(missing(name, name));
  return module;
}

/** What a package gives, or undefined where it is not installed. One that is, and is broken, is not passed over. */
export async function installed<Module>(
  name: string,
  load: () => Promise<Module>,
): Promise<Module | undefined> {
  try {
    return await load();
  } catch (error) {
    if (isMissing(name, error)) return undefined;
    throw error;
  }
}

/** The same code is given where the package is there, and something that it needs is not. */
function isMissing(name: string, error: unknown): boolean {
  if (!(error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND")) return false;
  // A package is named with the path within it where that was asked for.
  return error.message.includes(`'${name}'`) || error.message.includes(`'${name}/`);
}

export function missing(what: string, toInstall: string): string {
  return `this store's URL needs the package ${what}, which is not installed: run \`npm install ${toInstall}\``;
}
