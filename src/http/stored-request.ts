import type { RequestBody } from "../core/fingerprint.ts";
import type { HeaderPair } from "../core/response.ts";
import { type StoredRequest, traceHeader } from "../core/stored-request.ts";
import { parseTraceparent } from "../core/traceparent.ts";
import type { HttpRequest } from "./request.ts";

/**
 * Says that a worker sends this request, to execute what was accepted instead of being told that it was. Nobody has to
 * be trusted for it: whoever may send the request may as well have it executed now.
 */
export const claimHeader = "latchkey-claim";

/** What describes a body, and what an answer may depend on; nothing that identifies a caller is kept unasked. */
const keptHeaderNames = ["idempotency-key", "content-type", "content-encoding", "accept", "accept-language"];

/** A request as a worker needs it to send it again; undefined if what a body parser left cannot be sent again. */
export function storedRequest(
  request: HttpRequest,
  body: RequestBody,
  options: {
    readonly tenant: string;
    readonly extraHeaders: readonly string[];
    /** The trace that the request came in, for a worker's to point to. */
    readonly trace?: string | undefined;
  },
): StoredRequest | undefined {
  const bytes = bytesOf(body, request.header("content-type"));
  if (bytes === undefined) return undefined;
  const headers: HeaderPair[] = [];
  for (const name of [...keptHeaderNames, ...options.extraHeaders]) {
    if (name === "content-encoding" && !isAsSent(body)) continue;
    const value = request.header(name);
    if (value !== undefined) headers.push([name.toLowerCase(), value]);
  }
  const trace = request.header(traceHeader) ?? options.trace;
  if (trace !== undefined && parseTraceparent(trace) !== undefined) headers.push([traceHeader, trace]);
  return {
    method: request.method,
    target: request.query === "" ? request.path : `${request.path}?${request.query}`,
    tenant: options.tenant,
    headers,
    body: bytes,
  };
}

/** Whether the body still has the content encoding that its header names. */
export function isAsSent(body: RequestBody): boolean {
  return body.kind === "bytes" && body.isDecoded !== true;
}

/** The body as it came, or as its parser would read it again. */
function bytesOf(body: RequestBody, contentType: string | undefined): Uint8Array | undefined {
  if (body.kind === "bytes") return body.bytes;
  const { value } = body;
  if (value === undefined) return new Uint8Array();
  if (value instanceof Uint8Array) return value;
  if (/;\s*charset=(?!"?utf-?8)/i.test(contentType ?? "")) return undefined;
  if (/^[^;]*[/+]json\b/i.test(contentType ?? "")) return Buffer.from(JSON.stringify(value));
  if (typeof value === "string") return Buffer.from(value);
  if (contentType === undefined) return Buffer.from(JSON.stringify(value));
  const isForm = /^application\/x-www-form-urlencoded\b/i.test(contentType);
  const isFlat = Object.values(value as object).every((field) => typeof field === "string");
  return isForm && isFlat
    ? Buffer.from(new URLSearchParams(value as Record<string, string>).toString())
    : undefined;
}
