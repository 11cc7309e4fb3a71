import { type IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { ConfigError } from "../core/errors.ts";
import type { RequestBody } from "../core/fingerprint.ts";
import { whenKnown } from "../core/when-known.ts";
import { lastingSocket } from "./lasting-socket.ts";
import { bytesUntilEnd, tapNodeBody, tapOf } from "./node-body-tap.ts";
import { isPlainRequest, peek } from "./peek.ts";
import { type BodyReading, type HttpRequest, RequestAbortedError, splitTarget } from "./request.ts";
import { claimHeader } from "./stored-request.ts";

/** A Node request as the gate wants it. `native` is what the framework calls its request. */
export function nodeRequest(req: IncomingMessage, native: unknown): HttpRequest {
  return new NodeRequest(req, native);
}

class NodeRequest implements HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly native: unknown;
  readonly identity: object;
  readonly keyFields: readonly string[];
  readonly #req: IncomingMessage;
  readonly #headers: IncomingHttpHeaders;

  constructor(req: IncomingMessage, native: unknown) {
    const said = isPlainRequest(req) ? saidPlainly(req) : saidBy(req);
    const { path, query } = splitTarget(said.target ?? "/");
    this.method = said.method ?? "";
    this.path = path;
    this.query = query;
    this.native = native;
    this.identity = said.rawHeaders;
    this.keyFields = keyFieldsOf(said.rawHeaders);
    this.#req = req;
    this.#headers = said.headers;
  }

  get contentType(): string | undefined {
    return this.#headers["content-type"];
  }

  get contentEncoding(): string | undefined {
    return this.#headers["content-encoding"];
  }

  get isClaim(): boolean {
    return this.#headers[claimHeader] !== undefined;
  }

  header(name: string): string | undefined {
    const value = this.#headers[name.toLowerCase()];
    return Array.isArray(value) ? value.join(", ") : value;
  }

  body(bytesMax: number): BodyReading | Promise<BodyReading> {
    return readNodeBody(this.#req, bytesMax);
  }
}

/** What is read off a request. Express and Koa rewrite `url` below a mount point, and keep what the client sent. */
function saidBy(req: IncomingMessage) {
  return {
    target: peek(req as { originalUrl?: string }, "originalUrl") ?? peek(req, "url"),
    method: peek(req, "method"),
    rawHeaders: peek(req, "rawHeaders"),
    headers: peek(req, "headers"),
  };
}

/** The same, word for word, where all requests are alike and the usual way is the faster one. */
function saidPlainly(req: IncomingMessage): ReturnType<typeof saidBy> {
  return {
    target: (req as { originalUrl?: string }).originalUrl ?? req.url,
    method: req.method,
    rawHeaders: req.rawHeaders,
    headers: req.headers,
  };
}

/** Node joins repeated fields into one text; only the raw list shows that there were two. */
function keyFieldsOf(rawHeaders: readonly string[]): string[] {
  const fields: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    if (name.length === keyHeader.length && name.toLowerCase() === keyHeader)
      fields.push(rawHeaders[index + 1] as string);
  }
  return fields;
}

const keyHeader = "idempotency-key";

/** Where a request keeps what was read here and put back, so that a second reader of it finds it. */
const bufferedBody = Symbol("latchkey.body");
type Buffered = IncomingMessage & { [bufferedBody]?: Extract<RequestBody, { kind: "bytes" }> };

/** Reads the whole body and puts it back, so that whoever comes next can read it as if nobody had. */
export function readNodeBody(req: IncomingMessage, bytesMax: number): BodyReading | Promise<BodyReading> {
  return (
    knownBody(req, req, bytesMax) ??
    keepUntilEnd(req, bytesMax) ??
    readAndPutBack(req, req, bytesMax, outliveTheClient)
  );
}

/**
 * Keeps a body on its way into the request, where it stays, if there is room for it and none of it has come yet. Nothing
 * has to be read and put back then, nor to be listened for. Undefined where that is not possible.
 */
function keepUntilEnd(req: IncomingMessage, bytesMax: number): Promise<BodyReading> | undefined {
  // A request that nobody reads is stopped when it is full, and its end would never come.
  if (!isPlainRequest(req) || !(Number(req.headers["content-length"]) < req.readableHighWaterMark))
    return undefined;
  if (!tapNodeBody(req, req, bytesMax)) return undefined;
  return bytesUntilEnd(req).then((bytes) => {
    const body = { kind: "bytes", bytes } as const;
    (req as Buffered)[bufferedBody] = body;
    outliveTheClient(req);
    return { kind: "body", body };
  });
}

/** What was read here and put back; undefined if nothing was. */
export function bytesPutBack(req: IncomingMessage): Uint8Array | undefined {
  return peek(req as Buffered, bufferedBody)?.bytes;
}

/** Buffers a body that a framework is about to read from `source`, and remembers it for the gate. */
export async function bufferNodeBody(
  req: IncomingMessage,
  source: Readable,
  bytesMax: number,
): Promise<BodyReading> {
  return knownBody(req, source, bytesMax) ?? readAndPutBack(req, source, bytesMax);
}

/** What can be said about a body without waiting for it. */
function knownBody(req: IncomingMessage, source: Readable, bytesMax: number): BodyReading | undefined {
  const isPlain = isPlainRequest(req);
  const known = isPlain ? (req as Buffered)[bufferedBody] : peek(req as Buffered, bufferedBody);
  if (known !== undefined)
    return known.bytes.byteLength > bytesMax ? tooLarge : { kind: "body", body: known };
  const headers = isPlain ? req.headers : peek(req, "headers");
  if (Number(headers["content-length"]) > bytesMax) {
    // The body is of no interest, but an unread one would block the connection.
    source.resume();
    return tooLarge;
  }
  if (!mayHaveBody(req, headers)) return bytesOf(noBytes);
  const tap = tapOf(req);
  const bytes = tap?.bytes;
  if (bytes !== undefined) return bytesOf(bytes);
  if (tap === undefined && peek(source, "readableDidRead"))
    return { kind: "body", body: bodyLeftByParser(req) };
  return undefined;
}

function readAndPutBack(
  req: IncomingMessage,
  source: Readable,
  bytesMax: number,
  afterwards?: (req: IncomingMessage) => void,
): Promise<BodyReading> {
  // A small body came with the head and is complete as soon as the parser, which is calling us, goes on.
  return nextTurn.then(() => {
    if (source.readableDidRead) return bodyReadByOthers(req);
    if (source.readableEnded) return bytesOf(noBytes);
    return whenKnown(drainAndPutBack(source, bytesMax), (bytes) => {
      if (bytes === undefined) {
        source.resume();
        return tooLarge;
      }
      // What comes from another stream than the request's own was decoded on the way.
      const body = { kind: "bytes", bytes, isDecoded: source !== (req as Readable) } as const;
      (req as Buffered)[bufferedBody] = body;
      afterwards?.(req);
      return { kind: "body", body };
    });
  });
}

const nextTurn = Promise.resolve();

/** Somebody else is reading the body, or has read it. A tap keeps what they read; else what they left is all there is. */
async function bodyReadByOthers(req: IncomingMessage): Promise<BodyReading> {
  const tap = tapOf(req);
  if (tap === undefined) return { kind: "body", body: bodyLeftByParser(req) };
  if (tap.bytes === undefined) await tap.complete(req);
  return bytesOf(tap.bytes ?? noBytes);
}

const noBytes = new Uint8Array();
const tooLarge: BodyReading = { kind: "tooLarge" };

function bytesOf(bytes: Uint8Array): BodyReading {
  return { kind: "body", body: { kind: "bytes", bytes } };
}

/** RFC 9112: an HTTP/1 request has a body if and only if one of these fields says so. Elsewhere only reading tells. */
function mayHaveBody(req: IncomingMessage, headers: IncomingHttpHeaders): boolean {
  if (!(req instanceof IncomingMessage)) return true;
  if (headers["transfer-encoding"] !== undefined) return true;
  const length = headers["content-length"];
  return length !== undefined && length !== "0";
}

/** Another middleware consumed the stream. What it left is all there is. */
function bodyLeftByParser(req: IncomingMessage): RequestBody {
  const parsed = req as { rawBody?: unknown; body?: unknown };
  const rawBody = peek(parsed, "rawBody");
  const body = peek(parsed, "body");
  if (rawBody instanceof Uint8Array) return { kind: "bytes", bytes: rawBody, isDecoded: true };
  if (typeof rawBody === "string") return { kind: "bytes", bytes: Buffer.from(rawBody), isDecoded: true };
  const contentType = peek(req, "headers")["content-type"] ?? "";
  if (/^multipart\//i.test(contentType)) {
    throw new ConfigError(
      "a multipart parser consumed this request before Latchkey saw it, so its files cannot be part of the " +
        "fingerprint: mount idempotent(latchkey) before the parser",
    );
  }
  if (body === undefined) {
    throw new ConfigError(
      "something consumed the body of this request before Latchkey saw it and left neither req.body nor " +
        "req.rawBody: mount idempotent(latchkey) before it",
    );
  }
  return { kind: "parsed", value: body };
}

/**
 * Reads to the end and pushes everything back before the stream can emit `end`. That is possible because `end` is
 * emitted only once the buffer is empty, and `unshift` refills it in the same turn in which the last chunk was taken.
 * Answers undefined when there are more than `bytesMax`.
 */
function drainAndPutBack(
  stream: Readable,
  bytesMax: number,
): Uint8Array | undefined | Promise<Uint8Array | undefined> {
  const chunks: Buffer[] = [];
  const length = take(stream, chunks);
  if (length > bytesMax) return undefined;
  return hasEnded(stream) ? putBack(stream, chunks) : drainRest(stream, bytesMax - length, chunks);
}

async function drainRest(
  stream: Readable,
  bytesMax: number,
  chunks: Buffer[],
): Promise<Uint8Array | undefined> {
  for (let length = 0; !hasEnded(stream); ) {
    await moreToRead(stream);
    length += take(stream, chunks);
    if (length > bytesMax) return undefined;
  }
  return putBack(stream, chunks);
}

function putBack(stream: Readable, chunks: readonly Buffer[]): Uint8Array {
  const bytes = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
  if (bytes.byteLength > 0) stream.unshift(bytes);
  return bytes;
}

/**
 * Takes what is there. An empty stream is not asked: if it has ended, it would say so now, and whoever comes next would
 * wait for that in vain.
 */
function take(stream: Readable, chunks: Buffer[]): number {
  let length = 0;
  while (stream.readableLength > 0) {
    const chunk = stream.read() as Buffer | string | null;
    if (chunk === null) break;
    const bytes = typeof chunk === "string" ? Buffer.from(chunk, stream.readableEncoding ?? "utf8") : chunk;
    chunks.push(bytes);
    length += bytes.byteLength;
  }
  return length;
}

function moreToRead(stream: Readable): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      stream.off("readable", onReadable);
      stream.off("error", onGone);
      stream.off("close", onGone);
    };
    const onReadable = () => {
      stop();
      resolve();
    };
    const onGone = () => {
      stop();
      reject(new RequestAbortedError());
    };
    if (stream.destroyed) return onGone();
    stream.on("readable", onReadable);
    stream.on("error", onGone);
    stream.on("close", onGone);
  });
}

/**
 * Whether everything has arrived, read or not. `readableEnded` says so only when all of it was read, and `complete`
 * is set too early on requests that do not come from a socket.
 */
function hasEnded(stream: Readable): boolean {
  return (stream as unknown as { _readableState: { ended: boolean } })._readableState.ended;
}

/**
 * The whole body is here. When the client goes away, Node destroys the request with what nobody has read yet, and body
 * parsers do not even try; a handler that has begun would then work with half a request.
 */
function outliveTheClient(req: IncomingMessage): void {
  // One of HTTP/2 has no connection of its own, and keeps what it has read: it is fed by a stream that nobody destroys
  // early.
  if (!(req instanceof IncomingMessage) || !Object.hasOwn(req, "socket")) return;
  const { destroy, socket } = req;
  (req as Outliving)[mortal] = { destroy, socket };
  req.socket = lastingSocket(socket);
  req.destroy = destroyUnlessClientGone;
  req.on("end", beMortal);
}

/** What a request does once nobody needs its body any more. Kept there, so that no request needs functions of its own. */
const mortal = Symbol("latchkey.mortal");
type Outliving = IncomingMessage & { [mortal]: Pick<IncomingMessage, "destroy" | "socket"> };

function destroyUnlessClientGone(this: IncomingMessage, error?: Error): IncomingMessage {
  if ((error as { code?: string } | undefined)?.code === "ECONNRESET") return this;
  return (this as Outliving)[mortal].destroy.call(this, error);
}

function beMortal(this: IncomingMessage): void {
  const { destroy, socket } = (this as Outliving)[mortal];
  this.socket = socket;
  this.destroy = destroy;
}
