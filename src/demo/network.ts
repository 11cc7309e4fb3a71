import {
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
  request as sendRequest,
} from "node:http";
import { bytesOf, objectIn, sendJson } from "./json.ts";
import type { Payments } from "./payments.ts";
import { paymentPath, requestHeader } from "./payments-api.ts";
import type { RequestEnd } from "./trace.ts";

/**
 * The network between the page's client and the payments API: it passes requests on, writes down what it sees, and loses
 * an answer where that was asked for. It never changes one.
 */
export class Network {
  readonly #payments: Payments;
  readonly #portOf: () => number;
  #requests = 0;

  constructor(payments: Payments, portOf: () => number) {
    this.#payments = payments;
    this.#portOf = portOf;
  }

  /** The order that a request pays for, if it is a payment at all. */
  static orderOf(req: IncomingMessage): string | undefined {
    return paymentPath.exec(req.url ?? "")?.[2];
  }

  async pass(req: IncomingMessage, res: ServerResponse, order: string): Promise<void> {
    if (this.#payments.summary(order) === undefined) {
      return sendJson(res, 404, { error: "this order is not known any more: begin a new one" });
    }
    const body = await bytesOf(req);
    this.#requests += 1;
    const request = this.#requests;
    const key = req.headers["idempotency-key"];
    this.#payments.useKey(order, typeof key === "string" ? key : null);
    this.#payments.add(order, {
      at: Date.now(),
      kind: "request-sent",
      request,
      amount: Number(memberOf(body, "amount") ?? 0),
      tap: Number(req.headers["x-tap"] ?? 1),
      attempt: Number(req.headers["x-attempt"] ?? 1),
    });
    let hasEnded = false;
    const end = (how: RequestEnd) => {
      if (hasEnded) return;
      hasEnded = true;
      this.#payments.add(order, { at: Date.now(), kind: "request-ended", request, end: how });
    };

    const upstream = sendRequest({
      host: "127.0.0.1",
      port: this.#portOf(),
      method: req.method,
      path: req.url,
      headers: {
        ...passedOn(req.headers),
        [requestHeader]: String(request),
        "content-length": body.byteLength,
      },
      // A connection of its own, so that a process that died is never taken for one that is there.
      agent: false,
    });
    upstream.on("response", async (answer) => {
      const status = answer.statusCode ?? 0;
      const bytes = await bytesOf(answer).catch(() => undefined);
      if (bytes === undefined) return fail();
      const faults = this.#payments.faults(order);
      if (faults !== undefined && faults.answersLost > 0) {
        faults.answersLost -= 1;
        end({ kind: "lost", status });
        res.destroy();
        return;
      }
      const isReplay = answer.headers["idempotency-replayed"] === "true";
      const code = memberOf(bytes, "code");
      end({ kind: "answered", status, isReplay, code: typeof code === "string" ? code : null });
      res.writeHead(status, passedOn(answer.headers)).end(bytes);
    });
    const fail = () => {
      end({ kind: "broken" });
      res.destroy();
    };
    upstream.on("error", fail);
    res.on("close", () => {
      end({ kind: "given-up" });
      upstream.destroy();
    });
    upstream.end(body);
  }
}

/** What concerns the payment, and not the connection to this hop. */
function passedOn(headers: IncomingHttpHeaders): Record<string, string> {
  const passed: Record<string, string> = {};
  for (const name of passedHeaders) {
    const value = headers[name];
    if (typeof value === "string") passed[name] = value;
  }
  return passed;
}

const passedHeaders = [
  "content-type",
  "idempotency-key",
  "idempotency-replayed",
  "idempotency-expires",
  "retry-after",
];

/** A member of a JSON body; undefined if it has none. */
function memberOf(body: Buffer, name: string): unknown {
  try {
    return objectIn(body)[name];
  } catch {
    return undefined;
  }
}
