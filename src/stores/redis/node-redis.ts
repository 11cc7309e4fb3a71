import type { ChannelListener, RedisArgument, RedisLink, RedisListening, RedisReply } from "./client.ts";
import { untilReady } from "./connecting.ts";

/** What tells a client of the package redis, and what is used of it. */
export interface NodeRedisClient {
  readonly isReady: boolean;
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
  readonly isReady: boolean;
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: string, listener: () => void): unknown;
  once(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
}
interface OwnSingle extends Own {
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
  readonly #own: OwnSingle | OwnCluster;

  constructor(client: NodeRedisClient) {
    this.#client = client;
    this.#own = duplicateOf(client);
    this.isCluster = isCluster(this.#own);
    // Commands that are sent as they are do not get it by themselves.
    this.keyPrefix = String((client as { _keyPrefix?: unknown })._keyPrefix ?? "");
  }

  send(key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
    if (this.#own.isReady) return call(this.#own, key, args);
    return ready(this.#own).then(() => call(this.#own, key, args));
  }

  async sendToAll(args: readonly RedisArgument[]): Promise<readonly RedisReply[]> {
    const own = this.#own;
    await ready(own);
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
    if (this.#own.isOpen) this.#own.destroy();
  }
}

/** Texts of any length come as Buffers: 36 is the "$" that such a reply begins with. */
const asBuffers = { typeMapping: { 36: Buffer } };

function call(own: OwnSingle | OwnCluster, key: string, args: readonly RedisArgument[]): Promise<RedisReply> {
  return isCluster(own) ? own.sendCommand(key, false, args, asBuffers) : own.sendCommand(args, asBuffers);
}

function isCluster(own: object): own is OwnCluster {
  return "sSubscribe" in own && "nodeClient" in own;
}

/** With the options of the user's client, except that nothing waits for a connection to be sent later. */
function duplicateOf(client: NodeRedisClient): OwnSingle | OwnCluster {
  const { _options } = client as { _options?: { readonly defaults?: object } };
  const atOnce = { disableOfflineQueue: true };
  const overrides = isCluster(client) ? { defaults: { ..._options?.defaults, ...atOnce } } : atOnce;
  const own = client.duplicate(...([overrides] as never[])) as OwnSingle | OwnCluster;
  // Whoever needs the connection is told when it asks; an event that nobody hears would end the process.
  own.on("error", () => {});
  return own;
}

function ready(own: OwnSingle | OwnCluster): Promise<void> {
  // A cluster says something else than a single connection when it can be used.
  const event = isCluster(own) ? "connect" : "ready";
  return untilReady({
    isReady: () => own.isReady,
    connect: () => {
      if (!own.isOpen) own.connect().catch(() => {});
    },
    once: (heard) => own.once(event, heard),
    off: (heard) => own.off(event, heard),
  });
}

class NodeRedisListening implements RedisListening {
  readonly #own: OwnSingle | OwnCluster;
  readonly #listener: ChannelListener;
  /** The library subscribes again by itself, but only to what it has once subscribed to. */
  readonly #wanted = new Set<string>();

  constructor(client: NodeRedisClient, listener: ChannelListener) {
    this.#own = duplicateOf(client);
    this.#listener = listener;
    if (isCluster(this.#own)) return;
    // It says that it is ready after it has subscribed again.
    this.#own.on("ready", () => void this.#send().catch(() => {}));
    for (const event of ["reconnecting", "end"]) this.#own.on(event, () => listener.interrupted());
  }

  async subscribe(channels: readonly string[]): Promise<void> {
    for (const channel of channels) this.#wanted.add(channel);
    await ready(this.#own);
    await this.#send();
  }

  async close(): Promise<void> {
    if (this.#own.isOpen) this.#own.destroy();
  }

  async #send(): Promise<void> {
    const own = this.#own;
    const channels = [...this.#wanted];
    if (isCluster(own)) {
      await Promise.all(channels.map((channel) => own.sSubscribe(channel, this.#heard, true)));
    } else if (channels.length > 0) {
      await own.subscribe(channels, this.#heard, true);
      this.#listener.connected();
    }
    for (const channel of channels) this.#wanted.delete(channel);
  }

  readonly #heard: Heard = (message, channel) => this.#listener.heard(channel.toString(), message);
}
