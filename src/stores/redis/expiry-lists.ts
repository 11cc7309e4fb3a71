import { chunksOf } from "./chunks.ts";
import { listOf, type Server } from "./server.ts";

/**
 * Takes names out of the lists by which the reaper finds what has expired, where `isToGo` says so and the record is gone.
 * By themselves they would go when the record would have.
 */
export async function clearExpiryLists(server: Server, isToGo: (name: string) => boolean): Promise<void> {
  for (const tag of server.names.tags) {
    for (const [minutes, prefix] of listsOfMinutes) {
      const found = listOf(await server.send(tag, ["ZRANGE", tag + minutes, "0", "-1"]));
      for (const some of chunksOf(found, listsAtOnce)) {
        await Promise.all(some.map((minute) => clearList(server, tag, prefix + String(minute), isToGo)));
      }
    }
  }
}

/** As scripts/bucket.lua names them. */
const listsOfMinutes = [
  ["@windows", "@w"],
  ["@softs", "@s"],
] as const;

async function clearList(
  server: Server,
  tag: string,
  list: string,
  isToGo: (name: string) => boolean,
): Promise<void> {
  let length = pageNames;
  for (let from = 0; length === pageNames; from += length) {
    const range = [tag + list, String(from), String(from + pageNames - 1)];
    const names = listOf(await server.send(tag, ["LRANGE", ...range])).map(String);
    const going = names.flatMap((name, nth) => (isToGo(name) ? [String(from + nth), name] : []));
    if (going.length > 0) await server.write("unlist", [tag], [list, ...going]);
    length = names.length;
  }
}

/** Nobody else is served meanwhile. */
const pageNames = 500;
/** Most lists are short, and each is a question. */
const listsAtOnce = 50;
