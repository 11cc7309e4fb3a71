import { createHash } from "node:crypto";
import type { RecordId } from "../../core/record.ts";
import type { BustListener, Unwatch } from "../../core/store.ts";
import { BustListeners } from "../bust-listeners.ts";
import { Watchers } from "../watchers.ts";
import type { RedisListening } from "./client.ts";
import { nameOf } from "./names.ts";
import type { Server } from "./server.ts";

/**
 * Hears, on a connection of its own, of records that change while somebody waits for them, and of busts. What is
 * published are digests: an id is nobody's business on a channel that others may hear.
 */
export class Push {
  readonly #server: Server;
  readonly #watchers = new Watchers();
  readonly #bustListeners = new BustListeners();
  /** Made when it is first needed. */
  #listening: RedisListening | undefined;
  #isListening = false;
  /** Subscriptions, by channel. */
  readonly #heard = new Map<string, Promise<void>>();

  constructor(server: Server) {
    this.#server = server;
  }

  /** A record is marked as watched, so that nothing has to be published of all the others. */
  async watch(id: RecordId, wake: () => void): Promise<Unwatch> {
    const unwatch = this.#watchers.add(watched(digestOf(id)), wake);
    try {
      const { names } = this.#server;
      await Promise.all([
        this.#hear([`${names.tagOf(id)}!`]),
        this.#server.ask("watch", [names.keyOf(id)], []),
      ]);
      return unwatch;
    } catch (error) {
      unwatch();
      throw error;
    }
  }

  onBusted(listener: BustListener): void {
    this.#bustListeners.add(listener);
    // If there is no connection now, the listener is told when there is one.
    this.#hear(this.#server.names.tags.map((tag) => `${tag}!`)).catch(() => {});
  }

  async close(): Promise<void> {
    await this.#listening?.close();
  }

  /** Resolves when all of the channels are heard. */
  #hear(channels: readonly string[]): Promise<unknown> {
    // On one server all are heard at once, so that it is known for all of them together whether they are.
    const wanted = this.#server.link.isCluster ? channels : this.#server.names.tags.map((tag) => `${tag}!`);
    const missing = wanted.filter((channel) => !this.#heard.has(channel));
    if (missing.length > 0) {
      const subscribed = this.#connection().subscribe(missing);
      for (const channel of missing) this.#heard.set(channel, subscribed);
      subscribed.catch(() => {
        for (const channel of missing) this.#heard.delete(channel);
      });
    }
    return Promise.all(wanted.map((channel) => this.#heard.get(channel)));
  }

  #connection(): RedisListening {
    this.#listening ??= this.#server.link.listen({
      heard: (_channel, message) => {
        const text = message.toString();
        const digest = text.slice(1);
        if (text.startsWith("b")) this.#bustListeners.busted(digest);
        else if (text === "e") this.#allBusted();
        else this.#watchers.wake(watched(digest));
      },
      connected: () => {
        this.#isListening = true;
        this.#bustListeners.listening();
      },
      interrupted: () => {
        this.#isListening = false;
        this.#bustListeners.interrupted();
      },
    });
    return this.#listening;
  }

  /** Any answer may be gone: nothing that was kept counts any more, and what is asked for from now on does. */
  #allBusted(): void {
    if (!this.#isListening) return;
    this.#bustListeners.interrupted();
    this.#bustListeners.listening();
  }
}

/** What a record is called on the channels. */
export function digestOf(id: RecordId): string {
  return createHash("sha1").update(nameOf(id)).digest("hex");
}

/** Those who wait are found by the digest alone. */
function watched(digest: string): RecordId {
  return { scope: "", key: digest };
}
