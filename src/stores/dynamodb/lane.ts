import type { LaneClaims, Unit } from "./claims.ts";
import { inParallel } from "./concurrency.ts";
import { findInIndex } from "./due.ts";
import { messagesIn, parcelPk } from "./enqueue.ts";
import { Expression } from "./expression.ts";
import { keyItem, keyOf } from "./keys.ts";
import { isOfPartition, messageItem, messageKey, type Numbered, numberedOf } from "./messages.ts";
import { chunksOf, type Table } from "./table.ts";
import { type Item, number, text, textIn } from "./values.ts";

export interface LaneVisit {
  readonly lane: number;
  /** The relay whose lane this is. */
  readonly owner: string;
  readonly limit: number;
  readonly now: number;
}

/**
 * What may be delivered from one lane, in the order of each partition. The index says where to look, and the table what
 * there is. What waits behind a message that is not due yet is shown by the index again when that one is due, and not
 * before: so a partition that is held up costs one write for each of its messages, and holds up nothing else.
 */
export async function deliverable(
  table: Table,
  claims: LaneClaims,
  visit: LaneVisit,
): Promise<readonly Numbered[]> {
  const { lane, owner, limit, now } = visit;
  const fromParcels = await openParcels(table, claims, visit);
  if (fromParcels === undefined) return [];
  const due: Numbered[] = [];
  const looked = new Map<string, Look>();
  const lookAt = async (found: readonly Found[]): Promise<boolean> => {
    const places = [...new Map(found.map((place) => [place.pk, place])).values()];
    for (const some of chunksOf(
      places.filter(({ pk }) => !looked.has(pk)),
      looksMax,
    )) {
      if (due.length >= limit) break;
      for (const [pk, look] of await lookInto(table, some, { limit: limit - due.length, now })) {
        looked.set(pk, look);
        due.push(...look.due);
      }
    }
    return claims.carryOut(lane, owner, hiding(table, found, looked));
  };
  if (!(await lookAt(fromParcels.filter((message) => message.due <= now)))) return [];
  for await (const page of findInIndex(table, "outbox", lane, { until: now, limit: pageMax })) {
    if (due.length >= limit) break;
    if (!(await lookAt(page.flatMap(foundIn)))) return [];
  }
  return due.slice(0, limit);
}

/** Enough for a batch of any usual size. */
const pageMax = 100;

/** Most of what the index shows is due, but where much is held up it may take many looks to find something. */
const looksMax = 25;

type Found = Pick<Numbered, "pk" | "sequence">;

/** Parcels are not messages, and those that the index still shows are open by now. */
function foundIn(item: Item): Found[] {
  const [place, sequence] = textIn(item, "sk").split("#");
  return place === "message" ? [{ pk: textIn(item, "pk"), sequence: Number(sequence) }] : [];
}

interface Look {
  readonly due: readonly Numbered[];
  /** The first message that is not due, and that everything behind it waits for. */
  readonly blocker: Numbered | undefined;
}

/** What there is in some places, each a partition or a single message, and about `limit` messages of them together. */
async function lookInto(
  table: Table,
  places: readonly Found[],
  { limit, now }: { readonly limit: number; readonly now: number },
): Promise<ReadonlyMap<string, Look>> {
  const partitions = places.filter(({ pk }) => isOfPartition(pk)).map(({ pk }) => pk);
  const singles = places.filter(({ pk }) => !isOfPartition(pk));
  // A partition in which much waits leaves the others their share.
  const share = Math.ceil(limit / places.length);
  const looks = await inParallel(partitions, (pk) => lookIntoPartition(table, pk, { limit: share, now }));
  const items = await table.getAll(singles.map((single) => messageKey(single, "message")));
  const all = new Map(partitions.map((pk, nth) => [pk, looks[nth] ?? nothing]));
  for (const message of items.map(numberedOf)) {
    all.set(message.pk, { due: message.due <= now ? [message] : [], blocker: undefined });
  }
  return all;
}

const nothing: Look = { due: [], blocker: undefined };

async function lookIntoPartition(
  table: Table,
  pk: string,
  { limit, now }: { readonly limit: number; readonly now: number },
): Promise<Look> {
  const expression = new Expression();
  const isWaiting = `begins_with(${expression.name("sk")}, ${expression.value(text("message#"))})`;
  const pages = table.query({
    KeyConditionExpression: `${expression.equal({ pk: text(pk) })} AND ${isWaiting}`,
    ...expression.placeholders,
    ConsistentRead: true,
    Limit: limit,
  });
  const due: Numbered[] = [];
  for await (const items of pages) {
    for (const message of items.map(numberedOf)) {
      if (message.due > now) return { due, blocker: message };
      due.push(message);
      if (due.length === limit) return { due, blocker: undefined };
    }
  }
  return { due, blocker: undefined };
}

/** What waits behind a message that is not due is not to be found before that one is. */
function hiding(table: Table, found: readonly Found[], looked: ReadonlyMap<string, Look>): Unit[] {
  return found.flatMap((message) => {
    const blocker = looked.get(message.pk)?.blocker;
    if (blocker === undefined || message.sequence <= blocker.sequence) return [];
    const changes = { set: { dueAt: number(blocker.due) } };
    const key = messageKey(message, "message");
    return [[{ Update: table.updateInput(key, changes, (expression) => expression.exists("pk")) }]];
  });
}

/**
 * Makes messages of what was enqueued in parcels, before anything of the lane is delivered: they may be the first of
 * their partitions. Undefined if the lane was lost meanwhile.
 */
async function openParcels(
  table: Table,
  claims: LaneClaims,
  { lane, owner }: LaneVisit,
): Promise<readonly Numbered[] | undefined> {
  const expression = new Expression();
  const pages = table.query({
    KeyConditionExpression: expression.equal({ pk: text(parcelPk(lane)) }),
    ...expression.placeholders,
    ConsistentRead: true,
  });
  const opened: Numbered[] = [];
  for await (const items of pages) {
    for (const parcel of items) {
      const messages = messagesIn(parcel);
      const units: Unit[] = messages.map((message) => [
        { Put: { TableName: table.name, Item: messageItem(message) } },
      ]);
      // Last: until then the parcel is opened again, and nothing of it was delivered.
      units.push([{ Delete: { TableName: table.name, Key: keyItem(keyOf(parcel)) } }]);
      if (!(await claims.carryOut(lane, owner, units))) return undefined;
      opened.push(...messages);
    }
  }
  return opened;
}
