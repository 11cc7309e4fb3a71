import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import { StoreError } from "../../core/errors.ts";
import type { RecordState } from "../../core/record.ts";
import type { RedisReply } from "./client.ts";
import { idOf } from "./names.ts";
import { listOf, type Server } from "./server.ts";

/** What happened off the happy path, the latest first: each bucket has a stream of its own. */
export async function readAudit(server: Server, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const { names } = server;
  const { scope, key, limit, before } = query;
  const buckets =
    scope !== undefined && key !== undefined ? [names.bucketOf({ scope, key })] : [...names.tags.keys()];
  const end = before === undefined ? undefined : placeOf(before);
  const found = await Promise.all(buckets.map((bucket) => readBucket(server, bucket, { ...query, end })));
  return found
    .flat()
    .sort((a, b) => compare(b.place, a.place))
    .slice(0, limit)
    .map(({ entry }) => entry);
}

interface Place {
  readonly time: bigint;
  readonly sequence: bigint;
  readonly bucket: number;
}

/** Where an entry is among those of all buckets, from its id. */
function placeOf(id: string): Place {
  const [, time, sequence, bucket] = /^(\d+)-(\d+)-(\d+)$/.exec(id) ?? [];
  if (time === undefined || sequence === undefined) {
    throw new StoreError(`"${id}" is no entry of this audit trail: pass the id of one that was read before`);
  }
  return { time: BigInt(time), sequence: BigInt(sequence), bucket: Number(bucket) };
}

function compare(a: Place, b: Place): number {
  if (a.time !== b.time) return a.time < b.time ? -1 : 1;
  if (a.sequence !== b.sequence) return a.sequence < b.sequence ? -1 : 1;
  return a.bucket - b.bucket;
}

async function readBucket(
  server: Server,
  bucket: number,
  { scope, key, limit, end }: AuditQuery & { readonly end: Place | undefined },
): Promise<readonly { readonly place: Place; readonly entry: AuditEntry }[]> {
  const stream = `${server.names.tags[bucket]}@audit`;
  const found: { place: Place; entry: AuditEntry }[] = [];
  let from = end === undefined ? "+" : `${end.time}-${end.sequence}`;
  for (;;) {
    const page = listOf(
      await server.send(stream, ["XREVRANGE", stream, from, "-", "COUNT", String(pageEntries)]),
    );
    for (const told of page) {
      const { place, entry } = entryOf(told, bucket);
      from = `(${place.time}-${place.sequence}`;
      if (end !== undefined && compare(place, end) >= 0) continue;
      if (scope !== undefined && entry.scope !== scope) continue;
      if (key !== undefined && entry.key !== key) continue;
      found.push({ place, entry });
      if (found.length >= limit) return found;
    }
    if (page.length < pageEntries) return found;
  }
}

export const pageEntries = 500;

export function entryOf(
  told: RedisReply,
  bucket: number,
): { readonly place: Place; readonly entry: AuditEntry } {
  const [streamId, fields] = listOf(told);
  const id = `${String(streamId)}-${bucket}`;
  const texts = listOf(fields ?? []).map(String);
  // The names of the fields are one letter each and come in this order; a value could look like one of them.
  const [, name = "", , fence = "", , change = "", , by = "", , reason = "", , at = ""] = texts;
  const [from = "", to = ""] = change.split(">");
  return {
    place: placeOf(id),
    entry: {
      id,
      ...idOf(name),
      at: Number(at),
      fence: Number(fence),
      from: from as RecordState,
      to: to as RecordState,
      by,
      reason,
    },
  };
}
