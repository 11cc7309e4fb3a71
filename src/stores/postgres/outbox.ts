import { hash } from "node:crypto";
import { auditReasons } from "../../core/audit.ts";
import type { DeadMessage, Delivery, Message, NewMessage, Outbox, OutboxCounts } from "../../core/outbox.ts";
import type { RecordId } from "../../core/record.ts";
import type { Watchers } from "../watchers.ts";
import { arrayLiteral } from "./arrays.ts";
import type { Row } from "./database.ts";
import type { Push } from "./push.ts";
import type { Queries } from "./queries.ts";
import { durationMs } from "./rows.ts";
import * as statements from "./statements/outbox.ts";
import { outboxName } from "./statements/phases.ts";
import { channel } from "./statements/sql.ts";

/** As many as the migration has made. */
export const laneCount = 64;

/** A share of the lanes, so that four relays can always work side by side. */
export const lanesPerClaim = 16;

/** Under this name relays wait for messages, among those who wait for records. */
export const outboxId: RecordId = { scope: channel, key: outboxName };

export class PostgresOutbox implements Outbox {
  readonly watch?: (wake: () => void) => Promise<() => void>;
  readonly #queries: Queries;
  /** How many in this process want to be woken. */
  #sleepers = 0;

  constructor(queries: Queries, push: { readonly push: Push; readonly watchers: Watchers } | undefined) {
    this.#queries = queries;
    if (push !== undefined) this.watch = (wake) => this.#watch(push.push, push.watchers, wake);
  }

  async claim(options: { owner: string; limit: number; leaseMs: number }): Promise<readonly Message[]> {
    const messages = await this.#claimNow(options);
    if (messages.length > 0 || this.#sleepers === 0) return messages;
    // Whoever finds nothing is about to sleep. What came before others could know of it is looked for once more.
    return (await this.#fallAsleep()) ? this.#claimNow(options) : messages;
  }

  async #claimNow(options: { owner: string; limit: number; leaseMs: number }): Promise<readonly Message[]> {
    const lanes = await this.#queries.all<{ lane: number }>(statements.claimLanes, [
      options.owner,
      durationMs(options.leaseMs),
      lanesPerClaim,
    ]);
    if (lanes.length === 0) return [];
    const rows = await this.#queries.all<MessageRow>(statements.dueMessages, [
      arrayLiteral(lanes.map(({ lane }) => lane)),
      options.limit,
    ]);
    // Others have come between the two statements. Lanes with nothing in them are not to be held.
    if (rows.length === 0) await this.settle(options.owner, []);
    return rows.map(messageOf);
  }

  async settle(owner: string, deliveries: readonly Delivery[]): Promise<void> {
    await this.#queries.all(statements.settleMessages, [owner, JSON.stringify(deliveries.map(deliveryRow))]);
  }

  async counts(): Promise<OutboxCounts> {
    const { waiting, dead, oldest } = await this.#queries.one<CountsRow>(statements.outboxCounts);
    return { waiting, dead, oldestDueMs: oldest };
  }

  async deadLetters(options: { limit: number; after?: string }): Promise<readonly DeadMessage[]> {
    const rows = await this.#queries.all<DeadRow>(statements.deadLetters, [
      options.limit,
      options.after ?? null,
    ]);
    return rows.map((row) => ({ ...messageOf(row), error: row.error, diedAt: row.died }));
  }

  async requeue(ids: readonly string[], by: string): Promise<number> {
    const { revived } = await this.#queries.one<{ revived: number }>(statements.requeue, [
      // Ids come back from outside: what cannot be one is none, and keeps none of the others from being requeued.
      arrayLiteral(ids.filter((id) => /^\d{1,18}$/.test(id))),
      by,
      auditReasons.requeued,
    ]);
    return revived;
  }

  async prune(options: { limit: number; retentionMs: number }): Promise<number> {
    const { limit, retentionMs } = options;
    const { pruned } = await this.#queries.one<{ pruned: number }>(statements.prune, [
      limit,
      durationMs(retentionMs),
    ]);
    return pruned;
  }

  async #watch(push: Push, watchers: Watchers, wake: () => void): Promise<() => void> {
    const unwatch = watchers.add(outboxId, wake);
    this.#sleepers += 1;
    const stop = () => {
      this.#sleepers -= 1;
      unwatch();
    };
    try {
      await push.ready();
      await this.#fallAsleep();
    } catch (error) {
      stop();
      throw error;
    }
    return once(stop);
  }

  /** From now on the next message wakes everybody who sleeps. False if that was so already. */
  async #fallAsleep(): Promise<boolean> {
    return (await this.#queries.all(statements.fallAsleep)).length > 0;
  }
}

function once(run: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) run();
    isDone = true;
  };
}

/** The messages as the JSON that `phase` takes. */
export function messagesJson(messages: readonly NewMessage[]): string {
  return JSON.stringify(
    messages.map(({ topic, partition, payload, key, correlationId, scope, traceparent, delayMs }) => ({
      lane: laneOf(partition),
      topic,
      partition,
      payload,
      key,
      correlation: correlationId,
      scope,
      trace: traceparent,
      delay: durationMs(delayMs),
    })),
  );
}

/** A partition has one lane for good, whichever process enqueues. The rest is spread evenly. */
export function laneOf(partition: string | null): number {
  if (partition !== null)
    return Number.parseInt(hash("sha256", partition, "hex").slice(0, 8), 16) % laneCount;
  turn = (turn + 1) % laneCount;
  return turn;
}

let turn = 0;

function deliveryRow(delivery: Delivery): object {
  const { kind, id } = delivery;
  switch (delivery.kind) {
    case "delivered":
      return { id, kind, reference: delivery.reference };
    case "failed":
      return { id, kind, error: delivery.error, retry: durationMs(delivery.retryAfterMs) };
    case "dead":
      return { id, kind, error: delivery.error };
    default:
      return delivery satisfies never;
  }
}

export interface MessageRow extends Row {
  readonly id: string;
  readonly topic: string;
  readonly partition: string | null;
  readonly payload: string;
  readonly key: string;
  readonly correlation: string;
  /** Null in messages from before it was written down. */
  readonly scope: string | null;
  readonly trace: string | null;
  readonly attempts: number;
  readonly created: number;
}

export interface DeadRow extends MessageRow {
  readonly error: string;
  readonly died: number;
}

interface CountsRow extends Row {
  readonly waiting: number;
  readonly dead: number;
  readonly oldest: number;
}

export function messageOf(row: MessageRow): Message {
  const { id, topic, partition, payload, key, attempts } = row;
  return {
    id,
    topic,
    partition,
    payload,
    key,
    correlationId: row.correlation,
    scope: row.scope ?? "",
    traceparent: row.trace,
    attempts,
    createdAt: row.created,
  };
}
