import type { RedisLink, RedisReply } from "../redis/client.ts";

/**
 * Removes every key that begins with the prefix. Redis has no other way to find them than to go through all of its keys,
 * some at a time, so that this is for what is done rarely.
 */
export async function removeKeys(
  link: Pick<RedisLink, "primaries" | "send">,
  keyPrefix: string,
): Promise<void> {
  const pattern = `${keyPrefix.replaceAll(globCharacters, "\\$&")}*`;
  for (const primary of await link.primaries()) {
    let cursor = "0";
    do {
      const scan = ["SCAN", cursor, "MATCH", pattern, "COUNT", String(scannedAtOnce)];
      const [next, found] = listOf(await primary.send(scan));
      // One by one, because in a cluster they are in different slots.
      await Promise.all(listOf(found ?? []).map((key) => link.send(String(key), ["UNLINK", String(key)])));
      cursor = String(next);
    } while (cursor !== "0");
  }
}

const globCharacters = /[\\*?[\]^-]/g;

/** Nobody else is served meanwhile. */
const scannedAtOnce = 1_000;

function listOf(reply: RedisReply): readonly RedisReply[] {
  if (Array.isArray(reply)) return reply;
  throw new Error("Redis has answered SCAN with something else than a list");
}
