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
import { isNodeRedisSentinel, SentinelConnection } from "./node-redis-sentinel.ts";

/** What tells a client of the package redis, and what is used of it. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  sendCommand(...args: never[]): Promise<unknown>;
  duplicate(...args: never[]): unknown;
}

export function isNodeRedis(client: object): client is NodeRedisClient {
  return "sendCommand" in client && "duplicate" in client && !isNodeRedisPool(client);
}

/** Its connections change from command to command. */
export function isNodeRedisPool(client: object): boolean {
  return "sendCommand" in client && "execute" in client;
}

export type Heard = (message: Buffer, channel: Buffer) => void;

/** Connections that were opened here, of one server or of a cluster. */
interface Own {
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: string, listener: () => void): unknown;
  setMaxListeners(count: number): unknown;
  once(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
}
export interface OwnSingle extends Own {
  readonly isReady: boolean;
  sendCommand(args: readonly RedisArgument[], options: object): Promise<RedisReply>;
  subscribe(channels: string[], heard: Heard, isBuffer: true): Promise<void>;
}
interface OwnCluster extends Own {
  readonly masters: readonly unknown[];
  nodeClient(node: unknown): OwnSingle | Promise<OwnSingle>;
  sendCommand(
    key: string,
    isReadOnly: boolean,
    args: readonly RedisArgument[],
    options: object,
  ): Promise<RedisReply>;
  sSubscribe(channel: string, heard: Heard, isBuffer: true): Promise<void>;
}

/** The package redis. */
export class NodeRedisLink implements RedisLink {
  readonly isCluster: boolean;
  readonly keyPrefix: string;
  readonly #client: NodeRedisClient;
  readonly #limits: ConnectionLimits;
  readonly #connection: Connection<OwnSingle | OwnCluster>;

  constructor(client: NodeRedisClient, limits: ConnectionLimits) {
    this.#client = client;
    this.#limits = limits;
    this.#connection = new Connection(openingOf(client), limits.silenceMs);
    this.isCluster = isCluster(client);
    // Commands that are sent as they are do not get it by themselves.
    this.keyPrefix = String((client as { _keyPrefix?: unknown })._keyPrefix ?? "");
  }

  send(key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
    return this.#connection.send(laneOf(key, this), (own) => {
      if (isCluster(own)) return own.sendCommand(key, false, args, asBuffers);
      const reply = own.sendCommand(args, asBuffers);
      reply.catch((error: unknown) => this.#connection.refused(own, error));
      return reply;
    });
  }

  async primaries(): Promise<readonly RedisPrimary[]> {
    const own = await this.#connection.ready();
    if (!isCluster(own)) return [{ send: (args) => this.send("", args) }];
    return own.masters.map((node, nth) => ({
      send: (args) =>
        this.#connection.send(primaryLane(nth), async () =>
          (await own.nodeClient(node)).sendCommand(args, asBuffers),
        ),
    }));
  }

  async waitForReplicas(key: string, wait: { readonly count: number; readonly timeoutMs: number }) {
    this.#connection.allow(wait.timeoutMs);
    return Number(await this.send(key, ["WAIT", String(wait.count), String(wait.timeoutMs)]));
  }

  listen(listener: ChannelListener): RedisListening {
    return new NodeRedisListening(this.#client, listener, this.#limits);
  }

  async close(): Promise<void> {
    this.#connection.close();
  }
}

/** Texts of any length come as Buffers: 36 is the "$" that such a reply begins with. */
const asBuffers = { typeMapping: { 36: Buffer } };

function isCluster(client: object): client is OwnCluster {
  return "sSubscribe" in client && "nodeClient" in client;
}

/** With the options of the user's client, except that nothing waits for a connection to be sent later. */
function openingOf(client: NodeRedisClient): Opening<OwnSingle | OwnCluster> {
  /** A cluster is ready once it has found its nodes; whether each of them can be reached is seen when it is asked. */
  const found = new WeakSet<OwnSingle | OwnCluster>();
  const whenFound = new Set<() => void>();
  return {
    open: () => duplicateOf(client),
    isReady: (own) => (isCluster(own) ? found.has(own) : own.isReady),
    connect: (own) => {
      if (own.isOpen) return;
      const isFound = () => {
        found.add(own);
        for (const heard of whenFound) heard();
        whenFound.clear();
      };
      own.connect().then(isFound, () => {});
    },
    once: (own, heard) => (isCluster(own) ? whenFound.add(heard) : own.once("ready", heard)),
    off: (own, heard) => (isCluster(own) ? whenFound.delete(heard) : own.off("ready", heard)),
    end: (own) => {
      if (own.isOpen) own.destroy();
    },
  };
}

function duplicateOf(client: NodeRedisClient): OwnSingle | OwnCluster {
  const own = isNodeRedisSentinel(client) ? new SentinelConnection(client) : libraryDuplicateOf(client);
  // Whoever needs the connection is told when it asks; an event that nobody hears would end the process.
  own.on("error", () => {});
  // Each call that comes before there is a connection is a listener; their number says nothing about a leak.
  own.setMaxListeners(0);
  return own;
}

function libraryDuplicateOf(client: NodeRedisClient): OwnSingle | OwnCluster {
  const { _options } = client as { _options?: { readonly defaults?: object } };
  const atOnce = { disableOfflineQueue: true };
  const overrides = isCluster(client) ? { defaults: { ..._options?.defaults, ...atOnce } } : atOnce;
  return client.duplicate(...([overrides] as never[])) as OwnSingle | OwnCluster;
}

class NodeRedisListening implements RedisListening {
  readonly #connection: Connection<OwnSingle | OwnCluster>;
  readonly #listener: ChannelListener;
  readonly #channels = new Set<string>();
  /** The library subscribes again by itself, but only to what a connection has once subscribed to. */
  readonly #subscribed = new WeakMap<Own, Set<string>>();
  readonly #pingMs: number;
  #pinging: NodeJS.Timeout | undefined;

  constructor(client: NodeRedisClient, listener: ChannelListener, { pingMs }: ConnectionLimits) {
    this.#listener = listener;
    this.#pingMs = pingMs;
    const opening = openingOf(client);
    this.#connection = new Connection(
      { ...opening, open: () => this.#heardOn(opening.open()), replaced: () => listener.interrupted() },
      pingMs,
    );
  }

  async subscribe(channels: readonly string[]): Promise<void> {
    for (const channel of channels) this.#channels.add(channel);
    this.#pinging ??= pinging(() => this.#ping(), this.#pingMs);
    await this.#send(await this.#connection.ready());
  }

  async close(): Promise<void> {
    clearInterval(this.#pinging);
    this.#connection.close();
  }

  #heardOn(own: OwnSingle | OwnCluster): OwnSingle | OwnCluster {
    if (isCluster(own)) return own;
    // It says that it is ready after it has subscribed again.
    own.on("ready", () => void this.#send(own).catch(() => {}));
    for (const event of ["reconnecting", "end"]) {
      own.on(event, () => {
        // That one was given up was said when it was.
        if (this.#connection.isCurrent(own)) this.#listener.interrupted();
      });
    }
    return own;
  }

  async #ping(): Promise<void> {
    await this.#connection.send("", async (own) => {
      // A cluster's channels are heard on many connections, and nobody is promised to hear everything.
      if (!isCluster(own)) await own.sendCommand(["PING"], {});
    });
  }

  async #send(own: OwnSingle | OwnCluster): Promise<void> {
    const subscribed = this.#subscribed.get(own) ?? new Set();
    this.#subscribed.set(own, subscribed);
    const channels = [...this.#channels].filter((channel) => !subscribed.has(channel));
    if (isCluster(own)) {
      await Promise.all(channels.map((channel) => own.sSubscribe(channel, this.#heard, true)));
    } else if (channels.length > 0) {
      await own.subscribe(channels, this.#heard, true);
    }
    for (const channel of channels) subscribed.add(channel);
    if (subscribed.size > 0 && !isCluster(own) && this.#connection.isCurrent(own)) this.#listener.connected();
  }

  readonly #heard: Heard = (message, channel) => this.#listener.heard(channel.toString(), message);
}
