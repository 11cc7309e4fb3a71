import type { ChannelListener, RedisArgument, RedisLink, RedisListening, RedisReply } from "./client.ts";
import { untilReady } from "./connecting.ts";

/** What tells a client of the package redis, and what is used of it. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  sendCommand(...args: never[]): Promise<unknown>;
  duplicate(...args: never[]): unknown;
}

export function isNodeRedis(client: object): client is NodeRedisClient {
  return "sendCommand" in client && "duplicate" in client && !isNodeRedisPoolOrSentinel(client);
}

/** Their connections change from command to command. */
export function isNodeRedisPoolOrSentinel(client: object): boolean {
  return "sendCommand" in client && ("acquire" in client || "execute" in client);
}

type Heard = (message: Buffer, channel: Buffer) => void;

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
interface OwnSingle extends Own {
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
  readonly #connection: Connection;

  constructor(client: NodeRedisClient) {
    this.#client = client;
    this.#connection = new Connection(client);
    this.isCluster = isCluster(client);
    // Commands that are sent as they are do not get it by themselves.
    this.keyPrefix = String((client as { _keyPrefix?: unknown })._keyPrefix ?? "");
  }

  send(key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
    const { own, isReady } = this.#connection;
    return isReady ? call(own, key, args) : this.#connection.ready().then(() => call(own, key, args));
  }

  async sendToAll(args: readonly RedisArgument[]): Promise<readonly RedisReply[]> {
    const { own } = this.#connection;
    await this.#connection.ready();
    if (!isCluster(own)) return [await own.sendCommand(args, asBuffers)];
    return Promise.all(
      own.masters.map(async (node) => (await own.nodeClient(node)).sendCommand(args, asBuffers)),
    );
  }

  async waitForReplicas(key: string, wait: { readonly count: number; readonly timeoutMs: number }) {
    return Number(await this.send(key, ["WAIT", String(wait.count), String(wait.timeoutMs)]));
  }

  listen(listener: ChannelListener): RedisListening {
    return new NodeRedisListening(this.#client, listener);
  }

  async close(): Promise<void> {
    this.#connection.close();
  }
}

/** Texts of any length come as Buffers: 36 is the "$" that such a reply begins with. */
const asBuffers = { typeMapping: { 36: Buffer } };

function call(own: OwnSingle | OwnCluster, key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
  return isCluster(own) ? own.sendCommand(key, false, args, asBuffers) : own.sendCommand(args, asBuffers);
}

function isCluster(client: object): client is OwnCluster {
  return "sSubscribe" in client && "nodeClient" in client;
}

/** With the options of the user's client, except that nothing waits for a connection to be sent later. */
class Connection {
  readonly own: OwnSingle | OwnCluster;
  /** A cluster is ready once it has found its nodes; whether each of them can be reached is seen when it is asked. */
  #isClusterFound = false;
  #isClosed = false;
  readonly #whenFound = new Set<() => void>();

  constructor(client: NodeRedisClient) {
    const { _options } = client as { _options?: { readonly defaults?: object } };
    const atOnce = { disableOfflineQueue: true };
    const overrides = isCluster(client) ? { defaults: { ..._options?.defaults, ...atOnce } } : atOnce;
    this.own = client.duplicate(...([overrides] as never[])) as OwnSingle | OwnCluster;
    // Whoever needs the connection is told when it asks; an event that nobody hears would end the process.
    this.own.on("error", () => {});
    // Each call that comes before there is a connection is a listener; their number says nothing about a leak.
    this.own.setMaxListeners(0);
  }

  get isReady(): boolean {
    return (isCluster(this.own) ? this.#isClusterFound : this.own.isReady) && !this.#isClosed;
  }

  ready(): Promise<void> {
    const { own } = this;
    return untilReady({
      isReady: () => this.isReady,
      isClosed: () => this.#isClosed,
      connect: () => {
        if (!own.isOpen) own.connect().then(this.#found, () => {});
      },
      once: (heard) => (isCluster(own) ? this.#whenFound.add(heard) : own.once("ready", heard)),
      off: (heard) => (isCluster(own) ? this.#whenFound.delete(heard) : own.off("ready", heard)),
    });
  }

  close(): void {
    this.#isClosed = true;
    if (this.own.isOpen) this.own.destroy();
  }

  readonly #found = () => {
    this.#isClusterFound = true;
    for (const heard of this.#whenFound) heard();
    this.#whenFound.clear();
  };
}

class NodeRedisListening implements RedisListening {
  readonly #connection: Connection;
  readonly #listener: ChannelListener;
  /** The library subscribes again by itself, but only to what it has once subscribed to. */
  readonly #wanted = new Set<string>();
  #isSubscribed = false;

  constructor(client: NodeRedisClient, listener: ChannelListener) {
    this.#connection = new Connection(client);
    this.#listener = listener;
    const { own } = this.#connection;
    if (isCluster(own)) return;
    // It says that it is ready after it has subscribed again.
    own.on("ready", () => void this.#send().catch(() => {}));
    for (const event of ["reconnecting", "end"]) own.on(event, () => listener.interrupted());
  }

  async subscribe(channels: readonly string[]): Promise<void> {
    for (const channel of channels) this.#wanted.add(channel);
    await this.#connection.ready();
    await this.#send();
  }

  async close(): Promise<void> {
    this.#connection.close();
  }

  async #send(): Promise<void> {
    const { own } = this.#connection;
    const channels = [...this.#wanted];
    if (isCluster(own)) {
      await Promise.all(channels.map((channel) => own.sSubscribe(channel, this.#heard, true)));
    } else if (channels.length > 0) {
      await own.subscribe(channels, this.#heard, true);
    }
    for (const channel of channels) {
      this.#wanted.delete(channel);
      this.#isSubscribed = true;
    }
    if (this.#isSubscribed && !isCluster(own)) this.#listener.connected();
  }

  readonly #heard: Heard = (message, channel) => this.#listener.heard(channel.toString(), message);
}
