import type { IncomingMessage } from "node:http";
import { isIPv6 } from "node:net";

/** What upstream is told about where a request came from. */
export interface Forwarding {
  /**
   * Whether the client's own word is kept and added to, because it is a proxy that is trusted. If not, whatever it says
   * about who sent the request is taken away: anybody could say it.
   */
  readonly trustForwarded: boolean;
}

/** How this gateway calls itself in `Via`: not by its address, which is nobody's business. */
export const pseudonym = "latchkey";

/** Which fields are made here, and are not passed on as they came. */
export function isForwardingHeader(name: string): boolean {
  return name === "via" || name === "forwarded" || name === "x-real-ip" || name.startsWith("x-forwarded-");
}

/** Adds the fields that say where the request came from to `headers`. */
export function forwardedHeaders(
  req: IncomingMessage,
  { trustForwarded }: Forwarding,
  headers: string[],
): void {
  const from = senderOf(req);
  const host = req.headers.host ?? "";
  const before = trustForwarded ? req.headers : noHeaders;
  headers.push(
    "via",
    joined(req.headers.via, req.httpVersion === "1.1" ? ownVia : `${req.httpVersion} ${pseudonym}`),
    "x-forwarded-for",
    joined(textOf(before["x-forwarded-for"]), from.address),
    "x-forwarded-proto",
    textOf(before["x-forwarded-proto"]) ?? from.protocol,
    "x-forwarded-host",
    textOf(before["x-forwarded-host"]) ?? host,
    "forwarded",
    joined(textOf(before.forwarded), host === "" ? from.element : `${from.element};host="${host}"`),
  );
  if (!trustForwarded) return;
  // What else a trusted proxy says, such as the port.
  for (const [name, value] of Object.entries(before)) {
    if (isForwardingHeader(name) && !madeAnew.has(name)) headers.push(name, textOf(value) ?? "");
  }
}

/**
 * Whether the request has come through more gateways of this kind than any set-up has: then one of them is its own
 * upstream. Two in a row are common, an edge and a sidecar, so the first repetition proves nothing.
 */
export function isLoop(req: IncomingMessage): boolean {
  const { via } = req.headers;
  if (via === undefined) return false;
  let hops = 0;
  for (const hop of via.split(",")) if (hop.trim().split(/\s+/)[1] === pseudonym) hops += 1;
  return hops >= hopsMax;
}

const hopsMax = 3;

/** What an answer says that has come through here. */
export const ownVia = `1.1 ${pseudonym}`;

const madeAnew: ReadonlySet<string> = new Set([
  "via",
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-proto",
  "x-forwarded-host",
]);

const noHeaders: IncomingMessage["headers"] = {};

interface Sender {
  readonly address: string;
  readonly protocol: "http" | "https";
  /** Both, as `Forwarded` says them. */
  readonly element: string;
}

/** One connection brings many requests, and all of them come from one place. */
const senders = new WeakMap<object, Sender>();

function senderOf({ socket }: IncomingMessage): Sender {
  const known = senders.get(socket);
  if (known !== undefined) return known;
  // An IPv4 client of a server that listens on IPv6 is the same client.
  const address = (socket.remoteAddress ?? "unknown").replace(/^::ffff:(?=\d+\.)/, "");
  const protocol = "encrypted" in socket ? "https" : "http";
  const element = `for=${isIPv6(address) ? `"[${address}]"` : address};proto=${protocol}`;
  const sender: Sender = { address, protocol, element };
  senders.set(socket, sender);
  return sender;
}

function joined(before: string | undefined, added: string): string {
  return before === undefined || before === "" ? added : `${before}, ${added}`;
}

function textOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(", ") : value;
}
