import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { RedisArgument, RedisLink, RedisReply } from "./client.ts";
import { isUnknownScript, storeError } from "./errors.ts";

/** A script that the server knows by the digest of its text once it has seen it. */
export interface Script {
  readonly text: string;
  readonly sha: string;
}

export function scriptOf(text: string): Script {
  return { text, sha: createHash("sha1").update(text).digest("hex") };
}

/**
 * A file of the folder `scripts`. A line `--#include name` stands for the file of that name: what several scripts need
 * is put into each of them, because Redis lets no script call another. Each stands once, where it is first needed: a
 * script that is done before it comes to the rest of its text has not run that.
 */
export function loadScript(name: string): Script {
  return scriptOf(readScript(name));
}

function readScript(name: string, included = new Set<string>()): string {
  included.add(name);
  const text = readFileSync(new URL(`./scripts/${name}.lua`, import.meta.url), "utf8");
  return text.replaceAll(/^--#include (\w+)$/gm, (_, part: string) =>
    included.has(part) ? "" : readScript(part, included),
  );
}

/** Runs a script by its digest, with its text if the server has forgotten it; nothing was executed then. */
export async function runScript(
  link: RedisLink,
  script: Script,
  keys: readonly string[],
  args: readonly RedisArgument[],
): Promise<RedisReply> {
  const [key = ""] = keys;
  const rest = [String(keys.length), ...keys, ...args];
  try {
    return await link.send(key, ["EVALSHA", script.sha, ...rest]).catch((error: unknown) => {
      if (!isUnknownScript(error)) throw error;
      return link.send(key, ["EVAL", script.text, ...rest]);
    });
  } catch (error) {
    throw storeError(error);
  }
}
