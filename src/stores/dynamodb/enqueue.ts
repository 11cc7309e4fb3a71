import { randomUUID } from "node:crypto";
import type { TransactWriteItem } from "@aws-sdk/client-dynamodb";
import type { NewMessage } from "../../core/outbox.ts";
import { digits } from "./audit.ts";
import { type ItemKey, indexed, keyItem } from "./keys.ts";
import {
  counterOf,
  firstSequence,
  laneOf,
  lanes,
  messageItem,
  type Numbered,
  partitionPk,
  randomLane,
  singlePk,
} from "./messages.ts";
import { checkedItem } from "./records.ts";
import type { Table } from "./table.ts";
import { type Item, itemBytesMax, number, numberIn, text, textIn } from "./values.ts";

/**
 * What has to be written in a transaction to enqueue messages: each as an item, or, where there is no room for so many,
 * all of a lane in few parcels, which the relay opens. The counters are read first and written on condition that they are
 * still so: what commits later has the higher number.
 */
export async function enqueuing(
  table: Table,
  messages: readonly NewMessage[],
  { now, room }: { readonly now: number; readonly room: number },
): Promise<readonly TransactWriteItem[]> {
  if (messages.length === 0) return [];
  const counters = new Set(
    messages.flatMap(({ partition }) => (partition === null ? [] : counterOf(partitionPk(partition)))),
  );
  const found = await table.getAll([...counters].map(counterKey));
  const last = new Map(found.map((item) => [textIn(item, "pk"), numberIn(item, "last")]));
  const lastOf = (counter: number) => last.get(counterKey(counter).pk);
  const next = new Map([...counters].map((counter) => [counter, firstSequence(now, lastOf(counter))]));
  const numbered = numberAll(messages, next, now);
  const counting = [...next].map(([counter, sequence]) => ({
    Update: counterUpdate(table, counter, { from: lastOf(counter), to: sequence - 1 }),
  }));
  const items =
    numbered.length + counting.length <= room
      ? numbered.map((message) => checkedItem(messageItem(message)))
      : parcels(numbered);
  return [...counting, ...items.map((item) => ({ Put: { TableName: table.name, Item: item } }))];
}

/** Takes the next number of its counter for each message of a partition. */
function numberAll(messages: readonly NewMessage[], next: Map<number, number>, now: number): Numbered[] {
  const singleLane = randomLane();
  const first = firstSequence(now);
  return messages.map(({ delayMs, ...message }, nth) => {
    const common = { ...message, attempts: 0, createdAt: now, due: now + delayMs };
    if (message.partition === null) return { ...common, pk: singlePk(singleLane), sequence: first + nth };
    const pk = partitionPk(message.partition);
    const counter = counterOf(pk);
    const sequence = next.get(counter) ?? first;
    next.set(counter, sequence + 1);
    return { ...common, pk, sequence };
  });
}

function counterUpdate(
  table: Table,
  counter: number,
  { from, to }: { from: number | undefined; to: number },
) {
  return table.updateInput(counterKey(counter), { set: { last: number(to) } }, (expression) =>
    from === undefined ? expression.notExists("last") : expression.equal({ last: number(from) }),
  );
}

/** Only those who enqueue come here; relays have claims of their own. */
function counterKey(counter: number): ItemKey {
  return { pk: `counter#${counter}`, sk: "counter" };
}

/** The parcels of a lane lie under one key, so that a relay finds all of them, the earliest first. */
export function parcelPk(lane: number): string {
  return `parcels#${lane}`;
}

function parcels(messages: readonly Numbered[]): Item[] {
  return lanes.flatMap((lane) => {
    const ofLane = messages.filter(({ pk }) => laneOf(pk) === lane);
    return sized(ofLane).map((contents) => parcel(lane, contents));
  });
}

function parcel(lane: number, messages: readonly Numbered[]): Item {
  const due = Math.min(...messages.map((message) => message.due));
  const sk = `${digits(messages[0]?.sequence ?? 0)}#${randomUUID()}`;
  return checkedItem({
    ...keyItem({ pk: parcelPk(lane), sk }),
    contents: text(JSON.stringify(messages)),
    messages: number(messages.length),
    ...indexed("outbox", lane, due),
  });
}

export function messagesIn(parcelItem: Item): Numbered[] {
  return JSON.parse(textIn(parcelItem, "contents")) as Numbered[];
}

/** As many messages together as fit into one item. */
function sized(messages: readonly Numbered[]): Numbered[][] {
  const groups: Numbered[][] = [];
  let left = 0;
  for (const message of messages) {
    const size = Buffer.byteLength(JSON.stringify(message)) + 1;
    if (groups.length === 0 || size > left) {
      groups.push([]);
      left = parcelBytesMax;
    }
    groups.at(-1)?.push(message);
    left -= size;
  }
  return groups;
}

const parcelBytesMax = itemBytesMax - 4_096;
