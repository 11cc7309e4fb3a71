import type { IncomingMessage, ServerResponse } from "node:http";
import type { Dispatcher } from "undici";
import type { AnswerContext } from "../../http/answer.ts";
import { textIfAscii } from "../../http/ascii.ts";
import { writeNodeAnswer } from "../../http/node-response.ts";
import { answerHead, trailersOf } from "./answer-head.ts";
import type { Connector } from "./connector.ts";
import { upstreamFailure } from "./failures.ts";
import { ownVia } from "./forwarded.ts";

export interface PassingOptions {
  readonly context: AnswerContext;
  readonly connector: Connector;
  /** Sends the request once more; left out where that could do something twice. */
  readonly again?: (() => void) | undefined;
  readonly done: () => void;
}

/** One unprotected request on its way: bytes flow both ways as they come, each side at the other's pace. */
export class Passing implements Dispatcher.DispatchHandler {
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #context: AnswerContext;
  readonly #connector: Connector;
  #again: (() => void) | undefined;
  #done: () => void;
  #abort: ((error?: Error) => void) | undefined;
  #isSent = false;
  #isClientGone = false;
  /** Whether the answer has been begun, and whether all of it is there. */
  #isBegun = false;
  #isComplete = false;
  #endsByClose = false;
  #isFlowing = false;
  #resume: (() => void) | undefined;
  /** The first piece of the body: if it is the only one, it goes out together with the head. */
  #first: Buffer | undefined;

  constructor(req: IncomingMessage, res: ServerResponse, options: PassingOptions) {
    this.#req = req;
    this.#res = res;
    this.#context = options.context;
    this.#connector = options.connector;
    this.#again = options.again;
    this.#done = options.done;
    res.on("close", () => this.#closed());
  }

  onConnect(abort: (error?: Error) => void): void {
    // It waited for a connection, and nobody waits for it any more. What was sent once is not sent again either.
    if (this.#isClientGone || this.#isSent) {
      abort();
      return;
    }
    this.#isSent = true;
    this.#abort = abort;
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void): boolean {
    const res = this.#res;
    if (status < 200) {
      this.#passHint(status, raw);
      return true;
    }
    const { headers, endsBy } = answerHead(status, raw);
    this.#endsByClose = endsBy === "close";
    // What is left of a body that upstream did not wait for would be read as the next request.
    if (!this.#req.complete) res.shouldKeepAlive = false;
    // A stored answer is given again without it, so only answers that are not stored say which way they came.
    headers.push("via", ownVia);
    res.writeHead(status, headers);
    this.#isBegun = true;
    this.#resume = resume;
    process.nextTick(flow, this);
    return true;
  }

  onData(chunk: Buffer): boolean {
    if (!this.#isFlowing && this.#first === undefined) {
      this.#first = chunk;
      return true;
    }
    this.flow();
    return this.#write(chunk);
  }

  onComplete(rawTrailers: string[] | null): void {
    if (this.#endsByClose && this.#connector.isBreaking) {
      this.onError(new Error("the connection was reset before it was ended"));
      return;
    }
    const res = this.#res;
    this.#isComplete = true;
    const trailers = trailersOf(rawTrailers);
    if (trailers.length > 0) res.addTrailers(trailers);
    if (this.#isFlowing || this.#first === undefined) res.end();
    else res.end(textIfAscii(this.#first));
  }

  onError(error: Error): void {
    if (this.#isClientGone) return;
    if (this.#isBegun) {
      this.#isComplete = true;
      // An orderly end would be taken for the end of the answer where nothing else tells it.
      breakOff(this.#res);
      return;
    }
    const again = this.#again;
    if (again !== undefined && wasLetGo(error)) {
      this.#again = undefined;
      this.#isSent = false;
      again();
      return;
    }
    this.#isComplete = true;
    if (!this.#req.complete) this.#res.shouldKeepAlive = false;
    const { answer } = upstreamFailure(error, { isSent: this.#isSent });
    writeNodeAnswer(this.#res, answer(this.#context));
  }

  /** What came in one piece is sent in one. What did not is sent as it comes: somebody may be waiting for the head. */
  flow(): void {
    if (this.#isFlowing || this.#isComplete || this.#isClientGone) return;
    this.#isFlowing = true;
    const first = this.#first;
    this.#first = undefined;
    if (first === undefined) this.#res.flushHeaders();
    else this.#res.write(first);
  }

  #write(chunk: Buffer): boolean {
    if (this.#res.write(chunk)) return true;
    const resume = this.#resume;
    if (resume !== undefined) this.#res.once("drain", resume);
    return false;
  }

  /** 103 tells a browser what to load meanwhile. Anything else below 200 is between us and upstream. */
  #passHint(status: number, raw: Buffer[]): void {
    if (status === 101) answerHead(status, raw);
    if (status !== 103 || this.#req.httpVersion !== "1.1") return;
    const link: string[] = [];
    for (let index = 0; index < raw.length; index += 2) {
      if (raw[index]?.toString("latin1").toLowerCase() === "link")
        link.push(raw[index + 1]?.toString("latin1") ?? "");
    }
    if (link.length > 0) this.#res.writeEarlyHints({ link });
  }

  /** There is nothing more to pass: the connection is somebody else's by now. */
  leave(): void {
    this.#isComplete = true;
    this.#closed();
  }

  #closed(): void {
    if (!this.#isComplete) {
      this.#isClientGone = true;
      this.#abort?.();
    }
    this.#done();
    this.#done = ignore;
  }
}

const ignore = () => {};

/** Upstream ended a connection that it had kept, at the moment in which a request was sent on it. */
function wasLetGo(error: Error & { readonly code?: string }): boolean {
  return error.code === "UND_ERR_SOCKET" || error.code === "ECONNRESET" || error.code === "EPIPE";
}

function flow(passing: Passing): void {
  passing.flow();
}

/** Resets the connection, so that nobody takes half an answer for a whole one. */
export function breakOff(res: ServerResponse): void {
  const { socket } = res;
  if (socket === null) res.destroy();
  else socket.resetAndDestroy();
}
