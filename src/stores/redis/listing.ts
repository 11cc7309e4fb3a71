import { hash } from "node:crypto";
import { StoreError, StoreRefusedError, UnreadableError } from "../../core/errors.ts";
import type { ListedRecord } from "../../core/record.ts";
import { tenantScopeOf } from "../../core/scope.ts";
import type { ListQuery, RecordPage } from "../../core/store.ts";
import { cursorOf, isAskedFor, notAPlace, partsOf } from "../listing.ts";
import { chunksOf } from "./chunks.ts";
import type { RedisLink, RedisPrimary, RedisReply } from "./client.ts";
import { idOf } from "./names.ts";
import { decodeListed } from "./record.ts";
import { bufferOfReply, listOf, type Server } from "./server.ts";
import { askPrimary, lifeOf } from "./topology.ts";

/*
 * There is no list of all records, because every request would pay for it. So all keys are gone through, server by server,
 * as SCAN goes through them: whatever is there all the while is met, most of it once. What is met again soon, because the
 * server has made room for more keys meanwhile, is not shown again; what is met again much later may be.
 */

/** Where a list goes on: on which server, where among its keys, and what was shown last. */
interface Place {
  readonly life: string;
  readonly at: string;
  readonly shown: readonly string[];
}

export async function list(server: Server, query: ListQuery): Promise<RecordPage> {
  const servers = await serversOf(server.link);
  let place = query.after === undefined ? beginningOf(servers[0]) : placeOf(query.after);
  const page: Page = { records: [], names: new Set() };
  for (let scans = 0; scans < scansMax && place !== undefined; scans += 1) {
    place = await goOn(server, { servers, place, query, page });
    if (page.records.length >= query.limit) break;
  }
  const [now] = listOf(await server.ask("read", [server.names.tags[0] ?? ""], []));
  return { records: page.records, next: place && cursorAt(place), now: Number(now) };
}

interface Page {
  readonly records: ListedRecord[];
  /** Of what is on it. */
  readonly names: Set<string>;
}

interface Scanned {
  readonly life: string;
  readonly primary: RedisPrimary;
}

/** In an order that is the same for every page. */
async function serversOf(link: RedisLink): Promise<readonly Scanned[]> {
  const primaries = await link.primaries();
  const servers = await Promise.all(
    primaries.map(async (primary) => ({ primary, life: (await lifeOf(primary)).slice(0, lifeLength) })),
  );
  if (servers.some(({ life }) => life === "")) {
    throw new StoreError(
      "a server does not say which one it is (INFO server, run_id): nothing can be listed",
    );
  }
  return servers.sort((one, other) => (one.life < other.life ? -1 : 1));
}

/** Enough to tell the servers of a cluster apart, and one that was restarted from what it was before. */
const lifeLength = 16;

function beginningOf(server: Scanned | undefined): Place | undefined {
  return server && { life: server.life, at: "0", shown: [] };
}

/** Looks at some keys, adds what is asked for to the page, and answers where to go on; undefined if that was all. */
async function goOn(
  server: Server,
  {
    servers,
    place,
    query,
    page,
  }: { servers: readonly Scanned[]; place: Place; query: ListQuery; page: Page },
): Promise<Place | undefined> {
  const scanned = servers.find(({ life }) => life === place.life);
  if (scanned === undefined) {
    throw new StoreRefusedError(
      "a server was restarted or replaced since the page before, and a place among its keys means nothing now: begin " +
        "the list anew",
    );
  }
  const room = query.limit - page.records.length;
  // More than fits has to be looked at again; what is not asked for needs no room.
  const count = isFiltered(query) ? keysAtOnce : Math.min(keysAtOnce, Math.max(keysAtOnceMin, room));
  const scan = ["SCAN", place.at, "MATCH", server.names.recordPattern, "COUNT", String(count)];
  const [next, keys] = listOf(await askPrimary(scanned.primary, scan));
  const names = newNamesIn(listOf(keys ?? []).map(String), server, { place, query, page });
  const shown = [...place.shown];
  for (const { name, record } of await readAll(server, names)) {
    if (!isAskedFor(record, query)) continue;
    if (page.records.length >= query.limit) return { ...place, shown };
    page.records.push(record);
    page.names.add(name);
    shown.push(digestOf(name));
  }
  if (String(next) !== "0") return { ...place, at: String(next), shown: shown.slice(-shownMax) };
  return beginningOf(servers.find(({ life }) => life > place.life));
}

/** A call is one round trip and takes the server about a tenth of a millisecond; this many are a moment. */
const scansMax = 40;

/** Nobody else is served meanwhile. What of so many is on a page that has no room for more, its cursor has to tell. */
const keysAtOnce = 250;
/** Most keys may be somebody else's. */
const keysAtOnceMin = 50;

/** Keys that share a place in the server's table are few, and stay neighbours when that grows. */
const shownMax = 50;

function isFiltered({ limit: _, after: __, ...filters }: ListQuery): boolean {
  return Object.values(filters).some((filter) => filter !== undefined);
}

interface Named {
  readonly tag: string;
  readonly name: string;
}

/** The records among some keys that may be asked for, by their names, and that were not shown before. */
function newNamesIn(
  keys: readonly string[],
  { names }: Server,
  { place, query, page }: { place: Place; query: ListQuery; page: Page },
): readonly Named[] {
  const shown = new Set(place.shown);
  const found = new Map<string, Named>();
  for (const key of keys) {
    const split = names.splitKey(key);
    if (split === undefined || split.isRequest || !isNameAskedFor(split.name, query)) continue;
    if (!page.names.has(split.name) && !shown.has(digestOf(split.name))) found.set(split.name, split);
  }
  return [...found.values()];
}

function isNameAskedFor(name: string, query: ListQuery): boolean {
  const { scope, key } = idOf(name);
  return (
    (query.key === undefined || query.key === key) &&
    (query.tenantScope === undefined || query.tenantScope === tenantScopeOf(scope))
  );
}

/** What there still is of these. */
async function readAll(server: Server, names: readonly Named[]) {
  const groups = new Map<string, Named[]>();
  for (const named of names) {
    const group = server.link.isCluster ? named.tag : "";
    groups.set(group, [...(groups.get(group) ?? []), named]);
  }
  const calls = [...groups.values()].flatMap((group) => chunksOf(group, readAtOnce));
  const read = await Promise.all(
    calls.map(async (some) => {
      const keys = some.map(({ tag, name }) => tag + name);
      const replies = listOf(await server.ask("list", keys, []));
      return some.flatMap(({ name }, nth) => {
        const record = decoded(keys[nth] ?? "", name, replies[nth] ?? null);
        return record === undefined ? [] : [{ name, record }];
      });
    }),
  );
  return read.flat();
}

/** A list without what cannot be read would look like less to worry about. */
function decoded(key: string, name: string, reply: RedisReply): ListedRecord | undefined {
  if (reply === null) return undefined;
  try {
    return decodeListed(idOf(name), listOf(reply).map(bufferOfReply));
  } catch (error) {
    throw new UnreadableError(`what is stored as ${key} cannot be listed: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** Nobody else is served while a script runs. */
const readAtOnce = 200;

/** Long enough that no two of one page are ever taken for each other. */
function digestOf(name: string): string {
  return hash("sha256", name, "base64url").slice(0, digestLength);
}

const digestLength = 8;

function cursorAt({ life, at, shown }: Place): string {
  return cursorOf([life, at, shown.join("")]);
}

function placeOf(cursor: string): Place {
  const [life, at, shown] = partsOf(cursor);
  const isPlace =
    typeof life === "string" && typeof at === "string" && /^\d{1,20}$/.test(at) && typeof shown === "string";
  if (!isPlace) throw notAPlace();
  return { life, at, shown: shown.match(/.{8}/g) ?? [] };
}
