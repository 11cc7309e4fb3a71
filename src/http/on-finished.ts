import type { ServerResponse } from "node:http";
import { peek } from "./peek.ts";

type Listener = (error: unknown, res: ServerResponse) => void;

/** Where the package `on-finished` keeps whom it has to call; it adds to a queue that it finds here. */
export const finishListenersName = "__onFinished";

interface WithListeners {
  [finishListenersName]?: { queue: Listener[] | null } | null | undefined;
}

/**
 * Takes over whom `on-finished` would call, now and later, until the response is released. That package watches the
 * socket itself. Koa and Express' `sendFile` stop their streams by it as soon as the client is gone, and Koa answers a
 * socket's error in the handler's place; both would leave a request that was executed without its outcome.
 */
export class FinishListeners {
  readonly #res: ServerResponse;
  #queue: Listener[] | undefined;

  constructor(res: ServerResponse) {
    this.#res = res;
    const known = peek(res as WithListeners, finishListenersName);
    if (known?.queue) this.#queue = known.queue.splice(0);
    // A held response of a framework finds them through its holder, and needs no property of its own.
    if (known !== undefined || !(finishListenersName in res))
      (res as WithListeners)[finishListenersName] = this;
  }

  /** Made on demand: hardly any response is listened to while it is held. */
  get queue(): Listener[] {
    this.#queue ??= [];
    return this.#queue;
  }

  release(): void {
    const res = this.#res;
    if (Object.hasOwn(res, finishListenersName)) (res as WithListeners)[finishListenersName] = null;
    const queue = this.#queue;
    if (queue === undefined || queue.length === 0) return;
    const tell = () => {
      for (const listener of queue.splice(0)) listener(null, res);
    };
    res.once("finish", tell);
    res.once("close", tell);
  }
}
