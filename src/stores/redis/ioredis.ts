import type {
  ChannelListener,
  RedisArgument,
  RedisLink,
  RedisListening,
  RedisPrimary,
  RedisReply,
} from "./client.ts";
import {
  Connection,
  type ConnectionLimits,
  laneOf,
  type Opening,
  pinging,
  primaryLane,
} from "./connecting.ts";

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
  readonly #limits: ConnectionLimits;
  readonly #connection: Connection<Own>;

  constructor(client: IoredisClient, limits: ConnectionLimits) {
    this.#client = client;
    this.#limits = limits;
    this.isCluster = client.isCluster;
    const { keyPrefix, redisOptions } = client.options as IoredisOptions;
    this.keyPrefix = keyPrefix ?? redisOptions?.keyPrefix ?? "";
    this.#connection = new Connection(openingOf(client), limits.silenceMs);
  }

  send(key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
    return this.#connection.send(laneOf(key, this), (own) => {
      const reply = call(own, args);
      // A cluster's client finds the new primary by itself.
      if (!this.isCluster) reply.catch((error: unknown) => this.#connection.refused(own, error));
      return reply;
    });
  }

  async primaries(): Promise<readonly RedisPrimary[]> {
    if (!this.isCluster) return [{ send: (args) => this.send("", args) }];
    const nodes = (await this.#connection.ready()).nodes("master");
    return nodes.map((node, nth) => ({
      send: (args) => this.#connection.send(primaryLane(nth), () => call(node, args)),
    }));
  }

  async waitForReplicas(key: string, wait: { readonly count: number; readonly timeoutMs: number }) {
    this.#connection.allow(wait.timeoutMs);
    const args = ["wait", String(wait.count), String(wait.timeoutMs)];
    if (!this.isCluster) return Number(await this.send(key, args));
    // A command without a key goes to any node, unless one with a key goes before it.
    const replies = await this.#connection.send(laneOf(key, this), (own) =>
      own.pipeline([["exists", key], args]).exec(),
    );
    for (const [error] of replies) if (error !== null) throw error;
    return Number(replies[1]?.[1]);
  }

  listen(listener: ChannelListener): RedisListening {
    return new IoredisListening(this.#client, listener, this.#limits);
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

function openingOf(client: IoredisClient, options: object = {}): Opening<Own> {
  return {
    open: () => duplicateOf(client, options),
    isReady: (own) => own.status === "ready",
    connect: (own) => {
      if (own.status === "wait" || own.status === "end") own.connect().catch(() => {});
    },
    once: (own, heard) => own.once("ready", heard),
    off: (own, heard) => own.off("ready", heard),
    end: (own) => own.disconnect(),
  };
}

/**
 * With the options of the user's client, except for what would send a command late or twice, or not to a primary. Within a
 * cluster a command whose connection was lost is still sent again, a bounded number of times.
 */
function duplicateOf(client: IoredisClient, options: object): Own {
  const shared = {
    keyPrefix: "",
    lazyConnect: true,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    stringNumbers: false,
  };
  const ofConnections = { keyPrefix: "", autoResendUnfulfilledCommands: false };
  // Version 5 would forget the user's own, and the password with them.
  const redisOptions = { ...(client.options as IoredisOptions).redisOptions, ...ofConnections };
  const args = client.isCluster
    ? [undefined, { ...shared, scaleReads: "master", redisOptions, ...options }]
    : [{ ...shared, ...ofConnections, autoResubscribe: false, maxRetriesPerRequest: 0, ...options }];
  const own = client.duplicate(...(args as never[])) as Own;
  // Whoever needs the connection is told when it asks; an event that nobody hears would end the process.
  own.on("error", () => {});
  // Each call that comes before there is a connection is a listener; their number says nothing about a leak.
  own.setMaxListeners(0);
  return own;
}

class IoredisListening implements RedisListening {
  readonly #connection: Connection<Own>;
  readonly #isCluster: boolean;
  readonly #listener: ChannelListener;
  readonly #channels = new Set<string>();
  readonly #pingMs: number;
  #pinging: NodeJS.Timeout | undefined;

  constructor(client: IoredisClient, listener: ChannelListener, { pingMs }: ConnectionLimits) {
    this.#isCluster = client.isCluster;
    this.#listener = listener;
    this.#pingMs = pingMs;
    const opening = openingOf(client, client.isCluster ? { shardedSubscribers: true } : {});
    this.#connection = new Connection(
      { ...opening, open: () => this.#heardOn(opening.open()), replaced: () => listener.interrupted() },
      pingMs,
    );
  }

  async subscribe(channels: readonly string[]): Promise<void> {
    for (const channel of channels) this.#channels.add(channel);
    if (!this.#isCluster) {
      this.#pinging ??= pinging(() => this.#connection.send("", (own) => call(own, ["ping"])), this.#pingMs);
    }
    await this.#send(await this.#connection.ready(), channels);
  }

  async close(): Promise<void> {
    clearInterval(this.#pinging);
    this.#connection.close();
  }

  #heardOn(own: Own): Own {
    own.on(
      this.#isCluster ? "smessageBuffer" : "messageBuffer",
      (channel: Buffer, message: Buffer) => void this.#listener.heard(channel.toString(), message),
    );
    if (this.#isCluster) return own;
    own.on("ready", () => void this.#subscribeAgain(own));
    own.on("close", () => {
      // That one was given up was said when it was.
      if (this.#connection.isCurrent(own)) this.#listener.interrupted();
    });
    return own;
  }

  async #send(own: Own, channels: readonly string[]): Promise<void> {
    if (this.#isCluster) {
      await Promise.all(channels.map((channel) => own.ssubscribe(channel)));
    } else {
      await own.subscribe(...channels);
      if (this.#connection.isCurrent(own)) this.#listener.connected();
    }
  }

  async #subscribeAgain(own: Own): Promise<void> {
    if (this.#channels.size === 0) return;
    // If this fails the connection is lost again, and the next one tries again.
    await this.#send(own, [...this.#channels]).catch(() => {});
  }
}
