import type { ServerResponse } from "node:http";
import type { Cancel, Runtime } from "../engine/runtime.ts";
import { leftOutView } from "./live-view.ts";
import type { LiveEventView } from "./views.ts";

/** Somebody who listens. One that cannot keep up is let go: it may come again, and nothing piles up for it. */
export class LiveClient {
  readonly #res: ServerResponse;
  readonly #runtime: Runtime;
  readonly #now: () => number;
  /** Within the second that is under way. */
  #told = 0;
  #leftOut = 0;
  #quietSeconds = 0;
  #cancelTimer: Cancel | undefined;

  constructor(res: ServerResponse, options: { readonly runtime: Runtime; readonly now: () => number }) {
    this.#res = res;
    this.#runtime = options.runtime;
    this.#now = options.now;
    this.#nextSecond();
  }

  tell(event: LiveEventView): void {
    if (this.#told >= eventsPerSecond) {
      this.#leftOut += 1;
      return;
    }
    this.#told += 1;
    this.#send(`event: activity\ndata: ${JSON.stringify(event)}\n\n`);
  }

  /** A line that says nothing, but that somebody is there. */
  comment(text: string): void {
    this.#send(`: ${text}\n\n`);
  }

  end(): void {
    this.#cancelTimer?.();
    if (!this.#res.writableEnded) this.#res.end();
  }

  #nextSecond(): void {
    this.#cancelTimer = this.#runtime.setTimer(
      () => {
        this.#endSecond();
        this.#nextSecond();
      },
      1_000,
      { background: true },
    );
  }

  #endSecond(): void {
    const [leftOut, told] = [this.#leftOut, this.#told];
    this.#leftOut = 0;
    this.#told = 0;
    if (leftOut > 0) {
      this.tell(leftOutView(this.#now(), `${leftOut} more events happened within this second`));
    }
    this.#quietSeconds = told > 0 ? 0 : this.#quietSeconds + 1;
    if (this.#quietSeconds < heartbeatSeconds) return;
    this.#quietSeconds = 0;
    this.comment("still here");
  }

  #send(text: string): void {
    if (this.#res.writableEnded || this.#res.destroyed) return;
    this.#res.write(text);
    if (this.#res.writableLength > unsentBytesMax) this.#res.destroy();
  }
}

const eventsPerSecond = 200; // More than anybody can read, and some 60 KB.
const heartbeatSeconds = 15; // Proxies cut connections that are silent for half a minute.
const unsentBytesMax = 1_048_576; // Some fifteen seconds of the most that is told.
