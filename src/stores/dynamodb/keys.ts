import { hash } from "node:crypto";
import { StoreError } from "../../core/errors.ts";
import { type RecordId, recordIdText } from "../../core/record.ts";
import { type Item, number, text, textIn } from "./values.ts";

/** What an item is found by. */
export interface ItemKey {
  readonly pk: string;
  readonly sk: string;
}

export function keyItem({ pk, sk }: ItemKey): Item {
  return { pk: text(pk), sk: text(sk) };
}

export function keyOf(item: Item): ItemKey {
  return { pk: textIn(item, "pk"), sk: textIn(item, "sk") };
}

/** Whether DynamoDB would take these for the keys of an item. */
export function isPk(value: unknown): value is string {
  return isKey(value, 2_048);
}

export function isSk(value: unknown): value is string {
  return isKey(value, 1_024);
}

function isKey(value: unknown, bytesMax: number): value is string {
  return typeof value === "string" && value !== "" && Buffer.byteLength(value) <= bytesMax;
}

/** A record is alone under its partition key, so that DynamoDB can spread records as it likes. */
export function recordKey(id: RecordId): ItemKey {
  return { pk: `record#${nameOf(id)}`, sk: recordSk };
}

/** What nothing but a record is sorted by. */
export const recordSk = "record";

/** A note is alone under its partition key, as a record is. */
export function noteKey(name: string): ItemKey {
  return { pk: `note#${name}`, sk: "note" };
}

/** The audit entries of one record are together, and apart from it. */
export function auditPk(id: RecordId): string {
  return `audit#${nameOf(id)}`;
}

/** Scope and key themselves, so that an operator can read them in a console; their SHA-256 where that is too long. */
function nameOf(id: RecordId): string {
  const name = recordIdText(id);
  if (loneSurrogate.test(name)) {
    throw new StoreError(
      "a key or scope is not well-formed Unicode, and DynamoDB would take it for another one: nothing was written",
    );
  }
  return fitting(name);
}

/** The scope that the partition key of a record names; undefined where it is only a digest. */
export function scopeInPk(pk: string): string | undefined {
  const [, length, rest] = /^record#=(\d+):(.*)$/s.exec(pk) ?? [];
  return rest?.slice(Number(length));
}

/** DynamoDB takes 2048 bytes for a partition key. */
export function fitting(name: string): string {
  if (Buffer.byteLength(name) <= nameBytesMax) return `=${name}`;
  return `sha256:${hash("sha256", name)}`;
}

const nameBytesMax = 1_900;
const loneSurrogate = /\p{Surrogate}/u;

/** What the sparse index is asked for: each is one kind of thing that somebody has to do, or to list. */
export type Job =
  /** Executions whose lease may run out. */
  | "lease"
  /** What waits to be executed or finished, by a worker or by anybody, and in the end by nobody. */
  | "unfinished"
  /** Unknown outcomes to ask about. */
  | "reconcile"
  /** Unknown outcomes that an operator has to settle, to be counted. */
  | "escalated"
  /** Settled records, to be reaped. */
  | "reap"
  /** Records that were reaped, and are kept for audit. */
  | "gone"
  | "audit"
  | "outbox"
  | "dead"
  | "delivered";

/** As an item has it in the index. */
export function indexed(job: Job, shard: number, at: number): Item {
  return { job: text(jobName(job, shard)), dueAt: number(at) };
}

export function jobName(job: Job, shard: number): string {
  return `${job}#${shard}`;
}

/**
 * How many partition keys of the index share the work of one job. DynamoDB takes about a thousand writes a second for
 * each, and a reservation with its completion writes the index three times. It must never change.
 */
export const shardCount = 16;
export const shards: readonly number[] = Array.from({ length: shardCount }, (_, shard) => shard);

/** The same in every process, for good. */
export function shardOf(name: string, count: number): number {
  return Number.parseInt(hash("sha256", name).slice(0, 8), 16) % count;
}
