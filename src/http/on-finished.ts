import type { ServerResponse } from "node:http";

type Listener = (error: unknown, res: ServerResponse) => void;

/** Where the package `on-finished` keeps whom it has to call; it adds to a queue that it finds here. */
interface WithListeners {
  __onFinished?: { queue: Listener[] | null } | null;
}

/**
 * Takes over whom `on-finished` would call, now and later, until the response is released. That package watches the
 * socket itself. Koa and Express' `sendFile` stop their streams by it as soon as the client is gone, and Koa answers a
 * socket's error in the handler's place; both would leave a request that was executed without its outcome.
 */
export function adoptFinishListeners(res: ServerResponse): { release(): void } {
  const holder = res as WithListeners;
  const queue: Listener[] = holder.__onFinished?.queue?.splice(0) ?? [];
  holder.__onFinished = { queue };
  return {
    release() {
      holder.__onFinished = null;
      if (queue.length === 0) return;
      const tell = () => {
        for (const listener of queue.splice(0)) listener(null, res);
      };
      res.once("finish", tell);
      res.once("close", tell);
    },
  };
}
