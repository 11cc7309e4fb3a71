import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import type { Duplex } from "node:stream";
import { defaultPolicy } from "../../core/policy.ts";
import { defaultProblemTypeBase } from "../../core/problem.ts";
import type { HttpAnswer } from "../../http/answer.ts";
import { writeNodeAnswer } from "../../http/node-response.ts";
import { refusalAnswer } from "./failures.ts";
import { refusalOf } from "./refuse.ts";
import { whole } from "./whole.ts";

export interface FrontOptions {
  /** How large the head of a request may be, all of its fields together; a larger one is 431. 16 KiB. */
  readonly headerBytesMax?: number;
  /** How long a client may take to send the head; then it is 408. 15 seconds. */
  readonly headersTimeoutMs?: number;
  /** How long it may take to send everything, body included; 5 minutes. 0 waits for ever. */
  readonly requestTimeoutMs?: number;
  /** How long a connection may be idle between two requests; 65 seconds. */
  readonly keepAliveTimeoutMs?: number;
  readonly problemTypeBase?: string;
}

export interface FrontHandlers {
  serve(req: IncomingMessage, res: ServerResponse): unknown;
  /** For requests that ask for another protocol; without it, that is ignored. */
  upgrade?(req: IncomingMessage, socket: Duplex, head: Buffer): void;
}

/** The server that clients talk to: Node's own, with its parser as strict as it can be, and an end in good order. */
export class Front {
  readonly server: Server;
  readonly #typeBase: string;
  #isDraining = false;

  constructor(options: FrontOptions, handlers: FrontHandlers) {
    const headersTimeout = whole(options, "headersTimeoutMs", { otherwise: 15_000, least: 1 });
    const requestTimeout = whole(options, "requestTimeoutMs", { otherwise: 300_000, least: 0 });
    this.#typeBase = options.problemTypeBase ?? defaultProblemTypeBase;
    this.server = createServer(
      {
        insecureHTTPParser: false,
        maxHeaderSize: whole(options, "headerBytesMax", { otherwise: 16_384, least: 1 }),
        headersTimeout: requestTimeout === 0 ? headersTimeout : Math.min(headersTimeout, requestTimeout),
        requestTimeout,
        keepAliveTimeout: whole(options, "keepAliveTimeoutMs", {
          otherwise: keepAliveTimeoutMsDefault,
          least: 1,
        }),
        // How late a timeout may be noticed.
        connectionsCheckingInterval: Math.max(50, Math.min(headersTimeout / 2, 5000)),
      },
      (req, res) => {
        if (this.#isDraining) res.shouldKeepAlive = false;
        const refusal = this.#refusal(req);
        if (refusal === undefined) void handlers.serve(req, res);
        else refuse(req, res, refusal);
      },
    );
    // By default fields beyond some number are left out, and with them perhaps a second key or a second host.
    this.server.maxHeadersCount = 0;
    this.server.on("clientError", answerUnreadable);
    const { upgrade } = handlers;
    if (upgrade === undefined) return;
    this.server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) => {
      const refusal = this.#refusal(req);
      if (refusal === undefined && !this.#isDraining) upgrade(req, socket, head);
      else socket.end(headText(refusal?.status ?? 503));
    });
  }

  /**
   * Takes no more connections, ends those that are idle, and waits for the others, but not for longer than `drainMs`.
   * Resolves to whether everything had ended by then.
   */
  async drain(drainMs: number): Promise<boolean> {
    const { server } = this;
    this.#isDraining = true;
    let isClosed = false;
    const closed = new Promise<void>((resolve) => server.close(() => resolve())).then(() => {
      isClosed = true;
    });
    // A connection becomes idle when its last answer is sent, and then has nobody to end it but us.
    const sweeping = setInterval(() => server.closeIdleConnections(), sweepMs);
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([
      closed,
      new Promise<void>((resolve) => {
        timer = setTimeout(resolve, drainMs);
      }),
    ]);
    clearTimeout(timer);
    clearInterval(sweeping);
    if (!isClosed) server.closeAllConnections();
    return isClosed;
  }

  #refusal(req: IncomingMessage): HttpAnswer | undefined {
    const refusal = refusalOf(req);
    if (refusal === undefined) return undefined;
    return refusalAnswer({ policy: defaultPolicy, typeBase: this.#typeBase, key: undefined }, refusal);
  }
}

const keepAliveTimeoutMsDefault = 65_000; // Longer than load balancers keep theirs, so that it is they who end them.
const sweepMs = 50;

function refuse(req: IncomingMessage, res: ServerResponse, answer: HttpAnswer): void {
  // A body that nobody reads would be taken for the next request by whoever understands its length differently.
  if (!req.complete) res.shouldKeepAlive = false;
  writeNodeAnswer(res, answer);
}

const statuses: Readonly<Record<string, readonly [status: number, detail: string]>> = {
  HPE_HEADER_OVERFLOW: [
    431,
    "The head of the request is larger than this gateway takes. Send fewer or shorter fields.",
  ],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [
    413,
    "The chunks of the body have extensions that are too long. Leave them out.",
  ],
  ERR_HTTP_REQUEST_TIMEOUT: [408, "The request did not arrive in time. Send it again."],
};

const unreadable = [400, "The request is not valid HTTP/1.1, and was not passed on."] as const;

/** What the parser refused was seen by nobody else. Its client is told why, unless an answer is under way to it. */
function answerUnreadable(error: Error & { code?: string }, socket: Duplex): void {
  const isAnswering = (socket as { _httpMessage?: { headersSent: boolean } | null })._httpMessage
    ?.headersSent;
  if (error.code === "ECONNRESET" || !socket.writable || isAnswering) {
    socket.destroy();
    return;
  }
  const [status, detail] = statuses[error.code ?? ""] ?? unreadable;
  const body = JSON.stringify({ type: "about:blank", title: STATUS_CODES[status], status, detail });
  socket.end(`${headText(status, ["content-type: application/problem+json"], body.length)}${body}`);
  // What else it sends is not read, and its end is not waited for.
  socket.once("finish", () => socket.destroy());
}

function headText(status: number, fields: readonly string[] = [], length = 0): string {
  const lines = [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, ...fields, `content-length: ${length}`];
  return `${lines.join("\r\n")}\r\nconnection: close\r\n\r\n`;
}
