import type { ChannelListener, RedisArgument, RedisLink, RedisListening, RedisReply } from "./client.ts";
import { untilReady } from "./connecting.ts";

/** What tells a client of ioredis, and what is used of it. */
export interface IoredisClient {
  readonly status: string;
  readonly isCluster: boolean;
  readonly options: object;
  callBuffer(command: string, args: RedisArgument[]): unknown;
  duplicate(...args: never[]): unknown;
}

export function isIoredis(client: object): client is IoredisClient {
  return "callBuffer" in client && "duplicate" in client && "status" in client;
}

/** A connection, or a cluster's, that was opened here. */
interface Own {
  readonly status: string;
  callBuffer(command: string, args: RedisArgument[]): Promise<unknown>;
  connect(): Promise<void>;
  disconnect(): void;
  pipeline(commands: readonly (readonly string[])[]): { exec(): Promise<[Error | null, unknown][]> };
  subscribe(...channels: string[]): Promise<unknown>;
  ssubscribe(channel: string): Promise<unknown>;
  nodes(role: "master"): readonly Own[];
  on(event: string, listener: (...args: never[]) => void): unknown;
  once(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
}

/** The package ioredis. */
export class IoredisLink implements RedisLink {
  readonly isCluster: boolean;
  readonly keyPrefix: string;
  readonly #client: IoredisClient;
  readonly #own: Own;

  constructor(client: IoredisClient) {
    this.#client = client;
    this.isCluster = client.isCluster;
    const { keyPrefix, redisOptions } = client.options as IoredisOptions;
    this.keyPrefix = keyPrefix ?? redisOptions?.keyPrefix ?? "";
    this.#own = duplicateOf(client);
  }

  send(_key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
    const [command, ...rest] = args;
    if (this.#own.status === "ready") return call(this.#own, String(command), rest);
    return ready(this.#own).then(() => call(this.#own, String(command), rest));
  }

  async sendToAll(args: readonly RedisArgument[]): Promise<readonly RedisReply[]> {
    const [command, ...rest] = args;
    await ready(this.#own);
    const nodes = this.isCluster ? this.#own.nodes("master") : [this.#own];
    return Promise.all(nodes.map((node) => call(node, String(command), rest)));
  }

  async waitForReplicas(key: string, wait: { readonly count: number; readonly timeoutMs: number }) {
    const args = [String(wait.count), String(wait.timeoutMs)];
    if (!this.isCluster) return Number(await call(this.#own, "WAIT", args));
    // A command without a key goes to any node, unless one with a key goes before it.
    const replies = await this.#own
      .pipeline([
        ["exists", key],
        ["wait", ...args],
      ])
      .exec();
    for (const [error] of replies) if (error !== null) throw error;
    return Number(replies[1]?.[1]);
  }

  listen(listener: ChannelListener): RedisListening {
    return new IoredisListening(this.#client, listener);
  }

  async close(): Promise<void> {
    this.#own.disconnect();
  }
}

interface IoredisOptions {
  readonly keyPrefix?: string;
  readonly redisOptions?: { readonly keyPrefix?: string };
}

function call(own: Own, command: string, args: RedisArgument[]): Promise<RedisReply> {
  return own.callBuffer(command, args) as Promise<RedisReply>;
}

/**
 * With the options of the user's client, except for what would send a command late or twice, or not to a primary. Within a
 * cluster a command whose connection was lost is still sent again, a bounded number of times.
 */
function duplicateOf(client: IoredisClient, options: object = {}): Own {
  const own = {
    keyPrefix: "",
    lazyConnect: true,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    stringNumbers: false,
  };
  const { autoResubscribe: _, maxRetriesPerRequest: __, ...shared } = own;
  const ofNodes = { keyPrefix: "", autoResendUnfulfilledCommands: false };
  const args = client.isCluster
    ? [undefined, { ...shared, scaleReads: "master", redisOptions: ofNodes, ...options }]
    : [{ ...own, ...options }];
  const duplicate = client.duplicate(...(args as never[])) as Own;
  // Whoever needs the connection is told when it asks; an event that nobody hears would end the process.
  duplicate.on("error", () => {});
  return duplicate;
}

function ready(own: Own): Promise<void> {
  return untilReady({
    isReady: () => own.status === "ready",
    connect: () => {
      if (own.status === "wait" || own.status === "end") own.connect().catch(() => {});
    },
    once: (heard) => own.once("ready", heard),
    off: (heard) => own.off("ready", heard),
  });
}

class IoredisListening implements RedisListening {
  readonly #own: Own;
  readonly #isCluster: boolean;
  readonly #listener: ChannelListener;
  readonly #channels = new Set<string>();

  constructor(client: IoredisClient, listener: ChannelListener) {
    this.#isCluster = client.isCluster;
    this.#listener = listener;
    this.#own = duplicateOf(client, client.isCluster ? { shardedSubscribers: true } : {});
    this.#own.on(
      client.isCluster ? "smessageBuffer" : "messageBuffer",
      (channel: Buffer, message: Buffer) => void listener.heard(channel.toString(), message),
    );
    if (client.isCluster) return;
    this.#own.on("ready", () => void this.#subscribeAgain());
    this.#own.on("close", () => listener.interrupted());
  }

  async subscribe(channels: readonly string[]): Promise<void> {
    for (const channel of channels) this.#channels.add(channel);
    await ready(this.#own);
    await this.#send(channels);
  }

  async close(): Promise<void> {
    this.#own.disconnect();
  }

  async #send(channels: readonly string[]): Promise<void> {
    if (this.#isCluster) {
      await Promise.all(channels.map((channel) => this.#own.ssubscribe(channel)));
    } else {
      await this.#own.subscribe(...channels);
      this.#listener.connected();
    }
  }

  async #subscribeAgain(): Promise<void> {
    if (this.#channels.size === 0) return;
    // If this fails the connection is lost again, and the next one tries again.
    await this.#send([...this.#channels]).catch(() => {});
  }
}
