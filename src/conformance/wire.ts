import { type Agent, type ClientRequest, type IncomingMessage, request as overHttp } from "node:http";
import { request as overTls } from "node:https";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

/** Names and values in the order in which they are sent; a name may come twice, which `fetch` cannot say. */
export type Fields = readonly (readonly [name: string, value: string])[];

export interface Sending {
  readonly method: string;
  readonly url: URL;
  readonly fields: Fields;
  readonly body: string | undefined;
  /** Whose connections are used; one of its own if left out. */
  readonly agent?: Agent;
  readonly timeoutMs: number;
  /** The last byte of the body waits for this, so that many requests can be complete at one moment. */
  readonly lastByteAfter?: Promise<void>;
  /** Called when everything but a held-back last byte has been handed to the network. */
  onSent?(): void;
  /** Ends the connection at once, whatever was sent. */
  readonly cut?: AbortSignal;
}

export interface Answer {
  readonly status: number;
  readonly fields: Fields;
  readonly body: Buffer;
}

/** There was no whole answer: nobody listens, the connection ended, or the time was up. */
export class NoAnswerError extends Error {
  override readonly name = "NoAnswerError";
  /** Whether nothing at all happened until the time was up. */
  readonly isTimeout: boolean;

  constructor(reason: string, { isTimeout = false }: { readonly isTimeout?: boolean } = {}) {
    super(reason);
    this.isTimeout = isTimeout;
  }
}

export function fieldOf({ fields }: Pick<Answer, "fields">, name: string): string | undefined {
  return fields.find(([known]) => known.toLowerCase() === name.toLowerCase())?.[1];
}

const answerBytesMax = 16 * 1024 * 1024; // More is no answer to a request that changes something.

/** One request on the wire. Redirects are answers, and nothing is ever sent again. */
export function send(sending: Sending): Promise<Answer> {
  const { method, url, fields, body, agent, timeoutMs, lastByteAfter, onSent, cut } = sending;
  return new Promise((resolve, reject) => {
    const headers: Record<string, string[]> = {};
    for (const [name, value] of fields)
      headers[name.toLowerCase()] = [...(headers[name.toLowerCase()] ?? []), value];
    const bytes = Buffer.from(body ?? "");
    if (body !== undefined) headers["content-length"] = [String(bytes.length)];
    const open = url.protocol === "https:" ? overTls : overHttp;
    let request: ClientRequest;
    const giveUp = (reason: string, isTimeout = false) => {
      clearTimeout(timer);
      request?.destroy();
      reject(new NoAnswerError(reason, { isTimeout }));
    };
    const timer = setTimeout(() => giveUp(`no answer within ${timeoutMs} ms`, true), timeoutMs);
    try {
      // An agent of `false` makes one connection for this request alone.
      request = open(url, { method, headers, agent: agent ?? false });
    } catch (error) {
      return giveUp(sentenceOf(error));
    }
    request.on("error", (error) => giveUp(sentenceOf(error)));
    request.on("response", (response) => {
      collect(response).then(
        (answer) => {
          clearTimeout(timer);
          resolve(answer);
        },
        (error) => giveUp(sentenceOf(error)),
      );
    });
    cut?.addEventListener("abort", () => giveUp("the connection was cut on purpose"), { once: true });
    if (lastByteAfter === undefined || bytes.length < 2) {
      request.end(bytes, onSent);
      return;
    }
    request.write(bytes.subarray(0, -1), () => onSent?.());
    void lastByteAfter.then(() => request.end(bytes.subarray(-1)));
  });
}

async function collect(response: IncomingMessage): Promise<Answer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response) {
    chunks.push(chunk);
    length += chunk.length;
    if (length > answerBytesMax) throw new NoAnswerError(`the answer is longer than ${answerBytesMax} bytes`);
  }
  return {
    status: response.statusCode ?? 0,
    fields: pairsOf(response.rawHeaders),
    body: Buffer.concat(chunks),
  };
}

/**
 * The same with header values that Node's own client refuses to write, because a hostile client is not Node. The body of
 * the answer is as it came over the wire, with its framing.
 */
export function sendRaw(
  sending: Pick<Sending, "method" | "url" | "fields" | "body" | "timeoutMs">,
): Promise<Answer> {
  const { method, url, fields, body = "", timeoutMs } = sending;
  const isTls = url.protocol === "https:";
  const port = Number(url.port || (isTls ? 443 : 80));
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const lines = [
    `${method} ${url.pathname}${url.search} HTTP/1.1`,
    `host: ${url.host}`,
    ...fields.map(([name, value]) => `${name}: ${value}`),
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
  ];
  return new Promise((resolve, reject) => {
    const socket: Socket = isTls
      ? connectTls({ host, port, ...(isIP(host) === 0 ? { servername: host } : {}) })
      : connectTcp({ host, port });
    const chunks: Buffer[] = [];
    const end = (reason: string, isTimeout: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      const answer = answerIn(Buffer.concat(chunks));
      if (answer === undefined) reject(new NoAnswerError(reason, { isTimeout }));
      else resolve(answer);
    };
    const closed = () => end("the connection was closed without an answer", false);
    const timer = setTimeout(() => end(`no answer within ${timeoutMs} ms`, true), timeoutMs);
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("error", closed);
    socket.on("close", closed);
    socket.write(Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"));
    socket.write(body);
  });
}

function answerIn(bytes: Buffer): Answer | undefined {
  const end = bytes.indexOf("\r\n\r\n");
  const [first = "", ...lines] = bytes.subarray(0, Math.max(0, end)).toString("latin1").split("\r\n");
  const [, status] = /^HTTP\/1\.[01] (\d{3})/.exec(first) ?? [];
  if (status === undefined) return undefined;
  const fields = lines.map((line): [string, string] => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  return { status: Number(status), fields, body: bytes.subarray(end + 4) };
}

function pairsOf(raw: readonly string[]): Fields {
  const pairs: [string, string][] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) pairs.push([raw[i] ?? "", raw[i + 1] ?? ""]);
  return pairs;
}

function sentenceOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === "") return sentenceOf(error.errors[0]);
  return error instanceof Error ? error.message : String(error);
}
