import type { ServerResponse } from "node:http";
import type { Below, HeaderMethod, Holder } from "./node-hold.ts";

/** Holds responses that are sent: nothing can be added to them, and what is tried all the same is ignored. */
export class SpentHolder implements Holder {
  readonly leavesHeaders = false;
  readonly wrappedBelow = undefined;
  readonly finishListeners = undefined;
  readonly #below: Below;

  constructor(below: Below) {
    this.#below = below;
  }

  write(_res: ServerResponse, _chunk: string | Uint8Array, rest: unknown[]): boolean {
    return ignored(callbackIn(rest), "write");
  }

  end(_res: ServerResponse, args: unknown[]): void {
    ignored(callbackIn(args), "end");
  }

  writeHead(res: ServerResponse, args: unknown[]): void {
    if (!res.headersSent) this.#below.writeHead.apply(res, args as never);
  }

  flushHeaders(): void {}

  emit(res: ServerResponse, event: string, args: unknown[]): boolean {
    return this.#below.emit.call(res, event, ...args);
  }

  destroy(res: ServerResponse, error: Error | undefined): void {
    this.#below.destroy.call(res, error);
  }

  setHeader(res: ServerResponse, method: HeaderMethod, name: unknown, value: unknown): void {
    if (res.headersSent) return;
    (this.#below[method] as (name: unknown, value: unknown) => unknown).call(res, name, value);
  }
}

export type Callback = (error?: Error | null) => void;

export function callbackIn(args: unknown[]): Callback | undefined {
  for (const arg of args) if (typeof arg === "function") return arg as Callback;
  return undefined;
}

/** True as well, so that what is piped here runs dry instead of waiting for a drain. */
export function ignored(callback: Callback | undefined, what: string): true {
  if (callback !== undefined) process.nextTick(callback, new Error(`${what} after the answer was complete`));
  return true;
}
