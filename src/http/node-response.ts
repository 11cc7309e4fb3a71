import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { HeaderPair } from "../core/response.ts";
import { type HttpAnswer, headersByName } from "./answer.ts";
import type { Exchange, Finish } from "./exchange.ts";
import { lastingSocket } from "./lasting-socket.ts";
import { assertHead, type Head, headerPairs, headOf, restoreHead, setHeaders } from "./node-head.ts";
import { adoptFinishListeners } from "./on-finished.ts";

/** Sends an answer that Latchkey gives itself. */
export function writeNodeAnswer(res: ServerResponse, answer: HttpAnswer): void {
  // Somebody else, such as a middleware that limits the time, may have answered meanwhile.
  if (res.headersSent) return;
  res.statusCode = answer.status;
  // They replace what outer middleware has set: a stored answer already holds what it set the first time.
  for (const [name, value] of headersByName(answer.headers)) res.setHeader(name, value);
  res.end(answer.body);
}

/**
 * Holds back everything that the handler writes until it is stored, and then sends it as if it had just been written.
 * It works below every framework, so that whatever made the answer (a handler, an error page, a stream) is captured
 * as the bytes that it is.
 *
 * Until the answer is complete, the handler and its framework see a response that is open: its client never goes away,
 * and its head is not sent, so that an error page can still take the place of an answer that was only begun. The first
 * complete answer counts. Whatever is done to the response after that is ignored.
 */
export function captureNodeResponse(res: ServerResponse, exchange: Exchange): NodeCapture {
  return new NodeCapture(res, exchange);
}

type Callback = (error?: Error | null) => void;
type Chunk = string | Uint8Array;

export class NodeCapture {
  readonly #res: CapturedResponse;
  readonly #exchange: Exchange;
  /** What stood in the way before us, such as a compressing middleware: the answer goes out through it. */
  readonly #below: Pick<ServerResponse, keyof typeof held | keyof typeof retired>;
  readonly #headersBefore: OutgoingHttpHeaders;
  readonly #finishListeners: { release(): void };
  #socket: Socket | undefined;
  readonly #chunks: Uint8Array[] = [];
  #bytes = 0;
  /** The status with which the answer was begun. */
  #begunStatus: number | undefined;
  /** A streaming answer is on its way to the client. */
  #flowing = false;
  /** What flows was given up, and something else is being answered that can no longer be sent. */
  #brokenOff = false;
  #unconfirmedWrites: Set<() => void> | undefined;
  #ended = false;
  #released = false;
  #clientGone = false;

  constructor(response: ServerResponse, exchange: Exchange) {
    const res = response as CapturedResponse;
    this.#res = res;
    this.#exchange = exchange;
    this.#below = {
      write: res.write,
      end: res.end,
      writeHead: res.writeHead,
      flushHeaders: res.flushHeaders,
      emit: res.emit,
      destroy: res.destroy,
      setHeader: res.setHeader,
      appendHeader: res.appendHeader,
      removeHeader: res.removeHeader,
    };
    this.#headersBefore = res.getHeaders();
    res[capture] = this;
    Object.assign(res, held);
    this.#shieldSocket();
    this.#finishListeners = adoptFinishListeners(res);
    exchange.onTimeout((answer) => {
      // The handler may still be at work, and break the connection when it fails.
      res.shouldKeepAlive = false;
      this.replace(answer);
    });
  }

  /** Whether the answer is complete, whoever gave it. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Sends something else than what the handler makes; what it still writes is dropped. */
  replace(answer: HttpAnswer): void {
    this.#ended = true;
    this.#release(() => this.#sendInstead(answer));
  }

  write(chunk: Chunk, { encoding, callback }: Trailing): boolean {
    if (this.#ended) return ignored(callback, "write");
    const bytes = toBytes(chunk, encoding);
    this.#begin();
    const writable = this.#exchange.streaming ? this.#pass(bytes, callback) : confirmed(callback);
    this.#keep(bytes);
    return writable;
  }

  end(chunk: Chunk | null | undefined, { encoding, callback }: Trailing): void {
    if (this.#ended) {
      ignored(callback, "end");
      return;
    }
    const last = chunk === undefined || chunk === null ? noBytes : toBytes(chunk, encoding);
    this.#begin();
    this.#keep(last);
    const head = headOf(this.#res);
    this.#close();
    this.#settle(head).then(
      (finish) =>
        this.#release(() => {
          if (finish.kind === "replace") this.#sendInstead(finish.answer);
          else if (this.#flowing) this.#sendEnd(last, callback);
          else this.#send(head, finish.headers, callback);
        }),
      (error) => this.#release(() => this.#res.destroy(error)),
    );
  }

  #settle(head: Head): Promise<Finish> {
    const { status, headers } = head;
    return this.#bytes > this.#exchange.responseBytesMax
      ? this.#exchange.finishOmitted(status, this.#bytes)
      : this.#exchange.finish({ status, headers: headerPairs(headers), body: joined(this.#chunks) });
  }

  /** Lets middleware that wraps `writeHead` have its say, as it has when Node writes the head by itself. */
  #begin(): void {
    if (this.#begunStatus === undefined) this.#res.writeHead(this.#res.statusCode);
    this.#startOverIfChanged();
  }

  writeHead(status: number, rest: unknown[]): void {
    const res = this.#res;
    if (this.#flowing && !isHeadSent(res)) {
      this.#below.writeHead.apply(res, [status, ...rest] as never);
      return;
    }
    if (this.#ended) return;
    const [reason, headers] = typeof rest[0] === "string" ? rest : [undefined, rest[1] ?? rest[0]];
    assertHead(status, (reason as string | undefined) ?? res.statusMessage);
    if (typeof reason === "string") res.statusMessage = reason;
    setHeaders(res, headers as OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined);
    res.statusCode = status;
    this.#begunStatus ??= status;
    this.#startOverIfChanged();
  }

  /** What is given another status after it was begun is another answer: in all likelihood, an error page. */
  #startOverIfChanged(): void {
    const { statusCode, statusMessage } = this.#res;
    if (this.#begunStatus === statusCode) return;
    assertHead(statusCode, statusMessage);
    this.#begunStatus = statusCode;
    this.#brokenOff = this.#flowing;
    this.#chunks.length = 0;
    this.#bytes = 0;
  }

  flushHeaders(): void {
    if (this.#ended) return;
    this.#begin();
    if (!this.#exchange.streaming || this.#clientGone || this.#brokenOff) return;
    this.#flow();
    this.#below.flushHeaders.call(this.#res);
  }

  /** Sends what a streaming handler writes. A client that has gone is no reason for the handler to stop. */
  #pass(bytes: Uint8Array, callback: Callback | undefined): boolean {
    if (this.#clientGone || this.#brokenOff) return confirmed(callback);
    this.#flow();
    const unconfirmed = this.#unconfirmedWrites ?? new Set();
    this.#unconfirmedWrites = unconfirmed;
    const confirm = () => {
      if (unconfirmed.delete(confirm)) callback?.();
    };
    unconfirmed.add(confirm);
    return this.#below.write.call(this.#res, bytes, "utf8", confirm);
  }

  #flow(): void {
    if (this.#flowing) return;
    for (const [name, value] of this.#exchange.streamHeaders) this.#res.setHeader(name, value);
    this.#flowing = true;
    override(this.#res, "headersSent", false);
    const { setHeader, appendHeader, removeHeader } = retired;
    Object.assign(this.#res, { setHeader, appendHeader, removeHeader });
  }

  #keep(bytes: Uint8Array): void {
    this.#bytes += bytes.byteLength;
    // Nobody needs bytes that have been sent and will not be stored.
    if (this.#flowing && this.#bytes > this.#exchange.responseBytesMax) this.#chunks.length = 0;
    else this.#chunks.push(bytes);
  }

  /** The answer is complete, and nothing can be added to it. */
  #close(): void {
    this.#ended = true;
    override(this.#res, "writableEnded", true);
  }

  emit(event: string, args: unknown[]): boolean {
    if (event === "close" && !this.#released) {
      this.#outliveTheClient();
      return false;
    }
    if (event === "socket") this.#shieldSocket();
    return this.#below.emit.call(this.#res, event, ...args);
  }

  /** While the answer is not complete, a client that went away must not stop what the handler is piping into it. */
  #outliveTheClient(): void {
    this.#clientGone = true;
    markClosed(this.#res, false);
    if (!this.#flowing) return;
    override(this.#res, "writableNeedDrain", false);
    for (const confirm of this.#unconfirmedWrites ?? []) process.nextTick(confirm);
    process.nextTick(() => this.#below.emit.call(this.#res, "drain"));
  }

  #shieldSocket(): void {
    const { socket } = this.#res;
    // A response that waits behind another one gets its socket later, and one of HTTP/2 has none of its own.
    if (socket === null || !Object.hasOwn(this.#res, "socket")) return;
    this.#socket = socket;
    Object.assign(this.#res, { socket: lastingSocket(socket) });
  }

  /** The handler, or its framework on its behalf, gives up. */
  destroy(error: Error | undefined): void {
    if (this.#ended) return;
    this.#close();
    const cause = error ?? new Error("the response was destroyed before it was complete");
    const breakOff = () => this.#release(() => this.#res.destroy(error));
    this.#exchange.fail(cause).then(breakOff, breakOff);
  }

  /** Makes the response itself again, sends the answer, and leaves a response to which nobody can do any harm. */
  #release(sendIt: () => void): void {
    if (this.#released) return;
    this.#released = true;
    const res = this.#res;
    Object.assign(res, this.#below);
    if (this.#socket !== undefined) Object.assign(res, { socket: this.#socket });
    for (const name of overridable) Reflect.deleteProperty(res, name);
    this.#finishListeners.release();
    try {
      if (!this.#clientGone) sendIt();
      else {
        markClosed(res, true);
        res.emit("close");
      }
    } catch (error) {
      // The outcome is stored. What is left is to let the client know that it did not get it.
      res.destroy(error as Error);
    }
    Object.assign(res, retired);
    this.#chunks.length = 0;
  }

  #send(head: Head, extra: readonly HeaderPair[], callback: Callback | undefined): void {
    const res = this.#res;
    if (res.headersSent) return;
    const body = joined(this.#chunks);
    restoreHead(res, head);
    for (const [name, value] of extra) res.setHeader(name, value);
    // A wrong one, such as that of an answer which an error page has replaced, would break the connection.
    const length = res.getHeader("content-length");
    if (length !== undefined && Number(length) !== body.byteLength) res.removeHeader("content-length");
    res.end(body, callback);
  }

  /** The bytes have flowed; only the end of the answer waited for the store. */
  #sendEnd(last: Uint8Array, callback: Callback | undefined): void {
    if (this.#brokenOff) this.#res.destroy();
    else if (last.byteLength === 0) this.#res.end(callback);
    else this.#res.end(last, callback);
  }

  #sendInstead(answer: HttpAnswer): void {
    const res = this.#res;
    if (this.#flowing) {
      // Breaking off tells the client that what it has is not the whole of it.
      res.destroy();
      return;
    }
    if (res.headersSent) return;
    restoreHead(res, { status: answer.status, message: "", headers: this.#headersBefore });
    writeNodeAnswer(res, answer);
  }

  /** Does to the response what it did before us, unless its head is sent and it would throw. */
  ifStillPossible(name: keyof typeof retired, args: unknown[]): ServerResponse {
    const res = this.#res;
    if (!isHeadSent(res)) (this.#below[name] as (...args: unknown[]) => unknown).apply(res, args);
    return res;
  }
}

/** Where a response keeps its capture, so that the methods below need no closure of their own for every request. */
const capture = Symbol("latchkey.capture");

interface CapturedResponse extends ServerResponse {
  [capture]: NodeCapture;
}

/** The methods of a response whose answer is held back. */
const held = {
  write(this: CapturedResponse, chunk: Chunk, ...rest: unknown[]) {
    return this[capture].write(chunk, trailing(rest));
  },
  end(this: CapturedResponse, ...args: unknown[]) {
    const chunk = typeof args[0] === "function" ? undefined : (args.shift() as Chunk | null | undefined);
    this[capture].end(chunk, trailing(args));
    return this;
  },
  writeHead(this: CapturedResponse, status: number, ...rest: unknown[]) {
    this[capture].writeHead(status, rest);
    return this;
  },
  flushHeaders(this: CapturedResponse) {
    this[capture].flushHeaders();
  },
  emit(this: CapturedResponse, event: string, ...args: unknown[]) {
    return this[capture].emit(event, args);
  },
  destroy(this: CapturedResponse, error?: Error) {
    this[capture].destroy(error);
    return this;
  },
};

/**
 * The methods of a response whose answer was sent. Error pages and handlers that go on after their answer, or after
 * their time, would fail in a place where nobody expects it; a middleware outside of Latchkey may still set headers.
 */
const retired = {
  write(_chunk: Chunk, ...rest: unknown[]) {
    return ignored(trailing(rest).callback, "write");
  },
  end(this: CapturedResponse, ...args: unknown[]) {
    ignored(trailing(args).callback, "end");
    return this;
  },
  writeHead(this: CapturedResponse, ...args: unknown[]) {
    return this[capture].ifStillPossible("writeHead", args);
  },
  flushHeaders(this: CapturedResponse) {},
  setHeader(this: CapturedResponse, ...args: unknown[]) {
    return this[capture].ifStillPossible("setHeader", args);
  },
  appendHeader(this: CapturedResponse, ...args: unknown[]) {
    return this[capture].ifStillPossible("appendHeader", args);
  },
  removeHeader(this: CapturedResponse, ...args: unknown[]) {
    return this[capture].ifStillPossible("removeHeader", args);
  },
};

const noBytes = new Uint8Array();

const overridable = ["headersSent", "writableEnded", "writableNeedDrain"] as const;

function override(res: ServerResponse, name: (typeof overridable)[number], value: boolean): void {
  Object.defineProperty(res, name, { value, configurable: true });
}

/** Whether Node has made the head into bytes, whatever the handler is told. */
function isHeadSent(res: ServerResponse): boolean {
  return Reflect.get(Object.getPrototypeOf(res), "headersSent", res) as boolean;
}

/** What streams look at to learn whether a response is still there. Those of HTTP/2 keep it elsewhere. */
function markClosed(res: ServerResponse, closed: boolean): void {
  for (const name of ["destroyed", "_closed"]) {
    if (Object.hasOwn(res, name)) Object.assign(res, { [name]: closed });
  }
}

interface Trailing {
  readonly encoding: BufferEncoding;
  readonly callback: Callback | undefined;
}

function trailing(args: unknown[]): Trailing {
  const encoding = typeof args[0] === "string" ? (args[0] as BufferEncoding) : "utf8";
  return { encoding, callback: args.find((arg): arg is Callback => typeof arg === "function") };
}

/** Says yes, and so does `write`: there is room for more. */
function confirmed(callback: Callback | undefined): true {
  if (callback !== undefined) process.nextTick(callback);
  return true;
}

/** True as well, so that what is piped here runs dry instead of waiting for a drain. */
function ignored(callback: Callback | undefined, what: string): true {
  if (callback !== undefined) process.nextTick(callback, new Error(`${what} after the answer was complete`));
  return true;
}

/** A caller may reuse its buffer once `write` has returned, so the bytes are copied. */
function toBytes(chunk: Chunk, encoding: BufferEncoding): Uint8Array {
  return typeof chunk === "string" ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
}

function joined(chunks: readonly Uint8Array[]): Uint8Array {
  return chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks);
}
