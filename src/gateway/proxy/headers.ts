import type { IncomingMessage } from "node:http";
import { claimHeader } from "../../http/stored-request.ts";
import { dispatchHeaderNames } from "../own-dispatch.ts";
import { type Forwarding, forwardedHeaders, isForwardingHeader } from "./forwarded.ts";

/** Fields that speak about one connection, and say nothing to whoever is behind the next one. */
const hopByHopNames: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** What is not passed on beside those: it is said anew for the next connection, or is between workers and the gate. */
const ownRequestNames: ReadonlySet<string> = new Set([
  "host",
  "content-length",
  "expect", // Node has already asked the client for the body.
  "http2-settings",
  claimHeader,
  ...dispatchHeaderNames,
]);

export function isHopByHop(name: string): boolean {
  return hopByHopNames.has(name) || name.startsWith("proxy-");
}

/** The fields that a `Connection` field names, which end with it; undefined if it names none. */
export function namedByConnection(value: string | undefined): ReadonlySet<string> | undefined {
  if (value === undefined || value === "keep-alive" || value === "close") return undefined;
  return new Set(value.toLowerCase().split(",").map(trimmed));
}

const trimmed = (text: string) => text.trim();

/**
 * What upstream gets, names and values in turn, spelled as they came. The length is not among them: it is said by
 * whoever knows the body.
 */
export function requestHeaders(req: IncomingMessage, forwarding: Forwarding, host: string): string[] {
  const { rawHeaders } = req;
  const named = namedByConnection(req.headers.connection);
  const headers: string[] = ["host", host];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const spelling = rawHeaders[index] as string;
    const name = spelling.toLowerCase();
    if (isHopByHop(name) || ownRequestNames.has(name) || isForwardingHeader(name)) continue;
    if (named?.has(name)) continue;
    headers.push(spelling, rawHeaders[index + 1] as string);
  }
  forwardedHeaders(req, forwarding, headers);
  return headers;
}
