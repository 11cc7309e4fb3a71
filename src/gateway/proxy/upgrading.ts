import { type IncomingMessage, type Server, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Dispatcher } from "undici";
import { answerHead } from "./answer-head.ts";
import { namedByConnection } from "./headers.ts";
import { Passing, type PassingOptions } from "./passing.ts";
import type { Tunnels } from "./tunnels.ts";

/**
 * One request to switch to websockets. If upstream switches, the two connections are joined; if not, its answer goes
 * back as the answer that it is.
 */
export class Upgrading implements Dispatcher.DispatchHandler {
  readonly #socket: Duplex;
  readonly #head: Buffer;
  readonly #tunnels: Tunnels;
  readonly #res: ServerResponse;
  readonly #answer: Passing;

  constructor(
    req: IncomingMessage,
    socket: Duplex,
    head: Buffer,
    options: PassingOptions & { readonly tunnels: Tunnels },
  ) {
    this.#socket = socket;
    this.#head = head;
    this.#tunnels = options.tunnels;
    this.#res = plainResponse(req, socket);
    this.#answer = new Passing(req, this.#res, options);
  }

  onConnect(abort: (error?: Error) => void): void {
    this.#answer.onConnect(abort);
  }

  onUpgrade(_status: number, raw: Buffer[] | string[] | null, upstream: Duplex): void {
    const socket = this.#socket;
    // Whatever else upstream said about its connection, this is all that it may mean for the client's.
    const { headers } = answerHead(200, (raw ?? []) as Buffer[]);
    let text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    for (let index = 0; index < headers.length; index += 2) {
      text += `${headers[index]}: ${headers[index + 1]}\r\n`;
    }
    this.#res.detachSocket(socket as Parameters<ServerResponse["detachSocket"]>[0]);
    socket.write(`${text}\r\n`, "latin1");
    if (this.#head.byteLength > 0) upstream.write(this.#head);
    this.#tunnels.join(socket, upstream);
    this.#answer.leave();
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void): boolean {
    return this.#answer.onHeaders(status, raw, resume);
  }

  onData(chunk: Buffer): boolean {
    return this.#answer.onData(chunk);
  }

  onComplete(trailers: string[] | null): void {
    this.#answer.onComplete(trailers);
  }

  onError(error: Error): void {
    this.#answer.onError(error);
  }
}

/** Whether a request asks for what can be passed through; anything else that could be switched to is not asked for. */
export function asksForWebsocket({ method, headers }: IncomingMessage): boolean {
  return method === "GET" && headers.upgrade?.toLowerCase() === "websocket" && !hasBody(headers);
}

function hasBody(headers: IncomingMessage["headers"]): boolean {
  return headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";
}

/**
 * Lets a request come again as if it had not asked for another protocol, which whoever is asked may ignore. Common
 * clients offer HTTP/2 in this way with every request; it must neither fail because of it nor pass by its protection.
 */
export function serveWithoutUpgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void {
  const { server } = socket as { server?: Server };
  if (server === undefined) {
    socket.destroy();
    return;
  }
  let text = `${req.method} ${req.url} HTTP/${req.httpVersion}\r\n`;
  for (let index = 0; index < req.rawHeaders.length; index += 2) {
    const name = req.rawHeaders[index] as string;
    const value = req.rawHeaders[index + 1] as string;
    const lowered = name.toLowerCase();
    if (lowered === "upgrade" || lowered === "http2-settings") continue;
    text += `${name}: ${lowered === "connection" ? withoutUpgrade(value) : value}\r\n`;
  }
  socket.unshift(Buffer.concat([Buffer.from(`${text}\r\n`, "latin1"), head]));
  server.emit("connection", socket);
}

function withoutUpgrade(connection: string): string {
  const named = new Set(namedByConnection(connection) ?? [connection]);
  named.delete("upgrade");
  named.delete("http2-settings");
  return named.size === 0 ? "keep-alive" : [...named].join(", ");
}

/** What a refused upgrade is answered with, on a connection that ends with it. */
function plainResponse(req: IncomingMessage, socket: Duplex): ServerResponse {
  const res = new ServerResponse(req);
  res.shouldKeepAlive = false;
  res.assignSocket(socket as Parameters<ServerResponse["assignSocket"]>[0]);
  res.on("finish", () => sayLast(socket));
  return res;
}

/** Ends a connection that the server has let go of: nobody else would, if the client kept its own side open. */
export function sayLast(socket: Duplex, text = ""): void {
  socket.end(text, "latin1", () => socket.destroy());
}
