import type { ServerResponse } from "node:http";
import type { Dispatcher } from "undici";
import type { Exchange } from "../../http/exchange.ts";
import type { NodeCapture } from "../../http/node-response.ts";
import { AmbiguousAnswerError, answerHead } from "./answer-head.ts";
import { upstreamFailure } from "./failures.ts";

/**
 * One protected request at upstream. It is sent at most once, and its answer is written to a captured response, which
 * stores it before the client gets it. Whether the client is still there makes no difference.
 */
export class Executing implements Dispatcher.DispatchHandler {
  readonly #res: ServerResponse;
  readonly #exchange: Exchange;
  readonly #capture: NodeCapture;
  readonly #held: { release(): void };
  #isSent = false;
  #isOver = false;
  #abort: ((error?: Error) => void) | undefined;
  #resume: (() => void) | undefined;

  constructor(res: ServerResponse, exchange: Exchange, capture: NodeCapture, held: { release(): void }) {
    this.#held = held;
    this.#res = res;
    this.#exchange = exchange;
    this.#capture = capture;
    // Heard only when the client was given another answer, because the time was up: nobody reads upstream's any more.
    res.on("close", () => {
      if (!this.#isOver) this.#abort?.();
    });
  }

  /**
   * Called right before the first byte is written, in the same turn: until then nothing can have been sent, and from
   * then on something may have been, whatever becomes of the connection.
   */
  onConnect(abort: (error?: Error) => void): void {
    if (this.#isSent) {
      abort(new Error("it was to be sent a second time"));
      return;
    }
    // It may have waited for a connection for so long that its time is up, and somebody else has executed it since.
    this.#exchange.assertHeld();
    this.#isSent = true;
    this.#abort = abort;
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void): boolean {
    this.#resume = resume;
    // Nothing that precedes the answer is stored, so no retry would get it.
    const { headers, endsBy } = answerHead(status, raw);
    if (status < 200) return true;
    if (endsBy === "close" && mayHaveBody(status)) {
      // A process that is killed in the middle of its answer ends the connection in just the same way.
      throw new AmbiguousAnswerError(
        "it has neither a Content-Length nor chunks, so that half of it would look like the whole",
      );
    }
    this.#res.writeHead(status, headers);
    return true;
  }

  onData(chunk: Buffer): boolean {
    if (this.#res.write(chunk)) return true;
    const resume = this.#resume;
    if (resume !== undefined) this.#res.once("drain", resume);
    return false;
  }

  onComplete(): void {
    this.#over();
    this.#res.end();
  }

  onError(error: Error): void {
    this.#over();
    const { outcome, reason, answer } = upstreamFailure(error, { isSent: this.#isSent });
    this.#exchange.unanswered(outcome, reason, answer).then(
      (instead) => this.#capture.replace(instead),
      () => this.#res.destroy(),
    );
  }

  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#held.release();
  }
}

function mayHaveBody(status: number): boolean {
  return status !== 204 && status !== 304;
}
