import { StoreError } from "../../core/errors.ts";
import type { ForgetPass } from "../forgetting.ts";
import { entryOf, pageEntries } from "./audit.ts";
import type { RedisPrimary, RedisReply } from "./client.ts";
import { clearExpiryLists } from "./expiry-lists.ts";
import { idOf } from "./names.ts";
import { listOf, numbersOf, type Server } from "./server.ts";
import { askPrimary, layoutOf } from "./topology.ts";

/** Goes through all keys of all servers, and through the audit trail of each bucket. */
export async function* forgetEverywhere(server: Server, pass: ForgetPass): AsyncGenerator<void, void> {
  const { link, names } = server;
  const layout = await layoutOf(link);
  for (const primary of await link.primaries()) yield* forgetRecords(server, primary, pass);
  for (const tag of names.tags) yield* forgetAudit(server, `${tag}@audit`, pass);
  if (pass.removed > 0) return;
  await clearExpiryLists(server, (name) => pass.isOwn(idOf(name).scope));
  if ((await layoutOf(link)) !== layout) {
    throw new StoreError(
      "a server was restarted or replaced while its keys were gone through, and some may have been missed: ask again",
    );
  }
}

async function* forgetRecords(
  server: Server,
  primary: RedisPrimary,
  pass: ForgetPass,
): AsyncGenerator<void, void> {
  let cursor = "0";
  do {
    const { recordPattern } = server.names;
    const scan = ["SCAN", cursor, "MATCH", recordPattern, "COUNT", String(scannedAtOnce)];
    const [next, found] = listOf(await askPrimary(primary, scan));
    for (const keys of ownKeysIn(listOf(found ?? []).map(String), server, pass)) {
      yield* pass.removeAll(keys, forgottenAtOnce, (some) => forget(server, some, pass));
    }
    cursor = String(next);
  } while (cursor !== "0");
}

/** The tenant's, in groups that one script may be called with. */
function ownKeysIn(found: readonly string[], { names, link }: Server, pass: ForgetPass): string[][] {
  const groups = new Map<string, Set<string>>();
  for (const key of found) {
    const split = names.splitKey(key);
    if (split === undefined || !pass.isOwn(idOf(split.name).scope)) continue;
    const group = link.isCluster ? split.tag : "";
    groups.set(group, (groups.get(group) ?? new Set()).add(split.tag + split.name));
  }
  return [...groups.values()].map((keys) => [...keys]);
}

async function forget(server: Server, keys: readonly string[], pass: ForgetPass): Promise<number> {
  const answers = numbersOf(await server.write("forget", keys, []));
  for (const [nth, answer] of answers.entries()) if (answer > 1) pass.countUnsettled(keys[nth] ?? "");
  return answers.filter((answer) => answer === 1).length;
}

async function* forgetAudit(server: Server, stream: string, pass: ForgetPass): AsyncGenerator<void, void> {
  let from = "-";
  for (;;) {
    const read = ["XRANGE", stream, from, "+", "COUNT", String(pageEntries)];
    const page = listOf(await server.send(stream, read));
    const own = page.filter((told) => pass.isOwn(entryOf(told, 0).entry.scope)).map(streamIdOf);
    yield* pass.removeAll(own, pageEntries, async (ids) =>
      Number(await server.send(stream, ["XDEL", stream, ...ids])),
    );
    const last = page.at(-1);
    if (last === undefined || page.length < pageEntries) return;
    from = `(${streamIdOf(last)}`;
  }
}

/** Nobody else is served meanwhile. */
const scannedAtOnce = 1_000;
const forgottenAtOnce = 200;

function streamIdOf(told: RedisReply): string {
  return String(listOf(told)[0]);
}
