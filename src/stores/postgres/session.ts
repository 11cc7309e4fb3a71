import { StoreError } from "../../core/errors.ts";
import type { Connection } from "./database.ts";
import { storeError } from "./errors.ts";
import * as statements from "./statements/sessions.ts";

/** The one long-lived connection of a store. It hears notifications and, if it owns, says that this process lives. */
export interface Session {
  /** The number under which it owns records; NULL if it only listens. */
  readonly number: number | null;
  /** False as soon as the connection is known to be gone. */
  readonly isAlive: boolean;
}

export interface SessionHooks {
  heard(payload: string): void;
  /** Called when a session begins to hear, before anybody is handed it. */
  opened(): void;
  /** Called when a session that was opened has ended, whatever ended it. */
  ended(): void;
}

export interface SessionsOptions extends SessionHooks {
  connect(): Promise<Connection>;
  readonly owns: boolean;
  readonly timing?: SessionTiming;
}

export interface SessionTiming {
  readonly pingMs: number;
  readonly timeoutMs: number;
  readonly backoffMs: number;
  readonly backoffMsMax: number;
}

const timing: SessionTiming = {
  // Together with the timeout below the default lease of 15 s: a process learns that it owns nothing any more, even
  // from a connection that has gone silent, before the heartbeat would give up.
  pingMs: 5_000,
  timeoutMs: 5_000,
  backoffMs: 100, // A restart of the server takes about a second.
  backoffMsMax: 5_000, // Nothing depends on it meanwhile: those who wait ask, and a reservation connects at once.
};

/** Keeps one session: opened on demand, watched, and opened again after it was lost. */
export class Sessions {
  readonly #options: SessionsOptions;
  readonly #timing: SessionTiming;
  #current: Promise<OpenSession> | undefined;
  #isHeard = false;
  #closed = false;

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.#timing = options.timing ?? timing;
  }

  /** The live session. Many may ask at once; one connection is made. */
  ready(): Promise<Session> {
    if (this.#closed) return Promise.reject(new StoreError("this store was closed"));
    if (this.#current === undefined) {
      const opening = this.#open();
      this.#current = opening;
      opening.catch(() => this.#forget(opening));
    }
    return this.#current;
  }

  get isHeard(): boolean {
    return this.#isHeard;
  }

  /** Opens it without anybody having to ask, however long that takes. After a loss it is opened again anyway. */
  keepOpen(): void {
    this.ready().catch(() => this.#reopen());
  }

  async close(): Promise<void> {
    this.#closed = true;
    const session = await this.#current?.catch(() => undefined);
    session?.connection.destroy();
  }

  async #open(): Promise<OpenSession> {
    const { timeoutMs } = this.#timing;
    const { heard, owns } = this.#options;
    let connection: Connection | undefined;
    try {
      connection = await within(timeoutMs, this.#options.connect(), (late) => late.destroy());
      const session = new OpenSession(connection);
      const { query } = connection;
      connection.onNotification(heard);
      connection.onEnd(() => this.#end(session));
      const [own] = owns
        ? await within(timeoutMs, query<{ session: number }>(statements.ownSession))
        : [{ session: null }];
      await within(timeoutMs, query(statements.listen));
      const [ping] = await within(timeoutMs, query<{ pid: number }>(statements.pingSession));
      session.number = own?.session ?? null;
      session.pid = ping?.pid;
      // It may have ended between its last answer and this line.
      if (!session.isAlive) throw new StoreError("the session ended while it was opened");
      session.isOpen = true;
      this.#isHeard = true;
      this.#options.opened();
      this.#pingLater(session);
      return session;
    } catch (error) {
      connection?.destroy();
      throw storeError(error);
    }
  }

  /** The session is gone, and with it everything that it owned. */
  #end(session: OpenSession): void {
    session.isAlive = false;
    session.cancelPing();
    session.connection.destroy();
    if (!session.isOpen) return;
    this.#isHeard = false;
    this.#current = undefined;
    this.#options.ended();
    void this.#reopen();
  }

  /** Those who wait are told of changes again without having to ask. */
  async #reopen(): Promise<void> {
    const { backoffMs, backoffMsMax } = this.#timing;
    for (let delayMs = backoffMs; ; delayMs = Math.min(2 * delayMs, backoffMsMax)) {
      await new Promise<void>((resolve) => void setTimeout(resolve, delayMs).unref());
      if (this.#closed || (await this.ready().catch(() => undefined))) return;
    }
  }

  #forget(opening: Promise<OpenSession>): void {
    if (this.#current === opening) this.#current = undefined;
  }

  #pingLater(session: OpenSession): void {
    const timer = setTimeout(() => void this.#ping(session), this.#timing.pingMs);
    timer.unref();
    session.cancelPing = () => clearTimeout(timer);
  }

  /** A connection that has gone silent emits nothing: only a question without an answer shows it. */
  async #ping(session: OpenSession): Promise<void> {
    try {
      const { query } = session.connection;
      const [ping] = await within(this.#timing.timeoutMs, query<{ pid: number }>(statements.pingSession));
      // Behind a transaction pool the lock stays with a server process that is not ours alone.
      if (ping?.pid !== session.pid) throw new StoreError("the session was moved to another server process");
      if (session.isAlive) this.#pingLater(session);
    } catch {
      session.connection.destroy();
    }
  }
}

class OpenSession implements Session {
  readonly connection: Connection;
  number: number | null = null;
  pid: number | undefined;
  isAlive = true;
  /** Until then whoever opens it is told of its end, and nobody else. */
  isOpen = false;
  cancelPing: () => void = () => {};

  constructor(connection: Connection) {
    this.connection = connection;
  }
}

/** The promise's value, unless it takes too long. What comes too late is handed to `late`. */
function within<T>(ms: number, promise: Promise<T>, late?: (value: T) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    let isTooLate = false;
    const giveUp = () => {
      isTooLate = true;
      reject(new StoreError(`Postgres did not answer within ${ms} ms`));
    };
    // After a long pause of this process, timers come before answers that arrived during it. Those are heard first.
    const timer = setTimeout(() => setImmediate(giveUp), ms);
    promise.then(
      (value) => {
        clearTimeout(timer);
        if (isTooLate) late?.(value);
        resolve(value);
      },
      (error) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
