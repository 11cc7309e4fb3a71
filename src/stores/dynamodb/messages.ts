import { randomUUID } from "node:crypto";
import type { Message, NewMessage } from "../../core/outbox.ts";
import { fitting, type ItemKey, indexed, keyItem, shardOf } from "./keys.ts";
import { digits } from "./sequence.ts";
import { type Item, number, numberIn, optionalText, present, text, textIn, textInIf } from "./values.ts";

/*
 * Messages of one partition lie under one partition key, sorted by their numbers; any other has a key of its own. What is
 * delivered or dead lies beside, so that nobody who looks for what waits comes across it.
 */

/** Each lane belongs to one relay at a time. An idle relay asks once for each, so there are not many. */
const laneCount = 16;
export const lanes: readonly number[] = Array.from({ length: laneCount }, (_, lane) => lane);

/**
 * Each counter numbers the messages of its partitions; those of one counter are of one lane. Phases that enqueue under one
 * counter at the same time are in each other's way, so there are many. But a phase that enqueues into very many partitions
 * has to write almost all of them, of the hundred items that a transaction may have.
 */
const counterCount = 4 * laneCount;

/** What a message is, and where. */
export type Place = "message" | "dead" | "delivered";

export interface Numbered extends Omit<NewMessage, "delayMs"> {
  readonly pk: string;
  readonly sequence: number;
  readonly attempts: number;
  readonly createdAt: number;
  /** When it may be delivered. */
  readonly due: number;
}

export function partitionPk(partition: string): string {
  return `${partitionPrefix}${fitting(partition)}`;
}

/** The lane is a part of the key, so that it is known to whoever has the id. */
export function singlePk(lane: number): string {
  return `${singlePrefix}${lane}#${randomUUID()}`;
}

const partitionPrefix = "partition#";
const singlePrefix = "single#";

export function isOfPartition(pk: string): boolean {
  return pk.startsWith(partitionPrefix);
}

/** For messages of partitions only. */
export function counterOf(pk: string): number {
  return shardOf(pk, counterCount);
}

export function randomLane(): number {
  return Math.floor(Math.random() * laneCount);
}

export function laneOf(pk: string): number {
  if (isOfPartition(pk)) return counterOf(pk) % laneCount;
  return Number.parseInt(pk.slice(singlePrefix.length), 10);
}

export function messageKey({ pk, sequence }: Pick<Numbered, "pk" | "sequence">, place: Place): ItemKey {
  return { pk, sk: `${place}#${digits(sequence)}` };
}

export function messageItem(message: Numbered): Item {
  return {
    ...keyItem(messageKey(message, "message")),
    ...contents(message),
    due: number(message.due),
    ...indexed("outbox", laneOf(message.pk), message.due),
  };
}

export function deadItem(message: Numbered, { error, diedAt }: { error: string; diedAt: number }): Item {
  return {
    ...keyItem(messageKey(message, "dead")),
    ...contents(message),
    error: text(error),
    diedAt: number(diedAt),
    ...indexed("dead", 0, message.sequence),
  };
}

export function deliveredItem(message: Numbered, { reference, at }: { reference: string; at: number }): Item {
  return {
    ...keyItem(messageKey(message, "delivered")),
    ...contents(message),
    reference: text(reference),
    ...indexed("delivered", laneOf(message.pk), at),
  };
}

function contents(message: Numbered): Item {
  const { topic, partition, payload, key, correlationId, scope, traceparent, attempts, createdAt } = message;
  return present({
    topic: text(topic),
    partition: optionalText(partition),
    payload: text(payload),
    messageKey: text(key),
    correlationId: text(correlationId),
    // By this name the index has it as well, so that a tenant's messages are found without reading them.
    entry: text(scope),
    traceparent: optionalText(traceparent),
    attempts: number(attempts),
    createdAt: number(createdAt),
  });
}

export function numberedOf(item: Item): Numbered {
  return {
    pk: textIn(item, "pk"),
    sequence: Number(textIn(item, "sk").split("#")[1]),
    topic: textIn(item, "topic"),
    partition: textInIf(item, "partition") ?? null,
    payload: textIn(item, "payload"),
    key: textIn(item, "messageKey"),
    correlationId: textIn(item, "correlationId"),
    scope: scopeIn(item),
    traceparent: textInIf(item, "traceparent") ?? null,
    attempts: numberIn(item, "attempts"),
    createdAt: numberIn(item, "createdAt"),
    due: Number(item.due?.N ?? 0),
  };
}

/** Of a message, or of what the index says about one. */
export function scopeIn(item: Item): string {
  return textInIf(item, "entry") ?? "";
}

export function messageOf(message: Numbered): Message {
  const { pk: _pk, sequence: _sequence, due: _due, ...told } = message;
  return { id: idOf(message), ...told };
}

export function idOf({ pk, sequence }: Pick<Numbered, "pk" | "sequence">): string {
  return `${digits(sequence)}/${pk}`;
}

/** Undefined if no message of this store can have such an id. */
export function parseId(id: string): Pick<Numbered, "pk" | "sequence"> | undefined {
  const [, sequence, pk] = /^(\d{16})\/((?:partition#|single#\d+#).+)$/s.exec(id) ?? [];
  return sequence === undefined || pk === undefined ? undefined : { pk, sequence: Number(sequence) };
}
