import { StoreError } from "../../core/errors.ts";
import { Silence } from "./silence.ts";

/** What the two libraries have in common when it comes to a connection of one's own, or a cluster's connections. */
export interface Opening<Own> {
  /** Makes one that is not connected yet. */
  open(): Own;
  isReady(own: Own): boolean;
  /** Begins to connect, if nothing has. */
  connect(own: Own): void;
  /** Hears once that it is ready. */
  once(own: Own, listener: () => void): unknown;
  off(own: Own, listener: () => void): unknown;
  /** Closes it; what has no answer yet is rejected. */
  end(own: Own): void;
  /** Another one was opened in place of one that was given up. */
  replaced?(): void;
}

export interface ConnectionLimits {
  /** A connection is given up on which nothing was answered for so long. */
  readonly silenceMs: number;
  /** How often a connection that only listens is asked whether it is still there, and within what time it has to answer. */
  readonly pingMs: number;
}

export const connectionLimits: ConnectionLimits = {
  // Twice the time after which the engine does not wait for the store any more, and after which a server that is held up
  // by a script says so. Nobody needs an answer that comes later.
  silenceMs: 10_000,
  // What is published meanwhile is missed without anybody knowing, for twice this time at most.
  pingMs: 5_000,
};

/** Long enough for a first connection, and well below the time within which the engine wants an answer. */
const patienceMs = 2_000;

/** A server that stays a replica is not connected to for each write. */
const readonlyMs = 1_000;

/** A connection, and another one in its place when it is of no use any more though nobody has closed it. */
export class Connection<Own> {
  readonly #opening: Opening<Own>;
  readonly #limitMs: number;
  readonly #silence: Silence;
  #own: Own;
  #openedAt = performance.now();
  #unreadySince: number | undefined;
  #isClosed = false;

  constructor(opening: Opening<Own>, limitMs: number) {
    this.#opening = opening;
    this.#limitMs = limitMs;
    this.#silence = new Silence({ limitMs, silent: () => this.#replace() });
    this.#own = opening.open();
  }

  isCurrent(own: Own): boolean {
    return own === this.#own && !this.#isClosed;
  }

  /** Sends something when there is a connection. What shares a lane is answered in the order in which it was sent. */
  send<Answer>(lane: string, send: (own: Own) => Promise<Answer>): Promise<Answer> {
    if (!this.#isClosed && this.#opening.isReady(this.#own)) {
      this.#unreadySince = undefined;
      return this.#silence.watch(lane, send(this.#own));
    }
    return this.ready().then((own) => this.#silence.watch(lane, send(own)));
  }

  /** Answers may be this much later from now on, because the server was asked to wait. */
  allow(waitMs: number): void {
    this.#silence.allow(waitMs);
  }

  /** Gives a connection up whose server has become a replica: the primary is at the same address by now, or soon. */
  refused(own: Own, error: unknown): void {
    if (!isReadonly(error) || own !== this.#own) return;
    if (performance.now() - this.#openedAt >= readonlyMs) this.#replace();
  }

  /** Resolves when there is a connection, and rejects if there is none in reasonable time: nothing was sent then. */
  async ready(): Promise<Own> {
    if (this.#isClosed) throw new StoreError("the store was closed, and nothing was sent");
    const own = this.#own;
    if (!this.#opening.isReady(own)) await this.#untilReady(own);
    this.#unreadySince = undefined;
    return own;
  }

  close(): void {
    this.#isClosed = true;
    this.#silence.forget();
    this.#opening.end(this.#own);
  }

  #untilReady(own: Own): Promise<void> {
    this.#unreadySince ??= performance.now();
    return new Promise((resolve, reject) => {
      const isReady = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#opening.off(own, isReady);
        this.#giveUpUnready(own);
        reject(new StoreError("there is no connection to Redis, and nothing was sent"));
      }, patienceMs);
      this.#opening.once(own, isReady);
      this.#opening.connect(own);
    });
  }

  /** Libraries wait for ever for the first answer of a server that has accepted a connection. */
  #giveUpUnready(own: Own): void {
    const since = this.#unreadySince;
    if (own !== this.#own || since === undefined) return;
    if (performance.now() - since >= this.#limitMs) this.#replace();
  }

  #replace(): void {
    if (this.#isClosed) return;
    const given = this.#own;
    this.#silence.forget();
    this.#unreadySince = undefined;
    this.#openedAt = performance.now();
    this.#own = this.#opening.open();
    this.#opening.end(given);
    this.#opening.replaced?.();
    this.#opening.connect(this.#own);
  }
}

/** Asks a listening connection now and then whether it is still there. */
export function pinging(ping: () => Promise<unknown>, pingMs: number): NodeJS.Timeout {
  // Whatever is wrong with it, the connection itself finds out.
  return setInterval(() => void ping().catch(() => {}), pingMs).unref();
}

/** The parts of a cluster's keys that are on one node, and so on one connection; a single server has but one. */
export function laneOf(key: string, { isCluster }: { readonly isCluster: boolean }): string {
  if (!isCluster) return "";
  const end = key.indexOf("}");
  return end < 0 ? key : key.slice(0, end);
}

/** For what is sent to one primary of a cluster, whatever keys it has. */
export function primaryLane(nth: number): string {
  return `primary ${nth}`;
}

/** Servers before version 7 name the script first. */
function isReadonly(error: unknown): boolean {
  return /(?:^|-)READONLY /.test(String((error as { message?: unknown } | undefined)?.message));
}
