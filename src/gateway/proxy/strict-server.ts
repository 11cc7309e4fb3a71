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
    (req, res) => handlers.answer(req, res),
  );
  // By default fields beyond some number are left out, and with them perhaps a second key or a second host.
  server.maxHeadersCount = 0;
  server.on("clientError", answerUnreadable);
  server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) =>
    handlers.upgrade(req, socket, head),
  );
  return server;
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
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-type: application/problem+json\r\n` +
      `content-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
  );
  // What else it sends is not read, and its end is not waited for.
  socket.once("finish", () => socket.destroy());
}
