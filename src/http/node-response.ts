import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { HeaderPair } from "../core/response.ts";
import type { HttpAnswer } from "./answer.ts";
import type { Exchange, Finish } from "./exchange.ts";

/** Sends an answer that Latchkey gives itself. */
export function writeNodeAnswer(res: ServerResponse, answer: HttpAnswer): void {
  res.statusCode = answer.status;
  for (const [name, value] of answer.headers) appendHeader(res, name, value);
  res.end(answer.body);
}

/**
 * Holds back everything that the handler writes until it is stored, and then sends it as if it had just been written.
 * It works below every framework, so that whatever made the answer (a handler, an error page, a stream) is captured
 * as the bytes that it is.
 */
export function captureNodeResponse(res: ServerResponse, exchange: Exchange): NodeCapture {
  return new NodeCapture(res, exchange);
}

type Callback = (error?: Error | null) => void;
type Chunk = string | Uint8Array;

export class NodeCapture {
  readonly #res: ServerResponse;
  readonly #exchange: Exchange;
  /** What stood in the way before us, such as a compressing middleware: the answer goes out through it. */
  readonly #below: Pick<ServerResponse, "write" | "end" | "writeHead" | "flushHeaders" | "emit">;
  readonly #chunks: Uint8Array[] = [];
  #bytes = 0;
  #headWritten = false;
  #ended = false;
  #released = false;
  #clientGone = false;

  constructor(res: ServerResponse, exchange: Exchange) {
    this.#res = res;
    this.#exchange = exchange;
    this.#below = {
      write: res.write,
      end: res.end,
      writeHead: res.writeHead,
      flushHeaders: res.flushHeaders,
      emit: res.emit,
    };
    res.write = ((chunk: Chunk, ...rest: unknown[]) => this.#write(chunk, rest)) as ServerResponse["write"];
    res.end = ((...args: unknown[]) => this.#end(args)) as ServerResponse["end"];
    res.writeHead = ((status: number, ...rest: unknown[]) =>
      this.#writeHead(status, rest)) as ServerResponse["writeHead"];
    res.flushHeaders = () => this.#flushHeaders();
    res.emit = ((event: string, ...args: unknown[]) => this.#emit(event, args)) as ServerResponse["emit"];
    exchange.onTimeout((answer) => this.replace(answer));
  }

  /** Whether the handler has given its whole answer. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Sends something else than what the handler makes; what it still writes is dropped. */
  replace(answer: HttpAnswer): void {
    if (this.#released) return;
    this.#ended = true;
    this.#release({ kind: "replace", answer }, undefined);
  }

  #write(chunk: Chunk, rest: unknown[]): boolean {
    const { encoding, callback } = trailing(rest);
    if (this.#ended) {
      refuse(callback, "write after end");
      return false;
    }
    const bytes = toBytes(chunk, encoding);
    this.#keep(bytes);
    if (this.#exchange.streaming) return this.#below.write.call(this.#res, bytes, "utf8", callback ?? noop);
    this.#beginHead();
    if (callback !== undefined) process.nextTick(callback);
    return true;
  }

  #end(args: unknown[]): ServerResponse {
    const chunk = typeof args[0] === "function" ? undefined : (args[0] as Chunk | null | undefined);
    const { encoding, callback } = trailing(typeof args[0] === "function" ? args : args.slice(1));
    if (this.#ended) {
      refuse(callback, "end after end");
      return this.#res;
    }
    const last = chunk === undefined || chunk === null ? undefined : toBytes(chunk, encoding);
    if (last !== undefined) this.#keep(last);
    this.#ended = true;
    this.#beginHead();
    override(this.#res, "writableEnded", true);
    void this.#settle().then((finish) => {
      if (this.#exchange.streaming) this.#releaseStream(finish, last, callback);
      else this.#release(finish, callback);
    });
    return this.#res;
  }

  #settle(): Promise<Finish> {
    const status = this.#res.statusCode;
    if (this.#bytes > this.#exchange.responseBytesMax)
      return this.#exchange.finishOmitted(status, this.#bytes);
    return this.#exchange.finish({ status, headers: headerPairs(this.#res), body: joined(this.#chunks) });
  }

  #writeHead(status: number, rest: unknown[]): ServerResponse {
    if (this.#headWritten) {
      throw Object.assign(new Error("Cannot write headers after they are sent to the client"), {
        code: "ERR_HTTP_HEADERS_SENT",
      });
    }
    this.#res.statusCode = status;
    const [reason, headers] = typeof rest[0] === "string" ? rest : [undefined, rest[0]];
    if (typeof reason === "string") this.#res.statusMessage = reason;
    setHeaders(this.#res, headers as OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined);
    this.#beginHead();
    return this.#res;
  }

  #flushHeaders(): void {
    if (this.#exchange.streaming) this.#below.flushHeaders.call(this.#res);
    else this.#beginHead();
  }

  /** From here on the handler sees a response whose headers are on their way. */
  #beginHead(): void {
    if (this.#headWritten) return;
    this.#headWritten = true;
    if (!this.#exchange.streaming) override(this.#res, "headersSent", true);
  }

  /** While the answer is not complete, a client that went away must not stop what the handler is piping into it. */
  #emit(event: string, args: unknown[]): boolean {
    if (event === "close" && !this.#released) {
      this.#clientGone = true;
      this.#res.destroyed = false;
      return false;
    }
    return this.#below.emit.call(this.#res, event, ...args);
  }

  #keep(bytes: Uint8Array): void {
    this.#bytes += bytes.byteLength;
    // In a streaming route nobody needs the bytes that will not be stored.
    if (this.#exchange.streaming && this.#bytes > this.#exchange.responseBytesMax) this.#chunks.length = 0;
    else this.#chunks.push(bytes);
  }

  #release(finish: Finish, callback: Callback | undefined): void {
    if (this.#released) return;
    const res = this.#restore();
    if (this.#clientGone) {
      this.#close();
      return;
    }
    if (finish.kind === "replace") {
      if (res.headersSent) {
        // A streaming route has begun to answer. Breaking off tells the client that this is not the whole of it.
        res.destroy();
        return;
      }
      for (const name of res.getHeaderNames()) res.removeHeader(name);
      res.statusMessage = "";
      writeNodeAnswer(res, finish.answer);
      return;
    }
    for (const [name, value] of finish.headers) res.setHeader(name, value);
    res.end(joined(this.#chunks), callback);
  }

  /** The bytes have flowed; only the end of the answer waited for the store. */
  #releaseStream(finish: Finish, last: Uint8Array | undefined, callback: Callback | undefined): void {
    if (finish.kind === "replace") {
      this.#release(finish, callback);
      return;
    }
    if (this.#released) return;
    const res = this.#restore();
    if (this.#clientGone) this.#close();
    else if (last === undefined) res.end(callback);
    else res.end(last, callback);
  }

  #restore(): ServerResponse {
    this.#released = true;
    const res = this.#res;
    Object.assign(res, this.#below);
    for (const name of ["headersSent", "writableEnded"]) Reflect.deleteProperty(res, name);
    return res;
  }

  /** The client went away earlier; now the response may say so. */
  #close(): void {
    this.#res.destroyed = true;
    this.#res.emit("close");
  }
}

const noop = () => {};

function override(res: ServerResponse, name: "headersSent" | "writableEnded", value: boolean): void {
  Object.defineProperty(res, name, { value, configurable: true });
}

function trailing(args: unknown[]): { encoding: BufferEncoding; callback: Callback | undefined } {
  const encoding = typeof args[0] === "string" ? (args[0] as BufferEncoding) : "utf8";
  return { encoding, callback: args.find((arg): arg is Callback => typeof arg === "function") };
}

function refuse(callback: Callback | undefined, message: string): void {
  if (callback !== undefined) process.nextTick(callback, new Error(message));
}

/** A caller may reuse its buffer once `write` has returned, so the bytes are copied. */
function toBytes(chunk: Chunk, encoding: BufferEncoding): Uint8Array {
  return typeof chunk === "string" ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
}

function joined(chunks: readonly Uint8Array[]): Uint8Array {
  return chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks);
}

/** All headers that are set, with repeated ones apart. */
function headerPairs(res: ServerResponse): HeaderPair[] {
  const pairs: HeaderPair[] = [];
  for (const [name, value] of Object.entries(res.getHeaders())) {
    if (Array.isArray(value)) for (const one of value) pairs.push([name, one]);
    else if (value !== undefined) pairs.push([name, String(value)]);
  }
  return pairs;
}

/** What `writeHead` takes: an object, or names and values in turn. */
function setHeaders(
  res: ServerResponse,
  headers: OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined,
): void {
  if (headers === undefined) return;
  if (Array.isArray(headers)) {
    const seen = new Set<string>();
    for (let index = 0; index < headers.length; index += 2) {
      const name = String(headers[index]);
      const value = headers[index + 1] as OutgoingHttpHeader;
      if (seen.has(name.toLowerCase())) appendHeader(res, name, String(value));
      else res.setHeader(name, value as string);
      seen.add(name.toLowerCase());
    }
    return;
  }
  for (const [name, value] of Object.entries(headers)) if (value !== undefined) res.setHeader(name, value);
}

function appendHeader(res: ServerResponse, name: string, value: string): void {
  if (res.hasHeader(name)) res.appendHeader(name, value);
  else res.setHeader(name, value);
}
