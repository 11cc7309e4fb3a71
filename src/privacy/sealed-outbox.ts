import { UnreadableError } from "../core/errors.ts";
import type { DeadMessage, Delivery, Message, Outbox, OutboxCounts } from "../core/outbox.ts";
import type { Opener } from "./opener.ts";
import { shredded } from "./tenant-keys.ts";

/** Told of everything that could not be opened where others were opened beside it. */
export type OnUnreadable = (verb: "claim" | "outbox", error: unknown) => void;

/**
 * The outbox of a store whose messages are sealed. A message that cannot be opened must keep none but its own partition
 * waiting: it counts as a delivery that failed, or as dead if nobody will ever open it, and is told to the store
 * together with the others that were claimed with it.
 */
export class SealedOutbox implements Outbox {
  readonly watch?: NonNullable<Outbox["watch"]>;
  readonly #inner: Outbox;
  readonly #opener: Opener;
  readonly #onUnreadable: OnUnreadable;
  /** By whose claim it was: what could not be opened, and has not been told yet. */
  readonly #unreadable = new Map<string, readonly Delivery[]>();

  constructor(inner: Outbox, opener: Opener, onUnreadable: OnUnreadable) {
    this.#inner = inner;
    this.#opener = opener;
    this.#onUnreadable = onUnreadable;
    if (inner.watch !== undefined) this.watch = inner.watch.bind(inner);
  }

  async claim(options: Parameters<Outbox["claim"]>[0]): Promise<readonly Message[]> {
    const claimed = await this.#inner.claim(options);
    const readable: Message[] = [];
    const unreadable: Delivery[] = [];
    const waiting = new Set<string>();
    for (const message of claimed) {
      const { id, partition } = message;
      // It waits behind one that cannot be opened yet, and is handed out again with it.
      if (partition !== null && waiting.has(partition)) continue;
      try {
        const payload = await this.#opener.payload(message);
        if (payload !== shredded) {
          readable.push({ ...message, payload });
          continue;
        }
        this.#onUnreadable("outbox", new UnreadableError(shreddedError));
        unreadable.push({ kind: "dead", id, error: shreddedError });
      } catch (error) {
        this.#onUnreadable("outbox", error);
        unreadable.push({ kind: "failed", id, error: unreadableError, retryAfterMs: unreadableRetryMs });
        if (partition !== null) waiting.add(partition);
      }
    }
    if (unreadable.length === 0) return readable;
    // Whoever gets nothing has nothing to tell.
    if (readable.length === 0) await this.#inner.settle(options.owner, unreadable);
    else this.#unreadable.set(options.owner, unreadable);
    return readable;
  }

  async settle(owner: string, deliveries: readonly Delivery[]): Promise<void> {
    const unreadable = this.#unreadable.get(owner) ?? [];
    await this.#inner.settle(owner, [...deliveries, ...unreadable]);
    this.#unreadable.delete(owner);
  }

  counts(): Promise<OutboxCounts> {
    return this.#inner.counts();
  }

  async deadLetters(options: Parameters<Outbox["deadLetters"]>[0]): Promise<readonly DeadMessage[]> {
    const dead = await this.#inner.deadLetters(options);
    return Promise.all(dead.map((message) => this.#shown(message)));
  }

  requeue(ids: readonly string[], by: string): Promise<number> {
    return this.#inner.requeue(ids, by);
  }

  prune(options: Parameters<Outbox["prune"]>[0]): Promise<number> {
    return this.#inner.prune(options);
  }

  /** An operator who looks at all of them must see the others. */
  async #shown(message: DeadMessage): Promise<DeadMessage> {
    try {
      const payload = await this.#opener.payload(message);
      return { ...message, payload: payload === shredded ? '{"latchkey":"shredded"}' : payload };
    } catch (error) {
      this.#onUnreadable("outbox", error);
      return { ...message, payload: '{"latchkey":"unreadable"}' };
    }
  }
}

const shreddedError = "the message was made unreadable together with everything of its tenant";
const unreadableError = "the message was sealed with a key that this process does not have, or was changed";

/** Another process may have the key, and a process that was given it is restarted within some minutes. */
const unreadableRetryMs = 60_000;
