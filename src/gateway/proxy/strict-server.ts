import { once } from "node:events";
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import type { Duplex } from "node:stream";
import { whole } from "./whole.ts";

export interface StrictServerOptions {
  /** How large the head of a request may be, all of its fields together; a larger one is 431. 16 KiB. */
  readonly maxHeaderBytes?: number | undefined;
  /** How long a client may take to send the head; then it is 408. 15 seconds. */
  readonly headersTimeoutMs?: number | undefined;
  /** How long it may take to send everything, body included; 5 minutes. 0 waits for ever. */
  readonly requestTimeoutMs?: number | undefined;
  /** How long a connection may be idle between two requests; 75 seconds. */
  readonly keepAliveTimeoutMs?: number | undefined;
  /** How long a client may take in nothing of an answer that waits for it; a minute. 0 waits for ever. */
  readonly sendTimeoutMs?: number | undefined;
}

export interface ServerHandlers {
  answer(req: IncomingMessage, res: ServerResponse): void;
  /** For requests that ask for another protocol. */
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void;
}

/** The server that clients talk to: Node's own, with its parser as strict as it can be. */
export function strictServer(options: StrictServerOptions, handlers: ServerHandlers): Server {
  const headersTimeout = whole(options, "headersTimeoutMs", { otherwise: headersTimeoutMsDefault, least: 1 });
  const requestTimeout = whole(options, "requestTimeoutMs", { otherwise: requestTimeoutMsDefault, least: 0 });
  const server = createServer(
    {
      insecureHTTPParser: false,
      requireHostHeader: true,
      maxHeaderSize: whole(options, "maxHeaderBytes", { otherwise: maxHeaderBytesDefault, least: 1 }),
      headersTimeout: requestTimeout === 0 ? headersTimeout : Math.min(headersTimeout, requestTimeout),
      requestTimeout,
      keepAliveTimeout: whole(options, "keepAliveTimeoutMs", {
        otherwise: keepAliveTimeoutMsDefault,
        least: 0,
      }),
      // How late a timeout may be noticed.
      connectionsCheckingInterval: Math.max(50, Math.min(headersTimeout / 2, 5000)),
    },
    (req, res) => inTurn(req, res, handlers),
  );
  // By default fields beyond some number are left out, and with them perhaps a second key or a second host.
  server.maxHeadersCount = 0;
  server.on("clientError", answerUnreadable);
  // Until somebody takes it, an answer holds a connection to upstream, of which there are only so many.
  server.timeout = whole(options, "sendTimeoutMs", { otherwise: sendTimeoutMsDefault, least: 0 });
  server.on("timeout", (socket) => {
    const isIdle = answering(socket) === undefined && server.keepAliveTimeout > 0;
    if (isIdle || socket.writableLength > 0) socket.destroy();
  });
  server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) => {
    // Node lets go of it here, and without a listener a client that resets its connection would end the process.
    socket.off("error", destroy).on("error", destroy);
    // A connection that still has something to answer cannot speak another protocol, and Node hands it over all the same.
    if (answering(socket) === undefined) handlers.upgrade(req, socket, head);
    else socket.destroy();
  });
  return server;
}

/**
 * Requests that came in one go are answered one after another, as RFC 9112 has it for those that change something. One
 * whose turn has not come has no connection yet: it would never hear that its client has gone.
 */
function inTurn(req: IncomingMessage, res: ServerResponse, handlers: ServerHandlers): void {
  if (res.socket !== null) {
    handlers.answer(req, res);
    return;
  }
  const { socket } = req;
  const waiting = (waitingOn.get(socket) ?? 0) + 1;
  waitingOn.set(socket, waiting);
  if (waiting > waitingMax) {
    socket.destroy();
    return;
  }
  res.once("socket", () => {
    waitingOn.set(socket, (waitingOn.get(socket) ?? 1) - 1);
    handlers.answer(req, res);
  });
}

/** How many requests wait for their turn, by connection. */
const waitingOn = new WeakMap<object, number>();
const waitingMax = 100; // Load generators send ten at once; each is some kilobytes of memory.

function destroy(this: Duplex): void {
  this.destroy();
}

/** What is being answered over a connection. */
function answering(socket: Duplex): ServerResponse | undefined {
  return (socket as { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined;
}

/** Takes no more connections, and ends each of them as soon as nothing is under way on it. Resolves with the last. */
export async function ended(server: Server): Promise<void> {
  const closed = once(server, "close");
  server.close();
  // A connection becomes idle when its last answer is sent, and then has nobody to end it but us.
  const sweeping = setInterval(() => server.closeIdleConnections(), sweepMs);
  await closed.finally(() => clearInterval(sweeping));
}

const maxHeaderBytesDefault = 16 * 1024; // Node's own, and that of most services behind.
const headersTimeoutMsDefault = 15_000; // A head is one packet or two.
const requestTimeoutMsDefault = 300_000; // 50 MB at 1.5 Mbit/s.
const keepAliveTimeoutMsDefault = 75_000; // Longer than the minute after which common load balancers let go.
const sendTimeoutMsDefault = 60_000; // A phone in a tunnel is back by then, or comes with another address.
const sweepMs = 50;

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

/** What the parser refused was seen by nobody else. Its client is told why, unless it would take that for another answer. */
function answerUnreadable(error: Error & { code?: string }, socket: Duplex): void {
  const current = answering(socket);
  const isAnotherAnswer = current !== undefined && (current.headersSent || current.req.complete);
  if (error.code === "ECONNRESET" || !socket.writable || isAnotherAnswer) {
    socket.destroy();
    return;
  }
  const [status, detail] = statuses[error.code ?? ""] ?? unreadable;
  const body = JSON.stringify({ type: "about:blank", title: STATUS_CODES[status], status, detail });
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-type: application/problem+json\r\n` +
      `content-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
  );
  // What else it sends is not read, and its end is not waited for.
  socket.once("finish", () => socket.destroy());
}
