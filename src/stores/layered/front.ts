import type { RedisLink } from "../redis/client.ts";
import { removeKeys } from "./clearing.ts";
import type { Clocks } from "./truth-clock.ts";

/** What the front needs of a client. */
export type FrontLink = Pick<RedisLink, "keyPrefix" | "send" | "primaries" | "close">;

export interface FrontOptions {
  readonly prefix: string;
  readonly timeoutMs: number;
}

/**
 * Redis as something that may answer, and need not. Nothing here ever fails: what does not come in time is not there, and
 * what cannot be written is left. After some failures nobody waits for it, except for one who looks whether it is back.
 */
export class Front {
  readonly #link: FrontLink;
  readonly #clocks: Clocks;
  readonly #prefix: string;
  readonly #timeoutMs: number;
  #failures = 0;
  #pausedUntil = 0;
  #writing = 0;

  constructor(link: FrontLink, clocks: Clocks, options: FrontOptions) {
    this.#link = link;
    this.#clocks = clocks;
    this.#prefix = `${link.keyPrefix}${options.prefix}:front:`;
    this.#timeoutMs = options.timeoutMs;
  }

  get(name: string): Promise<Buffer | undefined> {
    if (!this.#isOpen()) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      let isTooLate = false;
      const timer = setTimeout(() => {
        isTooLate = true;
        this.#failed();
        resolve(undefined);
      }, this.#timeoutMs);
      this.#send(name, "GET").then(
        (reply) => {
          // One that always answers too late is no better than one that does not.
          if (isTooLate) return;
          clearTimeout(timer);
          this.#failures = 0;
          resolve(Buffer.isBuffer(reply) ? reply : undefined);
        },
        () => {
          if (isTooLate) return;
          clearTimeout(timer);
          this.#failed();
          resolve(undefined);
        },
      );
    });
  }

  /** Not waited for. Redis forgets it after `forMs`, or before, or later: nobody relies on that. */
  put(name: string, bytes: Buffer, forMs: number): void {
    if (this.#writing >= writingMax || this.#failures >= failuresMax) return;
    this.#writing += 1;
    const ttlMs = Math.ceil(Math.min(Math.max(forMs, 1), keptMsMax));
    const written = () => {
      this.#writing -= 1;
    };
    this.#send(name, "SET", bytes, "PX", String(ttlMs)).then(written, () => {
      written();
      this.#failed();
    });
  }

  /** Removes everything that is kept here, as far as Redis can be asked to. What is left goes when its time is over. */
  async clear(): Promise<void> {
    try {
      await removeKeys(this.#link, this.#prefix);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      process.emitWarning(
        `a tenant was forgotten, and answers to it may stay in Redis for up to a day, which could not be asked to remove ` +
          `them: forget the tenant again when Redis is back, or remove the keys ${this.#prefix}* (${reason})`,
        { code: "LATCHKEY_LAYERED" },
      );
    }
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  #send(name: string, command: string, ...args: (string | Buffer)[]): ReturnType<FrontLink["send"]> {
    const key = this.#prefix + name;
    return this.#link.send(key, [command, key, ...args]);
  }

  /** After a pause one request looks, and the next pause begins; it ends with the first answer. */
  #isOpen(): boolean {
    if (this.#failures < failuresMax) return true;
    const now = this.#clocks.steady();
    if (now < this.#pausedUntil) return false;
    this.#pausedUntil = now + pauseMs;
    return true;
  }

  #failed(): void {
    this.#failures += 1;
    if (this.#failures === failuresMax) this.#pausedUntil = this.#clocks.steady() + pauseMs;
  }
}

/** One lost connection is no reason; an outage is noticed after these. */
const failuresMax = 5;
const pauseMs = 1_000;

/** Beyond this Redis does not keep up, and what it holds is worth less than the memory that its queue takes. */
const writingMax = 1_000;

/** Nearly all retries come within minutes. What is asked for after a day is asked of the truth, and kept again. */
const keptMsMax = 24 * 60 * 60 * 1000;
