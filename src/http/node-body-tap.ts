import { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { isPlainRequest, peek } from "./peek.ts";
import { RequestAbortedError } from "./request.ts";

/** Where a request keeps its tap, so that its `push` needs no closure of its own. */
const tapped = Symbol("latchkey.tap");
type Tapped = IncomingMessage & { [tapped]?: BodyTap };

/**
 * Keeps the bytes of a body on their way to whoever reads it. Reading them first and putting them back costs several
 * times as much, and is needed only where this is not possible: the answer is false where part of the body has come
 * already, where its length is not known, and where `source` is not the request itself as Node has made it.
 */
export function tapNodeBody(req: IncomingMessage, source: Readable, bytesMax: number): boolean {
  if (source !== req || !(req instanceof IncomingMessage) || Object.hasOwn(req, "push")) return false;
  const { headers } = req;
  if (headers["transfer-encoding"] !== undefined || req.complete || req.destroyed) return false;
  const length = Number(headers["content-length"]);
  if (!(length > 0 && length <= bytesMax)) return false;
  if (req.readableLength > 0 || req.readableDidRead) return false;
  (req as Tapped)[tapped] = new BodyTap(length);
  req.push = keepAndPush;
  return true;
}

/** The tap of a request; undefined where it has none. */
export function tapOf(req: IncomingMessage): BodyTap | undefined {
  return isPlainRequest(req) ? (req as Tapped)[tapped] : peek(req as Tapped, tapped);
}

/**
 * Resolves with all of a tapped body as soon as the request has ended, read or not. Whatever ends a request early destroys
 * it, and it need not be listened to for that: three listeners cost as much as the rest of reading a body.
 */
export function bytesUntilEnd(req: IncomingMessage): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const tap = tapOf(req);
    if (tap === undefined || req.destroyed) return reject(new RequestAbortedError());
    tap.onEnd = { resolve, reject };
    tap.destroy = req.destroy;
    req.destroy = abortAndDestroy;
  });
}

function abortAndDestroy(this: IncomingMessage, error?: Error): IncomingMessage {
  const tap = tapOf(this);
  // Every request is destroyed in the end, and making an error takes longer than all the rest of it.
  tap?.onEnd?.reject(new RequestAbortedError());
  return (tap?.destroy ?? IncomingMessage.prototype.destroy).call(this, error);
}

function keepAndPush(this: Readable, chunk: unknown, encoding?: BufferEncoding): boolean {
  const tap = (this as Tapped)[tapped];
  if (chunk instanceof Uint8Array) tap?.keep(chunk);
  else if (chunk === null) tap?.end();
  return IncomingMessage.prototype.push.call(this, chunk, encoding);
}

class BodyTap {
  readonly #length: number;
  /** Mostly the whole body. */
  #first: Uint8Array | undefined;
  #rest: Uint8Array[] | undefined;
  #kept = 0;
  #completed: (() => void) | undefined;
  /** Who waits for the end of the request. */
  onEnd: OnEnd | undefined;
  /** How the request was destroyed before it was watched. */
  destroy: IncomingMessage["destroy"] | undefined;

  constructor(length: number) {
    this.#length = length;
  }

  keep(chunk: Uint8Array): void {
    if (this.#first === undefined) this.#first = chunk;
    else {
      this.#rest ??= [];
      this.#rest.push(chunk);
    }
    this.#kept += chunk.byteLength;
    if (this.#kept === this.#length) this.#completed?.();
  }

  end(): void {
    const { onEnd, bytes } = this;
    this.onEnd = undefined;
    if (bytes === undefined) onEnd?.reject(new RequestAbortedError());
    else onEnd?.resolve(bytes);
  }

  /** The whole body, once it is here. */
  get bytes(): Uint8Array | undefined {
    if (this.#kept !== this.#length || this.#first === undefined) return undefined;
    return this.#rest === undefined ? this.#first : Buffer.concat([this.#first, ...this.#rest]);
  }

  /** Resolves when everything is here; somebody else has to be reading it. */
  complete(req: IncomingMessage): Promise<void> {
    return new Promise((resolve, reject) => {
      const onGone = () => reject(new RequestAbortedError());
      if (req.destroyed) return onGone();
      this.#completed = () => {
        req.off("close", onGone);
        resolve();
      };
      req.once("close", onGone);
    });
  }
}

interface OnEnd {
  resolve(bytes: Uint8Array): void;
  reject(error: Error): void;
}
