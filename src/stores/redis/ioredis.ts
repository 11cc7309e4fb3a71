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
  setMaxListeners(count: number): unknown;
  once(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
}

/** The package ioredis. */
export class IoredisLink implements RedisLink {
  readonly isCluster: boolean;
  readonly keyPrefix: string;
  readonly #client: IoredisClient;
  readonly #connection: Connection;

  constructor(client: IoredisClient) {
    this.#client = client;
    this.isCluster = client.isCluster;
    const { keyPrefix, redisOptions } = client.options as IoredisOptions;
    this.keyPrefix = keyPrefix ?? redisOptions?.keyPrefix ?? "";
    this.#connection = new Connection(client);
  }

  send(_key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
    const { own, isReady } = this.#connection;
    return isReady ? call(own, args) : this.#connection.ready().then(() => call(own, args));
  }

  async sendToAll(args: readonly RedisArgument[]): Promise<readonly RedisReply[]> {
    const { own } = this.#connection;
    await this.#connection.ready();
    const nodes = this.isCluster ? own.nodes("master") : [own];
    return Promise.all(nodes.map((node) => call(node, args)));
  }

  async waitForReplicas(key: string, wait: { readonly count: number; readonly timeoutMs: number }) {
    const { own } = this.#connection;
    const args = ["wait", String(wait.count), String(wait.timeoutMs)];
    if (!this.isCluster) return Number(await call(own, args));
    // A command without a key goes to any node, unless one with a key goes before it.
    const replies = await own.pipeline([["exists", key], args]).exec();
    for (const [error] of replies) if (error !== null) throw error;
    return Number(replies[1]?.[1]);
  }

  listen(listener: ChannelListener): RedisListening {
    return new IoredisListening(this.#client, listener);
  }

  async close(): Promise<void> {
    this.#connection.close();
  }
}

interface IoredisOptions {
  readonly keyPrefix?: string;
  readonly redisOptions?: { readonly keyPrefix?: string };
}

function call(own: Own, [command, ...args]: readonly RedisArgument[]): Promise<RedisReply> {
  return own.callBuffer(String(command), args) as Promise<RedisReply>;
}

/**
 * With the options of the user's client, except for what would send a command late or twice, or not to a primary. Within a
 * cluster a command whose connection was lost is still sent again, a bounded number of times.
 */
class Connection {
  readonly own: Own;
  #isClosed = false;

  constructor(client: IoredisClient, options: object = {}) {
    const shared = {
      keyPrefix: "",
      lazyConnect: true,
      enableOfflineQueue: false,
      enableAutoPipelining: false,
      stringNumbers: false,
    };
    const ofConnections = { keyPrefix: "", autoResendUnfulfilledCommands: false };
    const args = client.isCluster
      ? [undefined, { ...shared, scaleReads: "master", redisOptions: ofConnections, ...options }]
      : [{ ...shared, ...ofConnections, autoResubscribe: false, maxRetriesPerRequest: 0, ...options }];
    this.own = client.duplicate(...(args as never[])) as Own;
    // Whoever needs the connection is told when it asks; an event that nobody hears would end the process.
    this.own.on("error", () => {});
    // Each call that comes before there is a connection is a listener; their number says nothing about a leak.
    this.own.setMaxListeners(0);
  }

  get isReady(): boolean {
    return this.own.status === "ready" && !this.#isClosed;
  }

  ready(): Promise<void> {
    const { own } = this;
    return untilReady({
      isReady: () => this.isReady,
      isClosed: () => this.#isClosed,
      connect: () => {
        if (own.status === "wait" || own.status === "end") own.connect().catch(() => {});
      },
      once: (heard) => own.once("ready", heard),
      off: (heard) => own.off("ready", heard),
    });
  }

  close(): void {
    this.#isClosed = true;
    this.own.disconnect();
  }
}

class IoredisListening implements RedisListening {
  readonly #connection: Connection;
  readonly #isCluster: boolean;
  readonly #listener: ChannelListener;
  readonly #channels = new Set<string>();

  constructor(client: IoredisClient, listener: ChannelListener) {
    this.#isCluster = client.isCluster;
    this.#listener = listener;
    this.#connection = new Connection(client, client.isCluster ? { shardedSubscribers: true } : {});
    const { own } = this.#connection;
    own.on(
      client.isCluster ? "smessageBuffer" : "messageBuffer",
      (channel: Buffer, message: Buffer) => void listener.heard(channel.toString(), message),
    );
    if (client.isCluster) return;
    own.on("ready", () => void this.#subscribeAgain());
    own.on("close", () => listener.interrupted());
  }

  async subscribe(channels: readonly string[]): Promise<void> {
    for (const channel of channels) this.#channels.add(channel);
    await this.#connection.ready();
    await this.#send(channels);
  }

  async close(): Promise<void> {
    this.#connection.close();
  }

  async #send(channels: readonly string[]): Promise<void> {
    const { own } = this.#connection;
    if (this.#isCluster) {
      await Promise.all(channels.map((channel) => own.ssubscribe(channel)));
    } else {
      await own.subscribe(...channels);
      this.#listener.connected();
    }
  }

  async #subscribeAgain(): Promise<void> {
    if (this.#channels.size === 0) return;
    // If this fails the connection is lost again, and the next one tries again.
    await this.#send([...this.#channels]).catch(() => {});
  }
}
