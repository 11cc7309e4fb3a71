import { type OutgoingHttpHeader, type OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { notProcessedStatuses } from "../core/response.ts";
import { isPromiseLike } from "../core/when-known.ts";
import { type HttpAnswer, headersByName } from "./answer.ts";
import { textIfAscii } from "./ascii.ts";
import type { Exchange, Finish } from "./exchange.ts";
import { lastingSocket } from "./lasting-socket.ts";
import { type Chunk, isUtf8, joined, toBytes } from "./node-chunks.ts";
import { assertHead, restoreHeaders, setHeaders, wholeHead } from "./node-head.ts";
import { type Below, type HeaderMethod, type Holder, hold, letGo } from "./node-hold.ts";
import { FinishListeners } from "./on-finished.ts";
import { isPlainResponse, peek, poke } from "./peek.ts";
import { type Callback, callbackIn, ignored } from "./spent-holder.ts";

/** Sends an answer that Latchkey gives itself. */
export function writeNodeAnswer(res: ServerResponse, answer: HttpAnswer): void {
  // Somebody else, such as a middleware that limits the time, may have answered meanwhile.
  if (res.headersSent) return;
  res.statusCode = answer.status;
  // They replace what outer middleware has set: a stored answer already holds what it set the first time.
  for (const [name, value] of headersByName(answer.headers)) res.setHeader(name, value);
  res.end(textIfAscii(answer.body));
}

/**
 * Holds back everything that the handler writes until it is stored, and then sends it as if it had just been written.
 * It works below every framework, so that whatever made the answer (a handler, an error page, a stream) is captured
 * as the bytes that it is.
 *
 * Until the answer is complete, the handler and its framework see a response that is open: its client never goes away,
 * and its head is not sent, so that an error page can still take the place of an answer that was only begun. The first
 * complete answer counts. Whatever is done to the response after that is ignored.
 *
 * Gives the key back, and answers undefined, if somebody else has answered while it was reserved: then there is nobody
 * to execute for, and nothing that a handler writes could be sent.
 */
export function captureNodeResponse(
  res: ServerResponse,
  exchange: Exchange,
  isOutsider = () => !exchange.isInside,
): NodeCapture | undefined {
  if (!peek(res, "headersSent")) return new NodeCapture(res, exchange, isOutsider);
  void exchange.abandon("the request was answered by somebody else before it was executed");
  return undefined;
}

/**
 * `open`: the handler is making its answer. `complete`: it is there, and waits for the store. `sending`: it goes out.
 * `spent`: it is gone, and nothing can be added to it.
 */
type State = "open" | "complete" | "sending" | "spent";

/** What `end` was given, and what the response said then. */
interface Ending {
  readonly last: Uint8Array;
  readonly callback: Callback | undefined;
  readonly statusCode: number;
  readonly statusMessage: string;
}

export class NodeCapture implements Holder {
  readonly #res: ServerResponse;
  /** Whether it is read the usual way; see `peek`. */
  readonly #isPlain: boolean;
  readonly #exchange: Exchange;
  /** What stood in the way before us, such as a compressing middleware: the answer goes out through it. */
  readonly #below: Below;
  readonly #headersBefore: OutgoingHttpHeaders;
  /** What `writeHead` is as long as nobody has wrapped it to have a say in the head. */
  readonly #ownWriteHead: ServerResponse["writeHead"];
  readonly #finishListeners: FinishListeners;
  /** Whether whoever answers right now is not the handler, while that is still at work. */
  readonly #isOutsider: () => boolean;
  #state: State = "open";
  #socket: Socket | undefined;
  readonly #chunks: Uint8Array[] = [];
  /** The whole answer, if the handler gave it as one text. */
  #text: string | undefined;
  #bytes = 0;
  /** The status with which the answer was begun. */
  #begunStatus: number | undefined;
  /** What was given to `writeHead` and is not set yet: mostly the end follows, and it can be sent as it was given. */
  #head: Record<string, string> | undefined;
  /** A streaming answer is on its way to the client. */
  #flowing = false;
  /** What flows was given up, and something else is being answered that can no longer be sent. */
  #brokenOff = false;
  #unconfirmedWrites: Set<() => void> | undefined;
  #clientGone = false;
  #isMarkedEnded = false;
  wrappedBelow: ReadonlySet<string> | undefined;

  constructor(res: ServerResponse, exchange: Exchange, isOutsider: () => boolean) {
    this.#res = res;
    this.#exchange = exchange;
    this.#isOutsider = isOutsider;
    this.#isPlain = isPlainResponse(res);
    // Asking twice takes a framework's response microseconds; for one of Node's own it is cheaper than an empty object.
    const hasNone = this.#isPlain && res.getHeaderNames().length === 0;
    this.#headersBefore = hasNone ? noHeaders : res.getHeaders();
    this.#finishListeners = new FinishListeners(res);
    this.#below = hold(res, this);
    this.#ownWriteHead = peek(res, "writeHead");
    this.#shieldSocket();
    exchange.onAnswered((answer, { isHandlerStuck }) => {
      // The handler may still be at work, and break the connection when it fails.
      if (isHandlerStuck) res.shouldKeepAlive = false;
      this.replace(answer);
    });
  }

  get leavesHeaders(): boolean {
    return this.#state === "open" && !this.#flowing && this.#head === undefined;
  }

  get finishListeners(): FinishListeners | undefined {
    return this.#state === "open" || this.#state === "complete" ? this.#finishListeners : undefined;
  }

  /** Whether the answer is complete, whoever gave it. */
  get ended(): boolean {
    return this.#state !== "open";
  }

  /** Sends something else than what the handler makes; what it still writes is dropped. */
  replace(answer: HttpAnswer): void {
    this.#release(() => this.#sendInstead(answer));
  }

  write(res: ServerResponse, chunk: Chunk, rest: unknown[]): boolean {
    if (this.#state === "sending") return this.#below.write.apply(res, [chunk, ...rest] as never);
    const callback = callbackIn(rest);
    if (this.#state !== "open") return ignored(callback, "write");
    const bytes = toBytes(chunk, rest[0]);
    this.#setHead();
    this.#begin();
    const writable = this.#exchange.streaming ? this.#pass(bytes, callback) : confirmed(callback);
    this.#keep(bytes);
    return writable;
  }

  end(res: ServerResponse, args: unknown[]): void {
    if (this.#state === "sending") {
      this.#below.end.apply(res, args as never);
      return;
    }
    const callback = callbackIn(args);
    if (this.#state !== "open") {
      this.#exchange.end.ended();
      ignored(callback, "end");
      return;
    }
    const chunk = typeof args[0] === "function" ? undefined : (args[0] as Chunk | null | undefined);
    this.#begin();
    if (typeof chunk === "string" && isUtf8(args[1]) && this.#bytes === 0) this.#text = chunk;
    const last = chunk === undefined || chunk === null ? noBytes : toBytes(chunk, args[1]);
    this.#keep(last);
    const ending = { last, callback, statusCode: this.#statusCode, statusMessage: this.#statusMessage };
    this.#state = "complete";
    let finish: Finish | Promise<Finish>;
    try {
      finish = this.#settle();
    } catch (error) {
      this.#breakOff(error);
      return;
    }
    if (!isPromiseLike(finish)) {
      this.#finish(finish, ending);
      return;
    }
    this.#complete();
    finish.then(
      (known) => this.#finish(known, ending),
      (error) => this.#breakOff(error),
    );
  }

  #finish(finish: Finish, { last, callback, statusCode, statusMessage }: Ending): void {
    this.#release(() => {
      if (finish.kind === "replace") {
        this.#sendInstead(finish.answer);
        return;
      }
      if (this.#flowing) {
        this.#sendEnd(last, callback);
        return;
      }
      // Writing is dear, and HTTP/2 has no status message and complains when one is set.
      if (this.#statusCode !== statusCode) poke(this.#res, "statusCode", statusCode);
      if (this.#statusMessage !== statusMessage) poke(this.#res, "statusMessage", statusMessage);
      this.#send(finish, callback);
    });
  }

  #breakOff(error: unknown): void {
    this.#release(() => this.#res.destroy(error as Error));
  }

  #settle(): Finish | Promise<Finish> {
    const status = this.#statusCode;
    // A middleware that limits the time, for instance. That it gave up says nothing about what the handler has done.
    if (freesTheKey(status) && this.#isOutsider()) return this.#exchange.interrupt(status);
    this.#exchange.end.ended();
    if (this.#bytes > this.#exchange.responseBytesMax) {
      return this.#exchange.finishOmitted(status, this.#bytes);
    }
    const body = joined(this.#chunks);
    return this.#head === undefined
      ? this.#exchange.finishNode(this.#res, status, body)
      : this.#exchange.finishHead(this.#head, status, body);
  }

  get #statusCode(): number {
    return this.#isPlain ? this.#res.statusCode : peek(this.#res, "statusCode");
  }

  get #statusMessage(): string {
    return this.#isPlain ? this.#res.statusMessage : peek(this.#res, "statusMessage");
  }

  /** Lets middleware that wraps `writeHead` have its say, as it has when Node writes the head by itself. */
  #begin(): void {
    const res = this.#res;
    if (this.#begunStatus === undefined) {
      const status = this.#statusCode;
      if ((this.#isPlain ? res.writeHead : peek(res, "writeHead")) === this.#ownWriteHead) {
        assertHead(status, this.#statusMessage);
        this.#begunStatus = status;
        return;
      }
      res.writeHead(status);
    }
    this.#startOverIfChanged();
  }

  writeHead(res: ServerResponse, args: unknown[]): void {
    if (this.#state !== "open" || this.#flowing) {
      // Node itself asks for the head when it sends the first bytes; anybody else comes too late.
      if (this.#state !== "complete" || this.#flowing) this.#writeHeadIfPossible(args);
      return;
    }
    const status = args[0] as number;
    const reason = typeof args[1] === "string" ? args[1] : undefined;
    const headers = reason === undefined ? (args[2] ?? args[1]) : args[2];
    assertHead(status, reason ?? res.statusMessage);
    if (reason !== undefined) res.statusMessage = reason;
    this.#setHead();
    const given = headers as OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined;
    const isFirst = this.#begunStatus === undefined && this.#isDirectlyOnNode;
    this.#head = isFirst ? wholeHead(res, given) : undefined;
    if (this.#head === undefined) setHeaders(res, given);
    res.statusCode = status;
    this.#begunStatus ??= status;
    this.#startOverIfChanged();
  }

  /** Whether nobody else has a say in what is sent, neither a framework nor a middleware outside. */
  get #isDirectlyOnNode(): boolean {
    const { writeHead, end } = ServerResponse.prototype;
    return this.#below.writeHead === writeHead && this.#below.end === end;
  }

  #setHead(): void {
    const head = this.#head;
    this.#head = undefined;
    if (head !== undefined) setHeaders(this.#res, head);
  }

  /** What is given another status after it was begun is another answer: in all likelihood, an error page. */
  #startOverIfChanged(): void {
    const statusCode = this.#statusCode;
    if (this.#begunStatus === statusCode) return;
    assertHead(statusCode, this.#res.statusMessage);
    this.#begunStatus = statusCode;
    this.#brokenOff = this.#flowing;
    this.#chunks.length = 0;
    this.#bytes = 0;
  }

  flushHeaders(res: ServerResponse): void {
    if (this.#state === "sending") this.#below.flushHeaders.call(res);
    if (this.#state !== "open") return;
    this.#setHead();
    this.#begin();
    if (!this.#exchange.streaming || this.#clientGone || this.#brokenOff) return;
    this.#flow();
    this.#below.flushHeaders.call(res);
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
  }

  #keep(bytes: Uint8Array): void {
    this.#bytes += bytes.byteLength;
    // Nobody needs bytes that have been sent and will not be stored.
    if (this.#flowing && this.#bytes > this.#exchange.responseBytesMax) this.#chunks.length = 0;
    else this.#chunks.push(bytes);
  }

  /** Nobody but those who look while the store is asked can tell that the answer is not sent yet. */
  #complete(): void {
    this.#state = "complete";
    this.#isMarkedEnded = true;
    markEnded(this.#res, true);
  }

  emit(res: ServerResponse, event: string, args: unknown[]): boolean {
    if (event === "close" && (this.#state === "open" || this.#state === "complete")) {
      this.#outliveTheClient();
      return false;
    }
    if (event === "socket") this.#shieldSocket();
    const isHeard = this.#below.emit.call(res, event, ...args);
    if (event === "close") this.#exchange.end.closed();
    return isHeard;
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
    const socket = peek(this.#res, "socket");
    // A response that waits behind another one gets its socket later, and one of HTTP/2 has none of its own.
    if (socket === null || !(this.#res instanceof ServerResponse)) return;
    this.#socket = socket;
    replaceSocket(this.#res, lastingSocket(socket));
  }

  /** The handler, or its framework on its behalf, gives up. */
  destroy(res: ServerResponse, error: Error | undefined): void {
    if (this.#state === "sending" || this.#state === "spent") {
      this.#below.destroy.call(res, error);
      return;
    }
    if (this.#state === "complete") return;
    this.#complete();
    const cause = error ?? new Error("the response was destroyed before it was complete");
    const breakOff = () => this.#release(() => res.destroy(error));
    this.#exchange.fail(cause).then(breakOff, breakOff);
  }

  /** Makes the response itself again, sends the answer, and leaves a response to which nobody can do any harm. */
  #release(sendIt: () => void): void {
    if (this.#state === "sending" || this.#state === "spent") return;
    const res = this.#res;
    if (this.#isMarkedEnded) markEnded(res, false);
    this.#state = "sending";
    if (this.#socket !== undefined) replaceSocket(res, this.#socket);
    if (this.#flowing) {
      for (const name of ["headersSent", "writableNeedDrain"]) Reflect.deleteProperty(res, name);
    }
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
    this.#state = "spent";
    this.#chunks.length = 0;
    this.#text = undefined;
    letGo(res, this);
  }

  #send(finish: Extract<Finish, { kind: "send" }>, callback: Callback | undefined): void {
    const res = this.#res;
    if (this.isHeadSent) return;
    this.#sendHead(finish);
    // A text goes out in one piece with the head, bytes do not.
    const body = this.#text !== undefined && this.#chunks.length === 1 ? this.#text : joined(this.#chunks);
    this.#below.end.call(res, body, "utf8", callback);
  }

  #sendHead(finish: Extract<Finish, { kind: "send" }>): void {
    const res = this.#res;
    const head = this.#head;
    if (head !== undefined && Number(head["content-length"]) === this.#bytes) {
      for (const [name, value] of finish.headers) head[name.toLowerCase()] = value;
      this.#below.writeHead.call(res, res.statusCode, head);
      return;
    }
    this.#setHead();
    const { setHeader } = this.#below;
    for (const [name, value] of finish.headers) setHeader.call(res, name, value);
    // A wrong one, such as that of an answer which an error page has replaced, would break the connection.
    const length = res.getHeader("content-length");
    if (length !== undefined && Number(length) !== this.#bytes) res.removeHeader("content-length");
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
    if (this.isHeadSent) return;
    this.#head = undefined;
    restoreHeaders(res, this.#headersBefore);
    if (res.statusMessage !== "") res.statusMessage = "";
    writeNodeAnswer(res, answer);
  }

  /** Whether Node has made the head into bytes, whatever the handler is told. */
  get isHeadSent(): boolean {
    if (!this.#flowing) return this.#isPlain ? this.#res.headersSent : peek(this.#res, "headersSent");
    return Reflect.get(Object.getPrototypeOf(this.#res), "headersSent", this.#res) as boolean;
  }

  /** Once the answer is complete or its head is sent, error pages still set headers, and must not fail by it. */
  setHeader(res: ServerResponse, method: HeaderMethod, name: unknown, value: unknown): void {
    if (this.#state === "complete") return;
    if (this.#state === "open") this.#setHead();
    if (!this.leavesHeaders && this.isHeadSent) return;
    (this.#below[method] as (name: unknown, value: unknown) => unknown).call(res, name, value);
  }

  /** Does to the response what it did before us, unless its head is sent and it would throw. */
  #writeHeadIfPossible(args: unknown[]): void {
    if (!this.isHeadSent) this.#below.writeHead.apply(this.#res, args as never);
  }
}

const noBytes = new Uint8Array();
const noHeaders: OutgoingHttpHeaders = {};

/** Whether a handler that answers this may be executed again: it failed, or by its own word did nothing. */
function freesTheKey(status: number): boolean {
  return status >= 500 || notProcessedStatuses.has(status);
}

function override(res: ServerResponse, name: string, value: boolean): void {
  Object.defineProperty(res, name, { value, configurable: true });
}

/** Whether `writableEnded` says that the answer is complete. It follows a field of HTTP/1 responses, but not of HTTP/2. */
function markEnded(res: ServerResponse, ended: boolean): void {
  if (Object.hasOwn(res, "finished")) poke(res as { finished: boolean }, "finished", ended);
  else if (ended) override(res, "writableEnded", true);
  else Reflect.deleteProperty(res, "writableEnded");
}

/** What streams look at to learn whether a response is still there. Those of HTTP/2 keep it elsewhere. */
function markClosed(res: ServerResponse, closed: boolean): void {
  for (const name of ["destroyed", "_closed"]) {
    if (Object.hasOwn(res, name)) Object.assign(res, { [name]: closed });
  }
}

function replaceSocket(res: ServerResponse, socket: Socket): void {
  poke(res as { socket: Socket }, "socket", socket);
}

/** Says yes, and so does `write`: there is room for more. */
function confirmed(callback: Callback | undefined): true {
  if (callback !== undefined) process.nextTick(callback);
  return true;
}
