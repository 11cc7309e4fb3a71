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
  if (req.headers["transfer-encoding"] !== undefined || req.complete || req.destroyed) return false;
  const length = Number(req.headers["content-length"]);
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

function keepAndPush(this: Readable, chunk: unknown, encoding?: BufferEncoding): boolean {
  if (chunk instanceof Uint8Array) (this as Tapped)[tapped]?.keep(chunk);
  return IncomingMessage.prototype.push.call(this, chunk, encoding);
}

class BodyTap {
  readonly #length: number;
  readonly #chunks: Uint8Array[] = [];
  #kept = 0;
  #completed: (() => void) | undefined;

  constructor(length: number) {
    this.#length = length;
  }

  keep(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#kept += chunk.byteLength;
    if (this.#kept === this.#length) this.#completed?.();
  }

  /** The whole body, once it is here. */
  get bytes(): Uint8Array | undefined {
    if (this.#kept !== this.#length) return undefined;
    return this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks);
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
