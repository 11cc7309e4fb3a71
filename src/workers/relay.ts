import { ConfigError, StoreError } from "../core/errors.ts";
import type { Delivery, Message, Outbox } from "../core/outbox.ts";
import { reasonCharactersMax, storableText } from "../core/text.ts";
import { backoffMs } from "../core/transition.ts";
import { Deadlines } from "../engine/deadlines.ts";
import type { LatchkeyEvent } from "../engine/events.ts";
import type { Runtime } from "../engine/runtime.ts";
import type { Latchkey } from "../latchkey.ts";
import { type Deliver, NotDeliverableError, RetryLaterError } from "./deliveries/deliver.ts";
import { loopOf, type Worker } from "./loop.ts";

export interface RelayOptions {
  /** Hands one message to its receiver: `toHandlers`, `toWebhook`, `toJetStream`, …, or a function of your own. */
  readonly deliver: Deliver;
  /** How many messages are claimed, and settled, at a time. */
  readonly batch?: number;
  /** How many deliveries run at once. Messages of one partition never do. */
  readonly concurrency?: number;
  /** How long a relay that died keeps others from the messages that it had claimed. */
  readonly leaseMs?: number;
  /** A delivery that takes longer has failed. */
  readonly deliverTimeoutMs?: number;
  /** How many deliveries may fail before a message becomes a dead letter. */
  readonly attemptsMax?: number;
  /** The pause after a failure is random up to `baseMs`, up to twice as long each time, but never above `capMs`. */
  readonly backoff?: { readonly baseMs: number; readonly capMs: number };
  /** How often an idle relay looks for messages that no notification told it of, and for those that are due again. */
  readonly intervalMs?: number;
}

export interface RelayCounts {
  readonly delivered: number;
  readonly failed: number;
  readonly dead: number;
}

/**
 * Delivers what committed: at least once, in order within each partition. Any number of relays may run.
 *
 * @example
 * ```ts
 * const worker = relay(latchkey, { deliver: toHandlers({ "receipt.send": (message) => mail(message.payload) }) });
 * await worker.run(signal);
 * ```
 */
export function relay(latchkey: Latchkey, options: RelayOptions): Worker<RelayCounts> {
  const { outbox } = latchkey.store;
  if (outbox === undefined) {
    throw new ConfigError(
      `a relay delivers what was enqueued in transactions, and the ${latchkey.store.name} store has none: use ` +
        "sqliteStore, postgresStore, mysqlStore or dynamodbStore",
    );
  }
  const relay = new Relay(latchkey, outbox, resolveOptions(options));
  return loopOf({
    name: "relay",
    latchkey,
    runOnce: (stopping) => relay.runOnce(stopping),
    isIdle: ({ delivered, failed, dead }) => delivered + failed + dead === 0,
    intervalMs: options.intervalMs ?? intervalMsDefault,
    watch: outbox.watch?.bind(outbox),
  });
}

const intervalMsDefault = 1_000; // As late as a missed notification can make a message.

type ResolvedOptions = Required<Omit<RelayOptions, "intervalMs">>;

const leaseMsDefault = 30_000; // What a crash delays its messages by; longer than any batch needs to take.
const deliverTimeoutMsDefault = 10_000; // What webhook senders commonly grant.

/** The end of a lease belongs to the settlement, so that what was delivered is written down before anybody repeats it. */
const settleShare = 0.2;

function resolveOptions(options: RelayOptions): ResolvedOptions {
  if (typeof options.deliver !== "function") {
    throw new ConfigError("a relay needs deliver: toHandlers({ … }), toWebhook({ … }), or a function");
  }
  const leaseMs = options.leaseMs ?? leaseMsDefault;
  const resolved = {
    deliver: options.deliver,
    batch: options.batch ?? 250, // Large enough that the store's share is small, small enough to be over in a moment.
    concurrency: options.concurrency ?? 32,
    leaseMs,
    deliverTimeoutMs: options.deliverTimeoutMs ?? Math.min(deliverTimeoutMsDefault, leaseMs / 2),
    attemptsMax: options.attemptsMax ?? 20, // With the pauses below, about four hours.
    backoff: options.backoff ?? { baseMs: 1_000, capMs: 3_600_000 },
  };
  const { batch, concurrency, attemptsMax, deliverTimeoutMs, backoff } = resolved;
  const { intervalMs = intervalMsDefault } = options;
  for (const [name, value] of Object.entries({ leaseMs, deliverTimeoutMs, intervalMs, ...backoff })) {
    if (!(value > 0 && Number.isFinite(value))) {
      throw new ConfigError(`${name} of the relay is ${value} and must be above 0`);
    }
  }
  for (const [name, value] of Object.entries({ batch, concurrency, attemptsMax })) {
    if (!(value > 0 && Number.isInteger(value))) {
      throw new ConfigError(`${name} of the relay is ${value} and must be a whole number above 0`);
    }
  }
  if (deliverTimeoutMs > leaseMs * (1 - settleShare)) {
    throw new ConfigError(
      `deliverTimeoutMs of the relay is ${deliverTimeoutMs} and must be at most ${leaseMs * (1 - settleShare)}, ` +
        `so that one delivery fits into the lease (${leaseMs}): make leaseMs longer`,
    );
  }
  return resolved;
}

class Relay {
  readonly #latchkey: Latchkey;
  readonly #outbox: Outbox;
  readonly #options: ResolvedOptions;
  readonly #runtime: Runtime;
  readonly #deliveryDeadlines: Deadlines;
  readonly #storeDeadlines: Deadlines;
  #owner: string;
  #lastRound: Promise<unknown> = Promise.resolve();

  constructor(latchkey: Latchkey, outbox: Outbox, options: ResolvedOptions) {
    this.#latchkey = latchkey;
    this.#outbox = outbox;
    this.#options = options;
    this.#runtime = latchkey.engine.runtime;
    this.#deliveryDeadlines = new Deadlines(this.#runtime, options.deliverTimeoutMs);
    // A claim that takes longer than its own lease is worth nothing.
    this.#storeDeadlines = new Deadlines(this.#runtime, options.leaseMs);
    this.#owner = this.#newOwner();
  }

  /** One round after the other: lanes belong to the relay, so that two rounds at once would share a partition. */
  runOnce(stopping: AbortSignal | undefined): Promise<RelayCounts> {
    const round = this.#lastRound.then(() => this.#round(stopping));
    this.#lastRound = round.catch(() => {});
    return round;
  }

  async #round(stopping: AbortSignal | undefined): Promise<RelayCounts> {
    const { leaseMs, batch: limit, deliverTimeoutMs } = this.#options;
    const owner = this.#owner;
    // The store counts the lease from a moment that cannot be before this one.
    const claimedAt = this.#runtime.now();
    const messages = await this.#answerOf(this.#outbox.claim({ owner, limit, leaseMs }));
    if (messages.length === 0) return { delivered: 0, failed: 0, dead: 0 };

    const startUntil = claimedAt + leaseMs * (1 - settleShare) - deliverTimeoutMs;
    const mayStart = () => !stopping?.aborted && this.#runtime.now() <= startUntil;
    const attempts = await this.#deliverAll(messages, mayStart);
    await this.#settle(
      owner,
      attempts.map(({ delivery }) => delivery),
      claimedAt + leaseMs,
    );
    return this.#tell(attempts);
  }

  /** Partitions side by side, the messages of each one after the other. */
  async #deliverAll(messages: readonly Message[], mayStart: () => boolean): Promise<Attempt[]> {
    const attempts: Attempt[] = [];
    const lines = linesOf(messages).values();
    const deliverLines = async () => {
      for (const line of lines) {
        for (const message of line) {
          if (!mayStart()) return;
          const delivery = await this.#deliver(message);
          attempts.push({ message, delivery });
          // Whatever comes after it in its partition waits behind it. A dead letter keeps nobody waiting.
          if (delivery.kind === "failed") break;
        }
      }
    };
    await Promise.all(Array.from({ length: this.#options.concurrency }, deliverLines));
    return attempts;
  }

  async #deliver(message: Message): Promise<Delivery> {
    const { id, topic, key, correlationId, partition, createdAt } = message;
    const controller = new AbortController();
    const deliver = (traceparent: string | null) =>
      this.#unlessTooSlow(controller, () =>
        this.#options.deliver(
          {
            id,
            topic,
            payload: JSON.parse(message.payload),
            key,
            correlationId,
            partition,
            traceparent,
            attempt: message.attempts + 1,
            createdAt,
          },
          { signal: controller.signal },
        ),
      );
    const { tracing } = this.#latchkey.engine;
    try {
      const receipt = await (tracing === undefined
        ? deliver(message.traceparent)
        : tracing.deliver(message, deliver));
      const reference = receipt?.reference;
      if (reference === undefined) return { kind: "delivered", id };
      return { kind: "delivered", id, reference: storableText(reference, referenceCharactersMax) };
    } catch (error) {
      return this.#failure(message, error);
    }
  }

  /** Waits no longer than the signal allows, even for a delivery that does not listen to it. */
  #unlessTooSlow<T>(controller: AbortController, deliver: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const deadline = this.#deliveryDeadlines.set(() => {
        const error = new Error(`the delivery took longer than ${this.#options.deliverTimeoutMs} ms`);
        controller.abort(error);
        reject(error);
      });
      // In a promise of its own, so that a delivery which throws at once is a failed one too.
      Promise.resolve()
        .then(deliver)
        .finally(() => this.#deliveryDeadlines.meet(deadline))
        .then(resolve, reject);
    });
  }

  #failure(message: Message, thrown: unknown): Delivery {
    const { attemptsMax, backoff } = this.#options;
    const { id, attempts } = message;
    const error = textOf(thrown);
    if (thrown instanceof NotDeliverableError || attempts + 1 >= attemptsMax) {
      return { kind: "dead", id, error };
    }
    // Full jitter: receivers that come back to life are not met by everything that waited for them at once.
    const retryAfterMs =
      thrown instanceof RetryLaterError && thrown.retryAfterMs >= 0
        ? Math.min(thrown.retryAfterMs, backoff.capMs)
        : this.#runtime.random() * backoffMs(backoff, attempts);
    return { kind: "failed", id, error, retryAfterMs };
  }

  /**
   * Tells the store until it answers or the lanes are somebody else's: everything that it does not learn is delivered
   * again. Telling it twice is harmless, because the first time frees the lanes.
   */
  async #settle(owner: string, deliveries: readonly Delivery[], lapsesAt: number): Promise<void> {
    for (let pauseMs = settlePauseMs; ; pauseMs *= 2) {
      try {
        return await this.#answerOf(this.#outbox.settle(owner, deliveries));
      } catch (error) {
        // It may still arrive, and would then free lanes of a later round, if that had the same name.
        this.#owner = this.#newOwner();
        if (this.#runtime.now() + pauseMs >= lapsesAt) throw error;
        await new Promise<void>((resolve) => void this.#runtime.setTimer(resolve, pauseMs));
      }
    }
  }

  #tell(attempts: readonly Attempt[]): RelayCounts {
    const { events } = this.#latchkey.engine;
    const counts = { delivered: 0, failed: 0, dead: 0 };
    for (const attempt of attempts) {
      counts[attempt.delivery.kind] += 1;
      if (events.areHeard) events.emit(eventOf(attempt));
    }
    return counts;
  }

  async #answerOf<T>(answer: Promise<T>): Promise<T> {
    const outcome = await this.#storeDeadlines.within(answer.then((value) => ({ value })));
    if (outcome !== undefined) return outcome.value;
    throw new StoreError(`the outbox did not answer within ${this.#options.leaseMs} ms`);
  }

  #newOwner(): string {
    return `relay-${Math.floor(this.#runtime.random() * 2 ** 52).toString(36)}`;
  }
}

interface Attempt {
  readonly message: Message;
  readonly delivery: Delivery;
}

const settlePauseMs = 50; // A connection that broke is replaced within some milliseconds.
const referenceCharactersMax = 500; // Longer than any provider's id.

/** The messages of each partition, in order; every message without one is a line of its own. */
function linesOf(messages: readonly Message[]): Message[][] {
  const lines: Message[][] = [];
  const byPartition = new Map<string, Message[]>();
  for (const message of messages) {
    const line = message.partition === null ? undefined : byPartition.get(message.partition);
    if (line !== undefined) {
      line.push(message);
      continue;
    }
    const newLine = [message];
    lines.push(newLine);
    if (message.partition !== null) byPartition.set(message.partition, newLine);
  }
  return lines;
}

function eventOf({ message, delivery }: Attempt): LatchkeyEvent {
  const about = { topic: message.topic, messageKey: message.key, attempts: message.attempts + 1 };
  switch (delivery.kind) {
    case "delivered":
      return { type: "delivered", ...about };
    case "failed":
      return { type: "delivery_failed", ...about, error: delivery.error };
    case "dead":
      return { type: "dead_letter", ...about, error: delivery.error };
    default:
      return delivery satisfies never;
  }
}

function textOf(thrown: unknown): string {
  return storableText(thrown instanceof Error ? thrown.message : thrown, reasonCharactersMax);
}
