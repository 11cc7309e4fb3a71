import { fetchRequest, readFetchBody, runFetchHandler, saysTooLarge, toResponse } from "../http/fetch.ts";
import { Gate, type RoutePolicy } from "../http/gate.ts";
import type { BodyReading } from "../http/request.ts";
import { answerStatus, type StatusOptions } from "../http/status.ts";
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
      const arrival = await gate.arrive(
        fetchRequest(request, { native: request, body: (bytesMax) => readBody(request, bytesMax) }),
      );
      if (arrival.kind === "pass") return handler(request, ...rest);
      if (arrival.kind === "answer") return toResponse(arrival.answer);
      return runFetchHandler(arrival.exchange, async () => handler(request, ...rest));
    };
}

/** The handler for `statusPath`. */
export function statusResource(
  latchkey: Latchkey,
  options: StatusOptions<Request> = {},
): (request: Request) => Promise<Response> {
  const noBody = async (): Promise<BodyReading> => ({ kind: "tooLarge" });
  return async (request) =>
    toResponse(
      await answerStatus(latchkey, fetchRequest(request, { native: request, body: noBody }), options),
    );
}

/** Reads a copy: routers and platforms hang things onto a request, so the handler must get the very same one. */
async function readBody(request: Request, bytesMax: number): Promise<BodyReading> {
  if (saysTooLarge(request, bytesMax)) return { kind: "tooLarge" };
  const bytes = await readFetchBody(request.bodyUsed ? request : request.clone(), bytesMax);
  if (bytes !== undefined) return { kind: "body", body: { kind: "bytes", bytes } };
  // The copy is read to its end, and the original must not collect what nobody will read.
  request.body?.cancel().catch(() => {});
  return { kind: "tooLarge" };
}
