import type { HeaderPair } from "../core/response.ts";
import type { HttpAnswer } from "./answer.ts";
import type { Exchange, Finish } from "./exchange.ts";
import { type BodyReading, type HttpRequest, splitTarget } from "./request.ts";

/** A web-standard `Request` as the gate wants it. */
export function fetchRequest(
  request: Request,
  options: { readonly native: unknown; readonly body: (bytesMax: number) => Promise<BodyReading> },
): HttpRequest {
  const { path, query } = splitTarget(request.url);
  const key = request.headers.get("idempotency-key");
  return {
    method: request.method,
    path,
    query: query.replace(/#.*/s, ""),
    native: options.native,
    header: (name) => request.headers.get(name) ?? undefined,
    keyFields: key === null ? [] : [key],
    body: options.body,
  };
}

/** Sends an answer that Latchkey gives itself. */
export function toResponse(answer: HttpAnswer): Response {
  const { status, headers, body } = answer;
  return new Response(mayHaveBody(status) ? asBuffer(body) : null, {
    status,
    headers: headers.map(([...pair]) => pair),
  });
}

/** Stores a response and hands back what may be sent. */
export async function settleResponse(response: Response, exchange: Exchange): Promise<Response> {
  if (exchange.streaming && response.body !== null) return flowing(response, response.body, exchange);
  const body = new Uint8Array(await response.arrayBuffer());
  const finish = await exchange.finish({
    status: response.status,
    headers: headerPairs(response.headers),
    body,
  });
  if (finish.kind === "replace") return toResponse(finish.answer);
  return withHeaders(response, mayHaveBody(response.status) ? asBuffer(body) : null, finish.headers);
}

/** Lets the bytes flow and keeps a copy; only the end of the stream waits for the store. */
function flowing(response: Response, body: ReadableStream<Uint8Array>, exchange: Exchange): Response {
  const { status } = response;
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const settle = (): Promise<Finish> =>
    bytes > exchange.responseBytesMax
      ? exchange.finishOmitted(status, bytes)
      : exchange.finish({ status, headers: headerPairs(response.headers), body: Buffer.concat(chunks) });
  const reader = body.getReader();
  // A client that goes away must not stop the handler: the stream is read to its end whoever listens.
  const copy = new ReadableStream<Uint8Array>({
    async start(controller) {
      let listening = true;
      const tell = (act: () => void) => {
        if (!listening) return;
        try {
          act();
        } catch {
          listening = false;
        }
      };
      const pump = async () => {
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
          const chunk = part.value;
          bytes += chunk.byteLength;
          if (bytes > exchange.responseBytesMax) chunks.length = 0;
          else chunks.push(chunk.slice());
          tell(() => controller.enqueue(chunk));
        }
        const finish = await settle();
        if (finish.kind === "send") tell(() => controller.close());
        else tell(() => controller.error(new Error("the answer could not be stored")));
      };
      pump().catch(async (error) => {
        await exchange.fail(error);
        tell(() => controller.error(error));
      });
    },
  });
  return withHeaders(response, copy, []);
}

function withHeaders(
  response: Response,
  body: ReadableStream<Uint8Array> | ArrayBuffer | null,
  extra: readonly HeaderPair[],
): Response {
  const headers = new Headers(response.headers);
  for (const [name, value] of extra) headers.set(name, value);
  return new Response(body, { status: response.status, statusText: response.statusText, headers });
}

/** `Headers` joins repeated fields, except cookies, which are never stored. A comma-joined list means the same. */
function headerPairs(headers: Headers): HeaderPair[] {
  return [...headers.entries()];
}

/** The Fetch standard forbids even an empty body with these. */
function mayHaveBody(status: number): boolean {
  return status !== 204 && status !== 205 && status !== 304;
}

function asBuffer(bytes: Uint8Array): ArrayBuffer {
  const { buffer, byteOffset, byteLength } = bytes;
  if (buffer instanceof ArrayBuffer && byteOffset === 0 && byteLength === buffer.byteLength) return buffer;
  return bytes.slice().buffer as ArrayBuffer;
}
