import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

/**
 * A folder of this name that is filled once for each user: `fill` has a folder to work in, and answers with the one in it
 * that is to be kept. `home` is where that will be.
 */
export async function cachedFolder(
  name: string,
  fill: (work: string, home: string) => Promise<string>,
): Promise<string> {
  const home = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "latchkey-test", name);
  if (existsSync(home)) return home;
  await mkdir(dirname(home), { recursive: true });
  const work = await mkdtemp(`${home}-`);
  try {
    const filled = await fill(work, home);
    // All or nothing, because several test files may be doing this at once; the first one is as good as the others.
    await rename(filled, home).catch((error: unknown) => {
      if (!existsSync(home)) throw error;
    });
    return home;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
