import {
  Agent,
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
} from "node:http";
import { connect } from "node:net";

/** One request as a case describes it; what is left out is the same in every case. */
export interface Sending {
  readonly method?: string;
  readonly path?: string;
  /** `null` sends no key at all. */
  readonly key?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is, with a content-length. */
  readonly body?: string | Uint8Array;
  /** Sent with chunked transfer-encoding, one write for each. */
  readonly chunks?: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>;
  readonly agent?: Agent;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Every field apart, in the order in which they came. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
  readonly text: string;
  /** The port on the client's side: equal for two answers that came over one connection. */
  readonly clientPort: number | undefined;
}

/** Sends a request and reads the whole answer. */
export async function send(origin: string, sending: Sending): Promise<Answer> {
  const exchange = open(origin, sending);
  return readAnswer(await exchange.response);
}

export interface OpenExchange {
  readonly request: ClientRequest;
  /** Rejects when the connection breaks first. */
  readonly response: Promise<IncomingMessage>;
  /** Breaks the connection off, as a client does that is killed. */
  abort(): void;
}

/** Sends a request and hands the answer over as it comes. */
export function open(origin: string, sending: Sending): OpenExchange {
  const { method = "POST", path = "/charges", key = "key-1", chunks, agent } = sending;
  const body = bodyOf(sending);
  const headers: Record<string, string> = {
    ...(key === null ? {} : { "idempotency-key": key }),
    ...(body?.type === undefined ? {} : { "content-type": body.type }),
    ...(body === undefined || chunks !== undefined
      ? {}
      : { "content-length": String(Buffer.byteLength(body.data)) }),
    ...(chunks === undefined ? {} : { "transfer-encoding": "chunked" }),
    ...sending.headers,
  };
  // Without an agent of its own every request has a connection of its own.
  const sent = request(new URL(path, origin), { method, headers, agent: agent ?? false });
  const response = new Promise<IncomingMessage>((resolve, reject) => {
    sent.on("response", resolve);
    sent.on("error", reject);
  });
  // Who aborts the exchange is not interested in the error that this causes.
  response.catch(() => {});
  void write(sent, chunks ?? (body === undefined ? [] : [body.data]));
  return { request: sent, response, abort: () => sent.destroy() };
}

export async function readAnswer(response: IncomingMessage): Promise<Answer> {
  const clientPort = response.socket.localPort;
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part as Buffer);
  const body = Buffer.concat(parts);
  const fields: [string, string][] = [];
  for (let index = 0; index < response.rawHeaders.length; index += 2) {
    fields.push([String(response.rawHeaders[index]).toLowerCase(), String(response.rawHeaders[index + 1])]);
  }
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    fields,
    body,
    text: body.toString("utf8"),
    clientPort,
  };
}

/** One connection that is kept, so that the next request goes over it if the server allows. */
export function keptConnection(): Agent {
  return new Agent({ keepAlive: true, maxSockets: 1 });
}

/** Speaks to the server without a client's good manners, and reads until the server closes. */
export function speak(port: number, text: string | Uint8Array): Promise<string> {
  return new Promise((resolve, reject) => {
    let heard = "";
    const socket = connect(port, "127.0.0.1", () => socket.write(text));
    socket.setEncoding("latin1");
    socket.on("data", (data) => {
      heard += data;
    });
    socket.on("end", () => resolve(heard));
    socket.on("error", reject);
  });
}

function bodyOf(sending: Sending): { data: string | Uint8Array; type: string | undefined } | undefined {
  if (sending.body !== undefined) return { data: sending.body, type: undefined };
  if (sending.chunks !== undefined) return { data: "", type: undefined };
  const method = sending.method ?? "POST";
  if (sending.json === undefined && (method === "GET" || method === "DELETE")) return undefined;
  return { data: JSON.stringify(sending.json ?? { amount: 10 }), type: "application/json" };
}

async function write(
  sent: ClientRequest,
  chunks: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>,
): Promise<void> {
  try {
    for await (const chunk of chunks) {
      if (sent.destroyed) return;
      if (chunk.length > 0 && !sent.write(chunk)) await drained(sent);
    }
    sent.end();
  } catch (error) {
    sent.destroy(error as Error);
  }
}

/** A server that answers early may stop reading, so the end of the exchange counts as well. */
function drained(sent: ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      sent.off("drain", done);
      sent.off("close", done);
      resolve();
    };
    sent.on("drain", done);
    sent.on("close", done);
  });
}
