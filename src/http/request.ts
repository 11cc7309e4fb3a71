import type { RequestBody } from "../core/fingerprint.ts";
import type { TenantRequest } from "../latchkey-options.ts";

/** A request as every adapter hands it over. The body is read only if the request turns out to need protection. */
export interface HttpRequest extends TenantRequest {
  /** The raw text behind `?`, without it. */
  readonly query: string;
  /** What is one and the same object for every gate that the request passes, and no other request's: see `isInside`. */
  readonly identity: object;
  /** The value of each `Idempotency-Key` field, one by one. */
  readonly keyFields: readonly string[];
  /** Headers that every request is asked for, each by its own name: asking by any name takes several times as long. */
  readonly contentType: string | undefined;
  readonly contentEncoding: string | undefined;
  /** Whether a worker sends it. */
  readonly isClaim: boolean;
  /** Reads the whole body and leaves it readable for the handler. What is already there is answered at once. */
  body(bytesMax: number): BodyReading | Promise<BodyReading>;
}

export type BodyReading =
  | { readonly kind: "body"; readonly body: RequestBody }
  | { readonly kind: "tooLarge" };

/** The client went away while it was sending. Nothing was reserved yet, so it leaves nothing behind. */
export class RequestAbortedError extends Error {
  // What frameworks read off an error: it is no fault of the server's, and there is nobody to answer.
  readonly status = 400;
  readonly statusCode = 400;
  readonly code = "ECONNABORTED";

  constructor() {
    super("the client closed the connection before its request was complete");
    this.name = "RequestAbortedError";
  }
}

/** What a route's own `fingerprint` function selects the business parameters from. */
export interface FingerprintRequest extends TenantRequest {
  readonly query: URLSearchParams;
  readonly body: RequestBody;
  /** The body as JSON; undefined if it is none. */
  json(): unknown;
}

export function fingerprintRequest(request: HttpRequest, body: RequestBody): FingerprintRequest {
  return {
    method: request.method,
    path: request.path,
    native: request.native,
    header: (name) => request.header(name),
    query: new URLSearchParams(request.query),
    body,
    json() {
      if (body.kind === "parsed") return body.value;
      try {
        return JSON.parse(new TextDecoder().decode(body.bytes));
      } catch {
        return undefined;
      }
    },
  };
}

/** Splits what follows the host in a request line, without normalising it. */
export function splitTarget(target: string): { path: string; query: string } {
  // A proxy may send the absolute form, `http://host/path`.
  const start = target.startsWith("/") ? 0 : Math.max(0, target.indexOf("/", target.indexOf("://") + 3));
  const mark = target.indexOf("?", start);
  return mark === -1
    ? { path: target.slice(start), query: "" }
    : { path: target.slice(start, mark), query: target.slice(mark + 1) };
}
