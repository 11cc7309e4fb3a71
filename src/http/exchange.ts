import type { ServerResponse } from "node:http";
import type { CapturedResponse, HeaderPair, StoredResponse } from "../core/response.ts";
import { allowedOf, areSameHeaders, copiedHeaders } from "../core/response.ts";
import { isPromiseLike } from "../core/when-known.ts";
import type { Events } from "../engine/events.ts";
import type { Execution } from "../engine/execution.ts";
import type { Outcome, Settled } from "../engine/outcome.ts";
import { isOperationOf, operationIsOver, runOperation } from "../operation/operation.ts";
import {
  type AnswerContext,
  firstAnswerHeaders,
  type HttpAnswer,
  problemAnswer,
  replayAnswer,
} from "./answer.ts";
import { type AnswersBy, HandlerEnd } from "./handler-end.ts";

/** What the adapter does once the outcome is settled: send what the handler made, or something else instead. */
export type Finish =
  | { readonly kind: "send"; readonly headers: readonly HeaderPair[] }
  | { readonly kind: "replace"; readonly answer: HttpAnswer };

/** Answers the client before the handler has; a handler that is stuck may still be at work. */
type Give = (answer: HttpAnswer, options: { readonly isHandlerStuck: boolean }) => void;

/** What is answered in place of a handler that threw. */
export interface Failure {
  readonly answer: HttpAnswer;
  /** The retries will get it, or it says more than any error page could: then it has to be what the client gets. */
  readonly binding: boolean;
}

export interface ExchangeRules {
  readonly allowedHeaders: ReadonlySet<string>;
  /** Those of the last answer that was stored. */
  lastHeaders: readonly HeaderPair[];
  readonly responseBytesMax: number;
  readonly streaming: boolean;
}

/** One execution over HTTP: from the moment the handler may run until its answer is durable and may be sent. */
export class Exchange {
  readonly #execution: Execution;
  readonly #context: AnswerContext;
  readonly #rules: ExchangeRules;
  readonly #events: Events;
  #give: Give | undefined;
  /** The handler's answer is what it returns: when there is one, it has returned. */
  #returnsAnswer = false;
  /** Of a handler that answers through an object. */
  readonly end = new HandlerEnd(() => operationIsOver(this.#execution));

  constructor(options: {
    readonly execution: Execution;
    readonly context: AnswerContext;
    readonly rules: ExchangeRules;
    /** Told when a handler threw and no framework answered for it. */
    readonly events: Events;
  }) {
    this.#execution = options.execution;
    this.#execution.isOfCrowd = true;
    this.#context = options.context;
    this.#rules = options.rules;
    this.#events = options.events;
  }

  /** Whether the bytes may flow before they are stored. */
  get streaming(): boolean {
    return this.#rules.streaming;
  }

  /** How much of a body is worth keeping; what is larger is only counted. */
  get responseBytesMax(): number {
    return this.#rules.responseBytesMax;
  }

  /** The headers of a Node response that are stored, with repeated ones apart. */
  #kept(res: Pick<ServerResponse, "getHeaderNames" | "getHeader">): HeaderPair[] {
    const pairs: HeaderPair[] = [];
    for (const name of res.getHeaderNames()) {
      if (!this.#rules.allowedHeaders.has(name)) continue;
      const value = res.getHeader(name);
      if (Array.isArray(value)) for (const one of value) pairs.push([name, one]);
      else if (value !== undefined) pairs.push([name, String(value)]);
    }
    return pairs;
  }

  /** What a streaming answer can say before its end; when it expires is known only then. */
  get streamHeaders(): readonly HeaderPair[] {
    return firstAnswerHeaders(this.#context, undefined);
  }

  /** Runs the handler so that `currentOperation()` finds its operation. */
  run<T>(handler: () => T): T {
    return runOperation(this.#execution, handler);
  }

  /** The same for a handler that returns its answer: when that has been read, or it has failed, there is no more to come. */
  runReturning<T>(handler: () => T): T {
    this.#returnsAnswer = true;
    return this.run(handler);
  }

  /** The same for a handler that is called through `end.watch`, if it is called at all. */
  runWatched<T>(handler: () => T, answersBy: AnswersBy): T {
    this.end.expect(answersBy);
    return this.run(handler);
  }

  /**
   * Called once if the client is to be answered before the handler has done so: it takes too long, or it committed its
   * answer with its last business write. What it says later is ignored.
   */
  onAnswered(give: Give): void {
    this.#give = give;
    this.#execution.onGivenUp = (settled) => this.#giveUp(settled);
  }

  #giveUp(settled: Settled): void {
    if (settled.kind === "stored") {
      this.#give?.(this.#storedAnswer(settled), { isHandlerStuck: false });
      return;
    }
    const finish = this.#finishFor(settled);
    if (finish.kind === "replace") this.#give?.(finish.answer, { isHandlerStuck: true });
  }

  /** The handler has answered: store it, and say what may be sent. */
  finish(captured: CapturedResponse): Finish | Promise<Finish> {
    const { status, body } = captured;
    if (body.byteLength > this.#rules.responseBytesMax) return this.finishOmitted(status, body.byteLength);
    return this.#finishFull(status, allowedOf(captured.headers, this.#rules.allowedHeaders), body);
  }

  /** The handler has answered through a Node response. */
  finishNode(
    res: Pick<ServerResponse, "getHeaderNames" | "getHeader">,
    status: number,
    body: Uint8Array,
  ): Finish | Promise<Finish> {
    return this.#finishFull(status, this.#kept(res), body);
  }

  /** The handler has answered with a head whose names are in lower case, and a body that is not too large. */
  finishHead(
    head: Readonly<Record<string, string>>,
    status: number,
    body: Uint8Array,
  ): Finish | Promise<Finish> {
    const headers: HeaderPair[] = [];
    for (const name in head) {
      if (this.#rules.allowedHeaders.has(name)) headers.push([name, head[name] as string]);
    }
    return this.#finishFull(status, headers, body);
  }

  /**
   * Most answers of a route have the same headers, and those share one list of them: each that is kept would otherwise keep
   * its own. It is a copy, since those who made the headers may go on to change them.
   */
  #finishFull(status: number, headers: readonly HeaderPair[], body: Uint8Array): Finish | Promise<Finish> {
    const rules = this.#rules;
    if (!areSameHeaders(headers, rules.lastHeaders)) rules.lastHeaders = copiedHeaders(headers);
    return this.#settled({ kind: "full", status, headers: rules.lastHeaders, body });
  }

  /** The handler has answered with more than is kept. */
  finishOmitted(status: number, bodyBytes: number): Finish | Promise<Finish> {
    return this.#settled({ kind: "omitted", status, bodyBytes });
  }

  /** The handler has answered with more than can be held until it is stored: its client gets what retries will get. */
  async withhold(status: number, bodyBytes: number): Promise<HttpAnswer> {
    const response: StoredResponse = { kind: "omitted", status, bodyBytes };
    const settled = await this.#execution.settle({ kind: "answered", response });
    if (settled.kind === "stored") return this.#storedAnswer(settled);
    const finish = this.#finishFor(settled, response);
    if (finish.kind === "replace") return finish.answer;
    return problemAnswer(this.#context, "handler-failed", {
      detail: `The service answered ${status}, with more than can be passed on. Send it again with the same key.`,
    });
  }

  /** The handler threw where nobody else answers for it: its client gets a 500 problem. */
  async fail(error: unknown): Promise<Failure> {
    this.end.ended();
    this.failedLate(error);
    const answer = problemAnswer(this.#context, "handler-failed", {
      detail: "The request failed inside the service. Send it again with the same key.",
    });
    const response: StoredResponse = { kind: "full", ...answer };
    const settled = await this.#settle({ kind: "threw", error, response });
    const finish = this.#finishFor(settled, response);
    if (finish.kind === "replace") return { answer: finish.answer, binding: true };
    return {
      answer: { ...answer, headers: [...answer.headers, ...finish.headers] },
      binding: settled.kind === "stored",
    };
  }

  /** Whether whoever asks was called by the handler, directly or in the end. */
  get isInside(): boolean {
    return isOperationOf(this.#execution);
  }

  /** Somebody outside answered with an error while the handler was at work: nobody may begin again because of it. */
  async interrupt(status: number): Promise<Finish> {
    const settled = await this.#execution.interrupt(
      `somebody else answered ${status} while the handler was at work`,
    );
    return settled.kind === "timedOut"
      ? { kind: "send", headers: this.streamHeaders }
      : this.#finishFor(settled);
  }

  /** Throws once somebody else may execute the request: what has not been begun by then must not be. */
  assertHeld(): void {
    this.#execution.assertHeld();
  }

  /** The handler is not going to run. */
  async abandon(reason: string): Promise<void> {
    await this.#execution.abandon(reason);
  }

  /**
   * Whoever was to execute the request gave no answer. It is released if it is certain that nothing began, and else
   * suspended, for reconciliation to find out; the answer is `problem`, unless somebody else has the last word.
   */
  async unanswered(
    outcome: "release" | "suspend",
    reason: string,
    problem: (context: AnswerContext) => HttpAnswer,
  ): Promise<HttpAnswer> {
    const execution = this.#execution;
    const settled = await (outcome === "release" ? execution.abandon(reason) : execution.suspend(reason));
    const hasLastWord = settled.kind === "lost" || settled.kind === "timedOut";
    const finish = hasLastWord ? this.#finishFor(settled) : undefined;
    return finish?.kind === "replace" ? finish.answer : problem(this.#context);
  }

  /** The handler threw although it has answered. The answer counts, but the error must not vanish. */
  failedLate(error: unknown): void {
    const { scope, key } = this.#execution.lease;
    this.#events.emit({ type: "handler_failed", scope, key, error });
  }

  #settle(outcome: Outcome): Settled | Promise<Settled> {
    try {
      return this.#execution.settle(outcome);
    } finally {
      // Not earlier: what the policy makes of an outcome may ask whose it is.
      if (this.#returnsAnswer) operationIsOver(this.#execution);
    }
  }

  #settled(response: StoredResponse): Finish | Promise<Finish> {
    const settling = this.#settle({ kind: "answered", response });
    // Nobody is told any more. Kept here, it would keep the whole request alive for as long as the garbage collector
    // takes this, or the execution, for something that lasts; that was measured to cost a tenth of a request.
    this.#give = undefined;
    return isPromiseLike(settling)
      ? settling.then((settled) => this.#finishFor(settled, response))
      : this.#finishFor(settling, response);
  }

  /** The answer that the retries will get, as the first client gets it. */
  #storedAnswer(settled: Extract<Settled, { kind: "stored" }>): HttpAnswer {
    const { response, expiresAt } = settled;
    const added = firstAnswerHeaders(this.#context, expiresAt);
    if (response.kind === "full") return { ...response, headers: [...response.headers, ...added] };
    return replayAnswer(this.#context, response, expiresAt);
  }

  /** `made` is what the handler made; what was stored may be something else. */
  #finishFor(settled: Settled, made?: StoredResponse): Finish {
    switch (settled.kind) {
      case "stored":
        if (made !== undefined && settled.response !== made) {
          return { kind: "replace", answer: this.#storedAnswer(settled) };
        }
        return { kind: "send", headers: firstAnswerHeaders(this.#context, settled.expiresAt) };
      case "suspended":
        if (made !== undefined && made.status < 500) {
          return { kind: "replace", answer: this.#unknownAnswer(settled.retryAfterMs) };
        }
        return { kind: "send", headers: firstAnswerHeaders(this.#context, undefined) };
      case "released":
        return { kind: "send", headers: firstAnswerHeaders(this.#context, undefined) };
      case "lost":
        return {
          kind: "replace",
          answer: problemAnswer(this.#context, "lease-lost", {
            detail:
              "This process was held up for so long that another one took the request over. Send it again with the " +
              "same key to get the answer that counts.",
            retryAfterMs: 1000,
          }),
        };
      case "timedOut":
        return { kind: "replace", answer: this.#timeoutAnswer() };
      case "storeDown":
        return {
          kind: "replace",
          answer: problemAnswer(this.#context, "store-unavailable", {
            detail:
              "The request ran, but its answer could not be stored yet. Send it again with the same key: it will not " +
              "be executed blindly a second time.",
            retryAfterMs: storeDownRetryAfterMs,
          }),
        };
      default:
        return settled satisfies never;
    }
  }

  /** What the handler said is not what retries will be told, so nobody may rely on it. */
  #unknownAnswer(retryAfterMs: number): HttpAnswer {
    return problemAnswer(this.#context, "outcome-unknown", {
      detail:
        "The request was resumed, and did not go on as it had begun. Do not use a new key, which could do it twice; " +
        "ask again later with this one.",
      retryAfterMs: Math.max(retryAfterMs, unknownRetryAfterMsMin),
    });
  }

  #timeoutAnswer(): HttpAnswer {
    return problemAnswer(this.#context, "execution-timeout", {
      detail:
        "The service did not finish in time. Send it again with the same key to learn what became of it.",
      retryAfterMs: 1000,
    });
  }
}

/** How soon it makes sense to ask again about an outcome that nobody knows. */
export const unknownRetryAfterMsMin = 30_000;

/** A database that fails over is back within some seconds. */
export const storeDownRetryAfterMs = 5000;
