import { EventEmitter } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import type { RedisArgument, RedisReply } from "./client.ts";
import type { Heard, OwnSingle } from "./node-redis.ts";

/** What tells a Sentinel client of the package redis, and what is used of it. */
export interface NodeRedisSentinel {
  duplicate(...args: never[]): unknown;
  getMasterNode(): unknown;
}

export function isNodeRedisSentinel(client: object): client is NodeRedisSentinel {
  return "sendCommand" in client && "getMasterNode" in client;
}

/** A Sentinel client of one's own, which is only asked who the primary is. */
interface Finder {
  connect(): Promise<unknown>;
  destroy(): Promise<unknown>;
  on(event: "error", listener: () => void): unknown;
  _execute<Answer>(isReadonly: false, use: (primary: Primary) => Promise<Answer>): Promise<Answer>;
}

/** A connection of the Sentinel client to the primary. */
interface Primary {
  readonly options: { readonly socket?: object };
  duplicate(overrides: object): OwnSingle;
}

/**
 * A connection to whoever the sentinels say is the primary, with the options of the user's Sentinel client. That client
 * itself sends commands late, and again after a connection was lost, and does not tell when a listener has missed
 * something: so it only finds the primary, each time that there is no connection to it.
 */
export class SentinelConnection extends EventEmitter implements OwnSingle {
  readonly #client: NodeRedisSentinel;
  /** What is heard, and by whom, on the next connection as well. */
  readonly #channels = new Set<string>();
  #heard: Heard | undefined;
  #primary: OwnSingle | undefined;
  #isReady = false;
  #isOpen = false;

  constructor(client: NodeRedisSentinel) {
    super();
    this.#client = client;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  /** Goes on, from one primary to the next, until it is destroyed. That it is ready is an event. */
  async connect(): Promise<void> {
    this.#isOpen = true;
    while (this.#isOpen) {
      await this.#untilLost().catch(() => {});
      if (this.#isReady && this.#isOpen) this.emit("reconnecting");
      this.#isReady = false;
      this.#primary = undefined;
      await sleep(retryMs, undefined, { ref: false });
    }
  }

  destroy(): void {
    this.#isOpen = false;
    this.#isReady = false;
    if (this.#primary?.isOpen) this.#primary.destroy();
  }

  async sendCommand(args: readonly RedisArgument[], options: object): Promise<RedisReply> {
    return this.#connected().sendCommand(args, options);
  }

  async subscribe(channels: string[], heard: Heard, isBuffer: true): Promise<void> {
    await this.#connected().subscribe(channels, heard, isBuffer);
    for (const channel of channels) this.#channels.add(channel);
    this.#heard = heard;
  }

  #connected(): OwnSingle {
    if (this.#primary !== undefined) return this.#primary;
    throw new Error("there is no connection to the primary that the sentinels know");
  }

  async #untilLost(): Promise<void> {
    const primary = await primaryOf(this.#client);
    if (!this.#isOpen) return;
    this.#primary = primary;
    const lost = new Promise<void>((resolve) => {
      primary.on("error", () => {
        if (!primary.isReady) resolve();
      });
      primary.once("end", resolve);
    });
    await Promise.race([primary.connect(), lost]);
    if (this.#heard !== undefined) {
      await Promise.race([primary.subscribe([...this.#channels], this.#heard, true), lost]);
    }
    if (primary.isReady) {
      this.#isReady = true;
      this.emit("ready");
      await lost;
    }
  }
}

/** A failover takes seconds, and a sentinel answers within a millisecond. */
const retryMs = 100;

/** A connection to the primary that is not open yet, is lost once it is lost, and sends nothing late. */
async function primaryOf(client: NodeRedisSentinel): Promise<OwnSingle> {
  const finder = client.duplicate(...([onceOnly] as never[])) as Finder;
  // Which sentinel could not be reached does not matter; that none could is why it rejects.
  finder.on("error", () => {});
  try {
    await finder.connect();
    return await finder._execute(false, async (primary) =>
      primary.duplicate({
        disableOfflineQueue: true,
        clientSideCache: undefined,
        socket: { ...primary.options.socket, reconnectStrategy: false },
      }),
    );
  } finally {
    await finder.destroy();
  }
}

/** One connection to the primary is enough to take its options from, and whoever fails is asked again from here. */
const onceOnly = {
  masterPoolSize: 1,
  replicaPoolSize: 0,
  reserveClient: false,
  scanInterval: 0,
  maxCommandRediscovers: 0,
  passthroughClientErrorEvents: false,
  clientSideCache: undefined,
};
