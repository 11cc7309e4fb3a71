import assert from "node:assert/strict";
import type { DeadMessage, Delivery, Message, NewMessage, Outbox } from "../../core/outbox.ts";
import type { Store } from "../../core/store.ts";
import type { ContractCase } from "./harness.ts";
import { fresh, lease, longMs, rounds } from "./requests.ts";

/** Longer than any run of the whole contract. */
export const neverMs = 24 * 3_600_000;

/** An outbox in which nothing but the messages of this case is due. */
export interface OutboxBench {
  readonly store: Store;
  readonly outbox: Outbox;
  passTime(ms: number): Promise<void>;
  /** Commits messages in one phase, named after their payload. */
  send(...messages: readonly Partial<NewMessage>[]): Promise<void>;
  relay(): Relay;
  /** The dead messages of this case. */
  dead(): Promise<readonly DeadMessage[]>;
}

/** Claims and settles under a name of its own. */
interface Relay {
  claim(options?: { readonly limit?: number; readonly leaseMs?: number }): Promise<readonly Message[]>;
  settle(...deliveries: readonly Delivery[]): Promise<void>;
}

let sequence = 0;

export function outboxPushCase(name: string, run: (bench: OutboxBench) => Promise<void>): ContractCase {
  return { ...outboxCase(name, run), needs: "outbox push" };
}

export function outboxCase(name: string, run: (bench: OutboxBench) => Promise<void>): ContractCase {
  return {
    name,
    needs: "transactions",
    async run({ store, passTime }) {
      const { outbox } = store;
      if (outbox === undefined || store.transact === undefined) {
        assert.fail("capabilities.transactions promises transact and an outbox");
      }
      sequence += 1;
      const topic = `topic-${process.pid}-${sequence}`;
      const owners: string[] = [];
      const relay = (): Relay => {
        const owner = `${topic}-relay-${owners.length}`;
        owners.push(owner);
        return {
          claim: ({ limit = 1_000, leaseMs = longMs } = {}) => outbox.claim({ owner, limit, leaseMs }),
          settle: (...deliveries) => outbox.settle(owner, deliveries),
        };
      };
      await clear(outbox);
      try {
        await run({
          store,
          outbox,
          passTime: (ms) => passTime(ms),
          relay,
          async send(...messages) {
            const held = await lease(store, fresh());
            const answer = await store.transact?.(
              held,
              () => undefined,
              () => ({
                progress: [],
                onCrash: "retry",
                messages: messages.map((message) => newMessage(topic, message)),
              }),
            );
            assert.equal(answer?.kind, "committed");
          },
          dead: async () =>
            (await outbox.deadLetters({ limit: 1_000 })).filter((message) => message.topic === topic),
        });
      } finally {
        for (const owner of owners) await outbox.settle(owner, []);
        await clear(outbox);
      }
    },
  };
}

/** Cases may share one database: what is due belongs to the case that runs. */
async function clear(outbox: Outbox): Promise<void> {
  const owner = `clear-${process.pid}`;
  for (const _ of rounds()) {
    const batch = await outbox.claim({ owner, limit: 1_000, leaseMs: longMs });
    await outbox.settle(owner, batch.map(delivered));
    if (batch.length === 0) break;
  }
}

function newMessage(topic: string, overrides: Partial<NewMessage>): NewMessage {
  sequence += 1;
  const { partition = null } = overrides;
  return {
    topic,
    payload: "{}",
    key: `message-${sequence}`,
    correlationId: topic,
    scope: topic,
    traceparent: null,
    delayMs: 0,
    ...overrides,
    partition: partition === null ? null : ownPartition(topic, partition),
  };
}

/** Cases may share one database, and a partition in which another one left something behind would be held up. */
export function ownPartition(topic: string, name: string): string {
  return `${topic}/${name}`;
}

export function delivered(message: Message | undefined): Extract<Delivery, { kind: "delivered" }> {
  return { kind: "delivered", id: idOf(message) };
}

export function failed(message: Message | undefined, retryAfterMs: number): Delivery {
  return { kind: "failed", id: idOf(message), error: "not now", retryAfterMs };
}

export function died(message: Message | undefined): Delivery {
  return { kind: "dead", id: idOf(message), error: "refused for good" };
}

function idOf(message: Message | undefined): string {
  if (message === undefined) assert.fail("there is no message");
  return message.id;
}

export function payloads(messages: readonly Message[]): string[] {
  return messages.map(({ payload }) => payload);
}

export function named(messages: readonly Message[], ...names: readonly string[]): readonly Message[] {
  return messages.filter(({ payload }) => names.includes(payload));
}
