import type { AuditEntry } from "../../core/audit.ts";
import type { DeadMessage, Delivery, Message, NewMessage, Outbox, OutboxCounts } from "../../core/outbox.ts";
import { messageOf } from "../message-row.ts";
import { moment } from "../record-row.ts";
import { requeued } from "../requeued.ts";
import type { Row } from "./driver.ts";
import type { OutboxStatements } from "./outbox-statements.ts";

/** What the outbox needs of its store. */
export interface OutboxContext {
  readonly now: () => number;
  /** Carries out a write, and answers after it is durable. */
  readonly write: <T>(work: (statements: OutboxStatements, audit: WriteAudit) => T) => Promise<T>;
  readonly read: <T>(look: (statements: OutboxStatements) => T) => T;
}

/** Writes down, in the same transaction, who has changed something. */
type WriteAudit = (entry: Omit<AuditEntry, "id">) => void;

/** Messages in the same file as the records, and in the transactions of the atomic phases. */
export class SqliteOutbox implements Outbox {
  readonly #context: OutboxContext;
  readonly #wakes = new Set<() => void>();

  constructor(context: OutboxContext) {
    this.#context = context;
  }

  async claim({ owner, limit, leaseMs }: Parameters<Outbox["claim"]>[0]): Promise<readonly Message[]> {
    return this.#context.write((statements) => {
      const now = this.#context.now();
      const claimed: Row[] = [];
      let lanes = 0;
      const found = statements.findLanes.all(now, owner, now);
      // Twice its share of the batch for each: some have less than theirs.
      const share = Math.ceil((2 * limit) / Math.max(1, Math.min(found.length, lanesMax)));
      for (const { lane } of found) {
        if (claimed.length >= limit || lanes === lanesMax) break;
        const left = Math.min(share, limit - claimed.length);
        const due = dueInLane(statements, { lane: lane as number, limit: left, now });
        if (due.length === 0) continue;
        statements.takeLane.run(owner, moment(now + leaseMs), lane as number);
        lanes += 1;
        claimed.push(...due);
      }
      return claimed.sort((a, b) => (a.id as number) - (b.id as number)).map((row) => messageOf(row.id, row));
    });
  }

  async settle(owner: string, deliveries: readonly Delivery[]): Promise<void> {
    return this.#context.write((statements) => {
      const now = this.#context.now();
      const partitions = new Set<string>();
      for (const delivery of deliveries) {
        const partition = settleOne(statements, { owner, delivery, now })?.partition_key;
        if (typeof partition === "string") partitions.add(partition);
      }
      for (const partition of partitions) statements.promoteHead.run(partition);
      statements.freeLanes.run(owner);
    });
  }

  async counts(): Promise<OutboxCounts> {
    const row = this.#context.read((statements) => statements.countMessages.get());
    const firstDueAt = row?.first_due_at as number | null;
    return {
      waiting: row?.waiting as number,
      dead: row?.dead as number,
      oldestDueMs: firstDueAt === null ? 0 : Math.max(0, this.#context.now() - firstDueAt),
    };
  }

  async deadLetters({ limit, after }: Parameters<Outbox["deadLetters"]>[0]): Promise<readonly DeadMessage[]> {
    return this.#context
      .read((statements) => statements.readDead.all(Number(after ?? 0), limit))
      .map((row) => ({
        ...messageOf(row.id, row),
        error: row.error as string,
        diedAt: row.died_at as number,
      }));
  }

  async requeue(ids: readonly string[], by: string): Promise<number> {
    const revived = await this.#context.write((statements, audit) => {
      const now = this.#context.now();
      let count = 0;
      for (const id of ids) {
        const message = statements.findDead.get(Number(id));
        if (message === undefined) continue;
        statements.revive.run(now, Number(id));
        audit(requeued(messageOf(id, message), { by, at: now }));
        count += 1;
        // It is in front of what has come since. That one is found not to be the head when it is claimed.
        if (message.partition_key !== null) statements.promoteHead.run(message.partition_key as string);
      }
      return count;
    });
    if (revived > 0) this.wake();
    return revived;
  }

  async prune({ limit, retentionMs }: Parameters<Outbox["prune"]>[0]): Promise<number> {
    return this.#context.write((statements) =>
      statements.pruneDelivered.run(this.#context.now() - retentionMs, limit),
    );
  }

  /** Only what this process enqueues: SQLite tells nobody in another one that something changed. */
  async watch(wake: () => void): Promise<() => void> {
    // One of its own for each caller, so that nobody takes away another's.
    const own = () => wake();
    this.#wakes.add(own);
    return () => void this.#wakes.delete(own);
  }

  wake(): void {
    for (const wake of this.#wakes) wake();
  }
}

/** Writes messages down; must be called in the transaction that they belong to. */
export function enqueue(statements: OutboxStatements, messages: readonly NewMessage[], now: number): void {
  for (const { topic, payload, partition, key, correlationId, scope, traceparent, delayMs } of messages) {
    const lane = partition === null ? Math.floor(Math.random() * lanesCount) : laneOf(partition);
    const dueAt = moment(now + delayMs);
    const own = [lane, topic, payload, key, correlationId, scope, traceparent, dueAt, now] as const;
    statements.insertMessage.run(...own, partition, partition, partition);
  }
}

/** As many as the migration made. */
const lanesCount = 64;

/** A quarter of all lanes, so that a relay with much to do leaves something for three others. */
const lanesMax = 16;

/** FNV-1a: short, and it spreads similar names. Every process must come to the same lane, so it must never change. */
function laneOf(partition: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < partition.length; index += 1) {
    hash = Math.imul(hash ^ partition.charCodeAt(index), 0x01000193);
  }
  return (hash >>> 0) % lanesCount;
}

/** What may be delivered from one lane: each head that is due, and what comes after it up to the first that is not. */
function dueInLane(
  statements: OutboxStatements,
  { lane, limit, now }: { readonly lane: number; readonly limit: number; readonly now: number },
): readonly Row[] {
  const due: Row[] = [];
  const heads = statements.findHeads.all(lane, now, limit);
  // A partition in which much waits leaves the others their share of the batch.
  const share = Math.ceil(limit / Math.max(1, heads.length));
  for (const head of heads) {
    const left = Math.min(share, limit - due.length);
    if (left === 0) break;
    if (head.partition_key === null) {
      due.push(head);
      continue;
    }
    const partition = statements.readPartition.all(head.partition_key as string, left);
    if (partition[0]?.id !== head.id) {
      // An earlier message has come back to life. That one is the head.
      statements.demoteHead.run(head.id as number);
      continue;
    }
    const firstNotDue = partition.findIndex((message) => (message.due_at as number) > now);
    due.push(...(firstNotDue === -1 ? partition : partition.slice(0, firstNotDue)));
  }
  return due;
}

/** Answers with the partition in which something else may be the head now. */
function settleOne(
  statements: OutboxStatements,
  { owner, delivery, now }: { readonly owner: string; readonly delivery: Delivery; readonly now: number },
): Row | undefined {
  const id = Number(delivery.id);
  switch (delivery.kind) {
    case "delivered":
      return delivery.reference === undefined
        ? statements.deleteDelivered.get(id, owner)
        : statements.keepDelivered.get(now, delivery.reference, id, owner);
    case "failed":
      statements.postpone.run(moment(now + delivery.retryAfterMs), delivery.error, id, owner);
      return undefined;
    case "dead":
      return statements.bury.get(now, delivery.error, id, owner);
    default:
      return delivery satisfies never;
  }
}
