import type { JsonText } from "./phase.ts";

/** A message that commits with a business write, and is delivered because that write committed. */
export interface NewMessage {
  readonly topic: string;
  readonly payload: JsonText;
  /** Messages of one partition are delivered in the order in which they were enqueued; null: in any order. */
  readonly partition: string | null;
  /** What a consumer deduplicates on: the same for every delivery of this message. */
  readonly key: string;
  /** What ties the message to the request that caused it. */
  readonly correlationId: string;
  /** The scope of the request that caused it, so that what is kept of a tenant can be found. */
  readonly scope: string;
  /** The W3C trace context of the phase that enqueued it, where there is one. */
  readonly traceparent: string | null;
  /** How long after its commit the message becomes due. */
  readonly delayMs: number;
}

/** A message that waits for its delivery, or whose deliveries have all failed. */
export interface Message extends Omit<NewMessage, "delayMs"> {
  /** Its place in the order of its partition. Only the store makes and reads it. */
  readonly id: string;
  /** How many deliveries have failed so far. */
  readonly attempts: number;
  readonly createdAt: number;
}

/** A message that nobody tries to deliver any more. */
export interface DeadMessage extends Message {
  readonly error: string;
  readonly diedAt: number;
}

/** What became of one attempt at a delivery. */
export type Delivery =
  | { readonly kind: "delivered"; readonly id: string; readonly reference?: string }
  | { readonly kind: "failed"; readonly id: string; readonly error: string; readonly retryAfterMs: number }
  | { readonly kind: "dead"; readonly id: string; readonly error: string };

export interface OutboxCounts {
  readonly waiting: number;
  readonly dead: number;
  /** How long the oldest message that is due has been waiting. */
  readonly oldestDueMs: number;
}

/**
 * The messages of a store with transactions; they come into it with a phase. A relay claims lanes: every partition
 * belongs to one lane, and a lane belongs to one relay at a time, so that no two relays deliver one partition at once.
 */
export interface Outbox {
  /**
   * Up to `limit` messages that may be delivered now, in order, from lanes that belong to `owner` for `leaseMs`. A
   * message waits behind an earlier one of its partition that is not due yet.
   */
  claim(options: {
    readonly owner: string;
    readonly limit: number;
    readonly leaseMs: number;
  }): Promise<readonly Message[]>;

  /**
   * Writes down what became of messages that `owner` claimed, and frees its lanes. What came of a lane that has a new
   * owner by now counts for nothing; the new owner delivers again.
   */
  settle(owner: string, deliveries: readonly Delivery[]): Promise<void>;

  counts(): Promise<OutboxCounts>;

  /** The oldest first; the next page begins after the last id of this one. */
  deadLetters(options: { readonly limit: number; readonly after?: string }): Promise<readonly DeadMessage[]>;

  /**
   * Gives dead messages a new life: all of their attempts, beginning now. Each is an entry of the audit trail, under the
   * message's scope and key, from `dead_letter` to `requeued`, by whoever said so.
   */
  requeue(ids: readonly string[], by: string): Promise<number>;

  /** Removes up to `limit` messages that were delivered before `retentionMs` ago; those with a reference are kept that long. */
  prune(options: { readonly limit: number; readonly retentionMs: number }): Promise<number>;

  /**
   * Calls `wake` soon after messages may have been enqueued. A wake-up may be missed or may come for nothing: whoever
   * waits also polls, only more slowly.
   */
  watch?(wake: () => void): Promise<() => void>;
}
