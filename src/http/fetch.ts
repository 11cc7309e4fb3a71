import { ConfigError } from "../core/errors.ts";
import type { HeaderPair } from "../core/response.ts";
import { isPromiseLike, whenKnown } from "../core/when-known.ts";
import { type HttpAnswer, headersByName } from "./answer.ts";
import type { Exchange } from "./exchange.ts";
import { type HttpRequest, splitTarget } from "./request.ts";
import { claimHeader } from "./stored-request.ts";

/** A web-standard `Request` as the gate wants it. */
export function fetchRequest(request: Request, options: FetchRequestOptions): HttpRequest {
  return new FetchRequest(request, options);
}

interface FetchRequestOptions {
  readonly native: unknown;
  readonly body: HttpRequest["body"];
  /** What it is known by to every gate; `native`, if nothing else is said. */
  readonly identity?: object | undefined;
}

class FetchRequest implements HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly native: unknown;
  readonly identity: object;
  readonly keyFields: readonly string[];
  readonly body: HttpRequest["body"];
  readonly #headers: Headers;

  constructor(request: Request, { native, body, identity }: FetchRequestOptions) {
    const { url, headers } = request;
    const fragment = url.indexOf("#");
    const { path, query } = splitTarget(fragment === -1 ? url : url.slice(0, fragment));
    const key = headers.get("idempotency-key");
    this.method = request.method;
    this.path = path;
    this.query = query;
    this.native = native;
    this.identity = identity ?? (native as object);
    this.keyFields = key === null ? [] : [key];
    this.body = body;
    this.#headers = headers;
  }

  get contentType(): string | undefined {
    return this.header("content-type");
  }

  get contentEncoding(): string | undefined {
    return this.header("content-encoding");
  }

  get isClaim(): boolean {
    return this.#headers.has(claimHeader);
  }

  header(name: string): string | undefined {
    return this.#headers.get(name) ?? undefined;
  }
}

/** Whether the request says so itself that its body has more than `bytesMax`; then there is no need to read it. */
export function saysTooLarge(request: Request, bytesMax: number): boolean {
  return Number(request.headers.get("content-length")) > bytesMax;
}

/** Reads the body of a request, which is used up by that; undefined if there are more than `bytesMax`. */
export async function readFetchBody(request: Request, bytesMax: number): Promise<Uint8Array | undefined> {
  if (request.bodyUsed) {
    throw new ConfigError(
      "something consumed the body of this request before Latchkey saw it: protect the handler before it, or hand " +
        "a clone of the request to what reads first",
    );
  }
  if (saysTooLarge(request, bytesMax)) return undefined;
  // A server sees to it that a body is no longer than it says, so this is bounded. Whoever made the request by hand may
  // have said anything.
  if (request.headers.has("content-length")) {
    const bytes = new Uint8Array(await request.arrayBuffer());
    return bytes.byteLength > bytesMax ? undefined : bytes;
  }
  if (request.body === null) return new Uint8Array();
  const reader = (request.body as ReadableStream<Uint8Array>).getReader();
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    chunks.push(part.value);
    bytes += part.value.byteLength;
    if (bytes > bytesMax) {
      void discardRest(reader);
      return undefined;
    }
  }
  return Buffer.concat(chunks);
}

/** Cancelling would break the connection on which the answer is about to be sent. */
async function discardRest(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  try {
    while (!(await reader.read()).done);
  } catch {
    // The client has stopped sending, and nobody is interested in what it would have sent.
  }
}

/** What a response says, where that can be seen without reading it. Names are in lower case. */
export interface ResponseParts {
  readonly status: number;
  readonly headers: readonly HeaderPair[];
  readonly body: string | Uint8Array | null;
}

/** What is `over` takes the place of what is `under` it. */
interface Layers {
  readonly under: Headers | readonly HeaderPair[] | undefined;
  readonly over: readonly HeaderPair[];
}

/** How a platform's responses are taken apart and made. */
export interface Responses {
  /** Undefined where only reading it can tell. */
  partsOf(response: Response): ResponseParts | undefined;
  make(said: Pick<ResponseParts, "status" | "body">, headers: Layers): Response;
  /** A copy of the headers of a response; undefined where it can be seen that there are none. */
  headersOf(response: Response): Headers | undefined;
}

/** A response as every platform of the Fetch standard has it. */
export function standardResponse(
  said: {
    readonly status: number;
    readonly statusText?: string;
    readonly body: ResponseParts["body"] | ReadableStream<Uint8Array>;
  },
  { under, over }: Layers,
): Response {
  const { body, ...rest } = said;
  const headers = new Headers(under as [string, string][] | undefined);
  for (const [name, value] of over) headers.set(name, value);
  return new Response(body, { ...rest, headers });
}

export const standardResponses: Responses = {
  partsOf: () => undefined,
  make: standardResponse,
  headersOf: (response) => new Headers(response.headers),
};

/** Sends an answer that Latchkey gives itself, over the headers that outer middleware has set. */
export function toResponse(answer: HttpAnswer, outer?: Headers, responses = standardResponses): Response {
  const { status, body } = answer;
  return responses.make(
    { status, body: mayHaveBody(status) ? body : null },
    { under: outer, over: joined(answer.headers) },
  );
}

/**
 * Runs a handler that returns its answer, stores that, and hands back what may be sent. Rejects with what the handler
 * threw, once it is settled, so that whoever called reports it as always.
 */
export function runFetchHandler(
  exchange: Exchange,
  /** Rejects if it fails, and never throws. */
  handler: () => Promise<Response>,
): Promise<Response> {
  return runHandler(exchange, handler, {
    responses: standardResponses,
    answered: (response) => response,
    deliver: (response) => response,
  });
}

/** The same where the handler leaves its answer somewhere, and what may be sent is left there too. */
export function runHandler<Returned, Delivered>(
  exchange: Exchange,
  handler: () => Promise<Returned>,
  options: {
    readonly outer?: Headers | undefined;
    readonly responses: Responses;
    /** The handler's answer, once it is done. */
    answered(returned: Returned): Response;
    deliver(response: Response): Delivered;
  },
): Promise<Delivered> {
  const { outer, responses } = options;
  const respond = (answer: HttpAnswer) => toResponse(answer, outer, responses);
  const store = (response: Response) => {
    const parts = exchange.streaming ? undefined : responses.partsOf(response);
    return parts === undefined
      ? flowingOrStored(response, exchange, respond)
      : storedParts(parts, exchange, responses, respond);
  };
  return new Promise((resolve, reject) => {
    const fail = (error: unknown) =>
      exchange
        .fail(error)
        .then(({ answer, binding }) => (binding ? give(respond(answer)) : reject(error)))
        .catch(reject);
    let isGiven = false;
    // The first one counts, and what was delivered is not delivered again.
    const give = (response: Response) => {
      if (isGiven) return;
      isGiven = true;
      resolve(options.deliver(response));
    };
    exchange.onAnswered((answer) => give(respond(answer)));
    exchange.runReturning(handler).then((returned) => {
      // What was stored at once is sent at once.
      try {
        const kept = store(options.answered(returned));
        if (isPromiseLike(kept)) kept.then(give, fail);
        else give(kept);
      } catch (error) {
        fail(error);
      }
    }, fail);
  });
}

type Respond = (answer: HttpAnswer) => Response;

async function flowingOrStored(response: Response, exchange: Exchange, respond: Respond): Promise<Response> {
  // `Response.error()` can neither be sent nor be replayed.
  if (response.status < 200)
    throw new RangeError(`the handler returned a response of status ${response.status}`);
  return exchange.streaming && response.body !== null
    ? flowing(response, response.body as ReadableStream<Uint8Array>, exchange)
    : stored(response, exchange, respond);
}

/** Stores what can be seen of a response without reading it. */
function storedParts(
  parts: ResponseParts,
  exchange: Exchange,
  responses: Responses,
  respond: Respond,
): Response | Promise<Response> {
  const { status, headers } = parts;
  // Whoever made the bytes may use their memory again, so they are copied.
  const bytes = parts.body === null ? noBytes : Buffer.from(parts.body as string);
  const body = parts.body instanceof Uint8Array ? bytes : parts.body;
  return whenKnown(exchange.finish({ status, headers, body: bytes }), (finish) =>
    finish.kind === "replace"
      ? respond(finish.answer)
      : responses.make({ status, body }, { under: headers, over: finish.headers }),
  );
}

const noBytes = new Uint8Array();

async function stored(response: Response, exchange: Exchange, respond: Respond): Promise<Response> {
  const { status, statusText } = response;
  const body = new Uint8Array(await response.arrayBuffer());
  const finish = await exchange.finish({ status, headers: [...response.headers], body });
  if (finish.kind === "replace") return respond(finish.answer);
  return standardResponse(
    { status, statusText, body: mayHaveBody(status) ? body : null },
    { under: response.headers, over: finish.headers },
  );
}

/**
 * Lets the bytes flow and keeps a copy; only the end of the stream waits for the store. The handler's stream is read
 * to its end whoever listens, because a client that goes away must not stop the handler, and no faster than the client
 * takes it while it is there.
 */
function flowing(response: Response, body: ReadableStream<Uint8Array>, exchange: Exchange): Response {
  const { status } = response;
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  let listening = true;
  let wake = () => {};

  const pump = async (out: ReadableStreamDefaultController<Uint8Array>) => {
    for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
      bytes += chunk.byteLength;
      if (bytes > exchange.responseBytesMax) chunks.length = 0;
      // Whoever sends it may give its memory away, and a Buffer's own `slice` would not copy.
      else chunks.push(new Uint8Array(chunk));
      if (!listening) continue;
      out.enqueue(chunk);
      while (listening && (out.desiredSize ?? 0) <= 0) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
    const finish =
      bytes > exchange.responseBytesMax
        ? await exchange.finishOmitted(status, bytes)
        : await exchange.finish({
            status,
            headers: [...response.headers],
            body: Buffer.concat(chunks),
          });
    if (!listening) return;
    if (finish.kind === "send") out.close();
    else out.error(new Error("the answer could not be stored"));
  };

  const copy = new ReadableStream<Uint8Array>({
    start(out) {
      pump(out).catch(async (error) => {
        await exchange.fail(error);
        if (listening) out.error(error);
      });
    },
    pull: () => wake(),
    cancel() {
      listening = false;
      wake();
    },
  });
  const { statusText, headers } = response;
  return standardResponse(
    { status, statusText, body: copy },
    { under: headers, over: exchange.streamHeaders },
  );
}

/** `Headers` joins repeated fields, except cookies, which are never stored. A comma-joined list means the same. */
function joined(headers: readonly HeaderPair[]): readonly HeaderPair[] {
  const byName = headersByName(headers);
  return byName === headers ? headers : byName.map(([name, value]) => [name, [value].flat().join(", ")]);
}

/** The Fetch standard forbids even an empty body with these. */
export function mayHaveBody(status: number): boolean {
  return status !== 204 && status !== 205 && status !== 304;
}
