import { fetchRequest, settleResponse, toResponse } from "../http/fetch.ts";
import { Gate, type RoutePolicy } from "../http/gate.ts";
import type { BodyReading } from "../http/request.ts";
import { answerStatus } from "../http/status.ts";
import type { Latchkey } from "../latchkey.ts";

/** A web-standard handler; a platform's further arguments are passed on. */
export type FetchHandler<Rest extends unknown[]> = (
  request: Request,
  ...rest: Rest
) => Response | Promise<Response>;

/**
 * Makes a `(Request) => Response` function idempotent: for route handlers, workers, and everything else that speaks
 * the Fetch standard.
 *
 * @example
 * ```ts
 * export const POST = idempotent(latchkey)(async (request) => {
 *   return Response.json(await charge(await request.json()), { status: 201 });
 * });
 * ```
 */
export function idempotent(
  latchkey: Latchkey,
  policy?: RoutePolicy<Request>,
): <Rest extends unknown[]>(
  handler: FetchHandler<Rest>,
) => (request: Request, ...rest: Rest) => Promise<Response> {
  const gate = new Gate(latchkey, policy);
  return (handler) =>
    async (request, ...rest) => {
      if (!gate.protects(request.method)) return handler(request, ...rest);
      let readable = request;
      const arrival = await gate.arrive(
        fetchRequest(request, {
          native: request,
          async body(bytesMax) {
            const reading = await readBody(request, bytesMax);
            if (reading.kind === "body" && request.body !== null) {
              readable = new Request(request, { body: reading.bytes as Uint8Array<ArrayBuffer> });
            }
            return reading.kind === "body"
              ? { kind: "body", body: { kind: "bytes", bytes: reading.bytes } }
              : reading;
          },
        }),
      );
      if (arrival.kind === "pass") return handler(readable, ...rest);
      if (arrival.kind === "answer") return toResponse(arrival.answer);
      const { exchange } = arrival;
      const timedOut = new Promise<Response>((resolve) =>
        exchange.onTimeout((answer) => resolve(toResponse(answer))),
      );
      const handled = exchange
        .run(async () => handler(readable, ...rest))
        .then(
          (response) => settleResponse(response, exchange),
          async (error) => {
            // Whoever called us reports the error as it always does; the key is settled before.
            await exchange.fail(error);
            throw error;
          },
        );
      return Promise.race([handled, timedOut]);
    };
}

/** The handler for `statusPath`. */
export function statusResource(
  latchkey: Latchkey,
  options: Pick<RoutePolicy<Request>, "tenant"> = {},
): (request: Request) => Promise<Response> {
  const noBody = async (): Promise<BodyReading> => ({ kind: "tooLarge" });
  return async (request) =>
    toResponse(
      await answerStatus(latchkey, fetchRequest(request, { native: request, body: noBody }), options.tenant),
    );
}

type Bytes = { readonly kind: "body"; readonly bytes: Uint8Array } | { readonly kind: "tooLarge" };

async function readBody(request: Request, bytesMax: number): Promise<Bytes> {
  if (request.body === null) return { kind: "body", bytes: new Uint8Array() };
  if (Number(request.headers.get("content-length")) > bytesMax) {
    await request.body.cancel();
    return { kind: "tooLarge" };
  }
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of request.body as unknown as AsyncIterable<Uint8Array>) {
    chunks.push(chunk);
    length += chunk.byteLength;
    if (length > bytesMax) return { kind: "tooLarge" };
  }
  return { kind: "body", bytes: Buffer.concat(chunks) };
}
