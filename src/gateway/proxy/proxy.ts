import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { type Dispatcher, Pool } from "undici";
import { ConfigError } from "../../core/errors.ts";
import { defaultPolicy } from "../../core/policy.ts";
import { defaultProblemTypeBase } from "../../core/problem.ts";
import type { AnswerContext } from "../../http/answer.ts";
import { type Arrival, Gate, type RoutePolicy } from "../../http/gate.ts";
import { bytesPutBack, nodeRequest } from "../../http/node-request.ts";
import { captureNodeResponse, writeNodeAnswer } from "../../http/node-response.ts";
import { within } from "../../http/within.ts";
import type { Latchkey } from "../../latchkey.ts";
import { Connector } from "./connector.ts";
import { Executing } from "./executing.ts";
import { UpstreamBusyError } from "./failures.ts";
import type { Forwarding } from "./forwarded.ts";
import { requestHeaders } from "./headers.ts";
import { Passing } from "./passing.ts";
import { originForm } from "./refuse.ts";
import { Tunnels } from "./tunnels.ts";
import { asksForWebsocket, serveWithoutUpgrade, Upgrading } from "./upgrading.ts";
import { whole } from "./whole.ts";

export interface ProxyOptions {
  /** Where the service is; a path in it comes before the path of every request. */
  readonly upstream: URL | string;
  /** How many connections to upstream there may be at once; further requests wait for one. 256 unless you say otherwise. */
  readonly connections?: number;
  /** How many requests may wait for a connection; 1,024. One that would be one more is refused, and nothing is sent. */
  readonly waitingMax?: number;
  /** How long a connection may take to be made; 5 seconds. */
  readonly connectTimeoutMs?: number;
  /** How long upstream may take to begin its answer; a minute. 0 waits for ever. */
  readonly headersTimeoutMs?: number;
  /** How long upstream may pause in the middle of its answer; 5 minutes. 0, and event streams, may pause for ever. */
  readonly bodyTimeoutMs?: number;
  /** Whether clients are proxies whose word on who sent a request is kept. They are not. */
  readonly trustForwarded?: boolean;
  /** Which `Host` upstream gets: the one that the client has sent, or its own. */
  readonly host?: "client" | "upstream";
  /** Where the types of problem documents are described. */
  readonly problemTypeBase?: string;
}

interface Hold {
  release(): void;
}

/** Passes requests to one service. Each is to have been looked at by `refusalOf` before it comes here. */
class ReverseProxy {
  readonly #connector: Connector;
  readonly #pool: Pool;
  readonly #connections: number;
  readonly #waitingMax: number;
  /** False once the pool has said that the next request will have to wait. Then, and only then, it is worth a count. */
  #hasRoom = true;
  readonly #upstream: URL;
  readonly #prefix: string;
  readonly #forwarding: Forwarding;
  readonly #host: "client" | "upstream";
  readonly #context: AnswerContext;
  readonly #tunnels = new Tunnels();
  #running = 0;
  readonly #whenIdle = new Set<() => void>();

  constructor(options: ProxyOptions) {
    const upstream = upstreamOf(options.upstream);
    const { host = "client" } = options;
    if (host !== "client" && host !== "upstream") {
      throw new ConfigError(`host is ${JSON.stringify(host)} and must be "client" or "upstream"`);
    }
    this.#upstream = upstream;
    this.#prefix = upstream.pathname.replace(/\/$/, "");
    this.#forwarding = { trustForwarded: options.trustForwarded ?? false };
    this.#host = host;
    this.#context = {
      policy: defaultPolicy,
      typeBase: options.problemTypeBase ?? defaultProblemTypeBase,
      key: undefined,
    };
    const timeout = whole(options, "connectTimeoutMs", { otherwise: connectTimeoutMsDefault, least: 1 });
    this.#connector = new Connector(upstream, timeout);
    this.#connections = whole(options, "connections", { otherwise: connectionsDefault, least: 1 });
    this.#waitingMax = whole(options, "waitingMax", { otherwise: waitingMaxDefault, least: 0 });
    this.#pool = new Pool(upstream.origin, {
      connections: this.#connections,
      connect: this.#connector.connect,
      headersTimeout: whole(options, "headersTimeoutMs", { otherwise: headersTimeoutMsDefault, least: 0 }),
      bodyTimeout: whole(options, "bodyTimeoutMs", { otherwise: bodyTimeoutMsDefault, least: 0 }),
      // One request at a time on each connection: behind another one, none could say whether it was read.
      pipelining: 1,
      allowH2: false,
    });
    this.#pool.on("drain", () => {
      this.#hasRoom = true;
    });
  }

  /** Passes a request on as it is, without protection. Resolves when the exchange is over, however it ended. */
  pass(req: IncomingMessage, res: ServerResponse): Promise<void> {
    // Its client went while it was found out who it is, or whether the store is down: nobody would tell us again.
    if (res.destroyed) return Promise.resolve();
    this.#running += 1;
    return new Promise((resolve) => {
      const done = () => {
        this.#over();
        resolve();
      };
      const body = bytesPutBack(req) ?? (hasBody(req) ? req : null);
      const passing = new Passing(req, res, {
        context: this.#context,
        connector: this.#connector,
        // What asks for nothing to be done may be asked twice, so nobody has to see that a kept connection was let go.
        again: body === null && isSafe(req.method) ? () => this.#dispatch(req, null, passing) : undefined,
        done,
      });
      this.#dispatch(req, body, passing);
    });
  }

  /** Passes the requests of one route on with protection: each is executed at most once. */
  protect(
    latchkey: Latchkey,
    policy?: RoutePolicy<IncomingMessage>,
  ): (req: IncomingMessage, res: ServerResponse) => Promise<void> {
    const gate = new Gate(latchkey, policy);
    return async (req, res) => {
      if (!gate.protects(req.method ?? "")) return this.pass(req, res);
      // Nothing is reserved yet, and there is nobody whose answer it would be.
      if (res.destroyed) return;
      // Whether its client stays makes no difference from here on.
      const held = this.hold();
      try {
        const arrival = await gate.arriveOrFail(nodeRequest(req, req));
        await this.#act(arrival, req, res);
      } finally {
        held.release();
      }
    };
  }

  #act(arrival: Arrival, req: IncomingMessage, res: ServerResponse): Promise<void> | void {
    switch (arrival.kind) {
      case "pass":
        return this.pass(req, res);
      case "answer":
        return writeNodeAnswer(res, arrival.answer);
      case "execute": {
        const { exchange } = arrival;
        // Upstream's answers come from outside of the operation, and are the handler's own all the same.
        const capture = captureNodeResponse(res, exchange, () => false);
        if (capture === undefined) return;
        const body = bytesPutBack(req) ?? null;
        // The rest of the request is nobody's, and would keep the connection from its next one.
        req.resume();
        this.#dispatch(req, body, new Executing(res, exchange, capture, this.hold()));
        return;
      }
      default:
        return arrival satisfies never;
    }
  }

  /**
   * Passes a request on that asks for websockets, for a server's `upgrade`. One that asks for anything else comes to the
   * server again as a plain request, so that it is protected like any other.
   */
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void {
    if (!asksForWebsocket(req)) {
      serveWithoutUpgrade(req, socket, head);
      return;
    }
    this.#running += 1;
    const done = () => this.#over();
    const upgrading = new Upgrading(req, socket, head, {
      context: this.#context,
      connector: this.#connector,
      tunnels: this.#tunnels,
      done,
    });
    this.#dispatch(req, null, upgrading, "websocket");
  }

  /**
   * Waits for what is under way, but not for longer than `drainMs`, and closes the connections to upstream. What was
   * not even sent by then is released, and what was sent is left to reconciliation.
   */
  async close({ drainMs = drainMsDefault }: { readonly drainMs?: number } = {}): Promise<void> {
    this.#tunnels.end();
    await within(drainMs, this.#idle());
    await this.#pool.destroy();
  }

  /** Lets everything under way end in its own time, and then closes the connections to upstream. */
  async retire(): Promise<void> {
    // Not the other way round: a request whose key is being reserved has yet to be sent.
    await this.#idle();
    await this.#pool.close();
    await this.#tunnels.empty();
  }

  /** Keeps the connections to upstream for somebody who is going to need them, or does; until `release` is called. */
  hold(): Hold {
    this.#running += 1;
    return { release: () => this.#over() };
  }

  async #idle(): Promise<void> {
    if (this.#running > 0) await new Promise<void>((resolve) => this.#whenIdle.add(resolve));
  }

  #dispatch(
    req: IncomingMessage,
    body: IncomingMessage | Uint8Array | null,
    handler: Dispatcher.DispatchHandler,
    upgrade?: "websocket",
  ): void {
    if (this.#isFull) {
      handler.onError?.(new UpstreamBusyError());
      return;
    }
    const { host = "" } = req.headers;
    const headers = requestHeaders(
      req,
      this.#forwarding,
      this.#host === "client" && host !== "" ? host : this.#upstream.host,
    );
    const length = req.headers["content-length"];
    if (body === req && length !== undefined) headers.push("content-length", length);
    const path = this.#prefix + originForm(req.url ?? "/");
    const options: Dispatcher.DispatchOptions & { servername: string } = {
      path,
      method: req.method as Dispatcher.HttpMethod,
      headers,
      body,
      // By itself it would take the name from the client's `Host`.
      servername: this.#upstream.hostname,
    };
    if (upgrade !== undefined) options.upgrade = upgrade;
    if (req.headers.accept?.includes("text/event-stream")) options.bodyTimeout = 0;
    this.#hasRoom = this.#pool.dispatch(options, handler);
  }

  /** Whether all connections are taken, and as many requests wait for one as may; even those whose client has gone. */
  get #isFull(): boolean {
    return !this.#hasRoom && this.#pool.stats.size >= this.#connections + this.#waitingMax;
  }

  #over(): void {
    this.#running -= 1;
    if (this.#running > 0) return;
    for (const resolve of this.#whenIdle) resolve();
    this.#whenIdle.clear();
  }
}

export { ReverseProxy as Proxy };

const connectionsDefault = 256; // More than one process of most services answers at once.
const waitingMaxDefault = 1024; // Four rounds of the connections: who comes later would hardly be answered in time.
const connectTimeoutMsDefault = 5000; // One lost packet is sent again after a second, and the second after three.
const headersTimeoutMsDefault = 60_000; // What load balancers commonly wait for.
const bodyTimeoutMsDefault = 300_000;
const drainMsDefault = 10_000; // What orchestrators leave of their usual thirty seconds.

function upstreamOf(given: URL | string): URL {
  let upstream: URL;
  try {
    upstream = new URL(given);
  } catch {
    throw new ConfigError(`upstream is "${given}" and must be an address such as "http://127.0.0.1:8080"`);
  }
  const { protocol, username, password, search, hash } = upstream;
  if (protocol !== "http:" && protocol !== "https:") {
    throw new ConfigError(`upstream is "${upstream.protocol}//…" and must begin with http:// or https://`);
  }
  if (username !== "" || password !== "" || search !== "" || hash !== "") {
    throw new ConfigError("upstream must be a host, a port and a path: leave out user, query and fragment");
  }
  return upstream;
}

/** RFC 9110: whoever sends these expects nothing to be done. */
function isSafe(method: string | undefined): boolean {
  return method === "GET" || method === "HEAD" || method === "OPTIONS";
}

/** RFC 9112: an HTTP/1 request has a body if and only if one of these fields says so. */
function hasBody({ headers }: IncomingMessage): boolean {
  if (headers["transfer-encoding"] !== undefined) return true;
  const length = headers["content-length"];
  return length !== undefined && length !== "0";
}
