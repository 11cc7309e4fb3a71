import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Logger } from "../engine/logging.ts";
import { type AnswerContext, type HttpAnswer, problemAnswer } from "../http/answer.ts";
import { writeNodeAnswer } from "../http/node-response.ts";
import { splitTarget } from "../http/request.ts";
import { claimHeader } from "../http/stored-request.ts";
import type { Generation } from "./generation.ts";
import type { OwnDispatch } from "./own-dispatch.ts";
import type { OwnPlaces } from "./own-paths.ts";
import { refusalAnswer } from "./proxy/failures.ts";
import { originForm, refusalOf } from "./proxy/refuse.ts";
import { asksForWebsocket, sayLast } from "./proxy/upgrading.ts";
import { CallerUnavailableError } from "./tenants.ts";

/** What stands behind the entrance, and may be another one with the next request. */
interface Host {
  readonly context: AnswerContext;
  readonly logger: Logger;
  readonly dispatch: OwnDispatch;
  current(): Generation | undefined;
  places(): OwnPlaces | undefined;
  isClosing(): boolean;
}

/** Where requests come in: refused, answered by the gateway itself, protected, or passed. */
export class Entrance {
  readonly #host: Host;
  /** Who sent the requests that are under way, asked once for each. */
  readonly #callers = new WeakMap<IncomingMessage, string | undefined>();
  #callerTroubleAt = Number.NEGATIVE_INFINITY;

  constructor(host: Host) {
    this.#host = host;
  }

  /** Who sent a request that has come in; undefined if nobody is known. */
  callerOf(req: IncomingMessage): string | undefined {
    return this.#callers.get(req);
  }

  /** For a server's requests. */
  answer(req: IncomingMessage, res: ServerResponse): void {
    if (this.#host.isClosing()) res.setHeader("connection", "close");
    try {
      const handled = this.#handle(req, res);
      handled?.catch((error) => this.#failed(res, error));
    } catch (error) {
      this.#failed(res, error);
    }
  }

  #handle(req: IncomingMessage, res: ServerResponse): Promise<void> | undefined {
    const current = this.#host.current();
    const refusal = refusalOf(req, (path) => this.#host.places()?.isStatus(path) === true);
    if (refusal !== undefined) return this.#refuse(req, res, refusalAnswer(this.#host.context, refusal));
    // From here on everybody reads the same path, also in a target that names its host.
    req.url = originForm(req.url ?? "/");
    const { path } = splitTarget(req.url);
    const own = this.#host.places()?.handlerOf(path);
    if (current === undefined) return this.#refuse(req, res, notOpen(this.#host.context));
    if (own !== undefined) {
      const isStatus = this.#host.places()?.isStatus(path) === true;
      return this.#withCaller(isStatus, current, req, res, async () => void (await own(req, res)));
    }
    const protect = current.protection(req.method ?? "", path);
    if (protect === undefined) {
      const isClaim = req.headers[claimHeader] !== undefined;
      return isClaim
        ? this.#refuse(req, res, claimRefused(this.#host.context))
        : current.proxy.pass(req, res);
    }
    // Without a key nobody asks who is calling: the request is refused, or passes.
    const hasKey = req.headers["idempotency-key"] !== undefined;
    return this.#withCaller(hasKey, current, req, res, () => protect(req, res));
  }

  /** Finds out who is calling, before anything else happens to the request. */
  #withCaller(
    isNeeded: boolean,
    current: Generation,
    req: IncomingMessage,
    res: ServerResponse,
    then: () => Promise<void>,
  ): Promise<void> {
    if (!isNeeded) return then();
    const caller = this.#host.dispatch.tenantOf(req) ?? current.callerOf(req);
    if (!(caller instanceof Promise)) {
      this.#callers.set(req, caller);
      return then();
    }
    // A reload meanwhile must not take away what it is going to be sent by.
    const held = current.proxy.hold();
    const handled = caller.then(
      (tenant) => {
        this.#callers.set(req, tenant);
        return then();
      },
      (error) => {
        if (!(error instanceof CallerUnavailableError)) throw error;
        this.#tellCallerTrouble(error);
        return this.#refuse(req, res, callerUnavailable(this.#host.context));
      },
    );
    return handled.finally(() => held.release());
  }

  /** For a server's requests to speak something else. */
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { path } = splitTarget(originForm(req.url ?? "/"));
    const current = this.#host.current();
    // Whoever asks for another protocol gets a plain answer, which goes the way of every request.
    const isRefused =
      current === undefined ||
      (asksForWebsocket(req) &&
        (this.#host.isClosing() ||
          refusalOf(req) !== undefined ||
          this.#host.places()?.handlerOf(path) !== undefined ||
          // What is protected is answered once and kept, which no websocket can be.
          current.protection(req.method ?? "", path) !== undefined));
    if (isRefused)
      sayLast(socket, "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    else current.proxy.upgrade(req, socket, head);
  }

  async #refuse(req: IncomingMessage, res: ServerResponse, answer: HttpAnswer): Promise<void> {
    // Nobody is going to read the body, and an unread one would block the connection.
    req.resume();
    writeNodeAnswer(res, answer);
  }

  #failed(res: ServerResponse, error: unknown): void {
    this.#host.logger.error(
      { event: "gateway_error", error: error instanceof Error ? error.message : String(error) },
      "a request failed inside the gateway",
    );
    res.destroy();
  }

  /** Every request would say so. */
  #tellCallerTrouble({ message, cause }: CallerUnavailableError): void {
    const now = performance.now();
    if (now - this.#callerTroubleAt < callerTroublePauseMs) return;
    this.#callerTroubleAt = now;
    const error = cause instanceof Error ? cause.message : String(cause);
    this.#host.logger.error({ event: "caller_unavailable", error }, message);
  }
}

const callerTroublePauseMs = 10_000;
const retryAfterMs = 5_000;

function notOpen(context: AnswerContext): HttpAnswer {
  return problemAnswer(context, "store-unavailable", {
    detail: "The gateway is starting. Send it again.",
    retryAfterMs,
  });
}

/** What a worker sends was accepted when its route was protected. Passed as it is, it would be executed by each attempt. */
function claimRefused(context: AnswerContext): HttpAnswer {
  return refusalAnswer(context, {
    status: 400,
    detail: "A worker sent a request that it has kept, and the route of it is not protected any more.",
  });
}

function callerUnavailable(context: AnswerContext): HttpAnswer {
  return problemAnswer(context, "caller-unavailable", {
    detail:
      "The keys with which tokens are verified could not be fetched, so nothing was executed. Send the request again " +
      "with the same key.",
    retryAfterMs,
  });
}
