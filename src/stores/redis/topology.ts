import { StoreError } from "../../core/errors.ts";
import type { RedisLink, RedisPrimary, RedisReply } from "./client.ts";
import { storeError } from "./errors.ts";

/**
 * A text that is another one if a server was restarted or replaced, or has other slots than before: places among the keys
 * of one server mean nothing to another. Rejects while slots move, because keys cannot all be found then.
 */
export async function layoutOf(link: RedisLink): Promise<string> {
  const primaries = await link.primaries();
  const lives = await Promise.all(primaries.map(lifeOf));
  if (!link.isCluster) return lives.join(" ");
  const slots = await Promise.all(primaries.map(slotsOf));
  if (slots.some((text) => text.includes("["))) {
    throw new StoreError(
      "slots of the cluster are being moved, and keys with them: ask again when that is done",
    );
  }
  if (slots.reduce((count, text) => count + countOf(text), 0) !== slotCount) {
    throw new StoreError("not every part of the cluster can be asked at the moment: ask again when it can");
  }
  return lives
    .map((life, nth) => `${life} ${slots[nth]}`)
    .sort()
    .join("; ");
}

/** Another one each time the server is started. */
export async function lifeOf(primary: RedisPrimary): Promise<string> {
  return /^run_id:(\w+)/m.exec(await textOf(primary, ["INFO", "server"]))?.[1] ?? "";
}

/** The slots of a node in its own words: ranges, and in brackets what is being moved. */
async function slotsOf(primary: RedisPrimary): Promise<string> {
  const nodes = await textOf(primary, ["CLUSTER", "NODES"]);
  const own = nodes.split("\n").find((line) => line.split(" ")[2]?.includes("myself"));
  return own?.split(" ").slice(slotsFrom).join(" ").trim() ?? "";
}

/** What comes before them in a line is id, address, flags, primary, two times, epoch and state. */
const slotsFrom = 8;
const slotCount = 16_384;

function countOf(ranges: string): number {
  return ranges
    .split(" ")
    .filter((range) => range !== "")
    .map((range) => range.split("-").map(Number))
    .reduce((count, [first = 0, last = first]) => count + last - first + 1, 0);
}

async function textOf(primary: RedisPrimary, args: readonly string[]): Promise<string> {
  return String(await askPrimary(primary, args));
}

export async function askPrimary(primary: RedisPrimary, args: readonly string[]): Promise<RedisReply> {
  return primary.send(args).catch((error: unknown) => {
    throw storeError(error);
  });
}
