import {
  type OutgoingHttpHeader,
  type OutgoingHttpHeaders,
  type ServerResponse,
  validateHeaderName,
  validateHeaderValue,
} from "node:http";

/** Gives a response the headers that it had before, and no others. */
export function restoreHeaders(res: ServerResponse, headers: OutgoingHttpHeaders): void {
  for (const name of res.getHeaderNames()) {
    if (headers[name] === undefined) res.removeHeader(name);
  }
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && res.getHeader(name) !== value) res.setHeader(name, value);
  }
}

/** What `writeHead` takes: an object, or names and values in turn. */
export function setHeaders(
  res: ServerResponse,
  headers: OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined,
): void {
  if (headers === undefined) return;
  if (!Array.isArray(headers)) {
    for (const [name, value] of Object.entries(headers)) if (value !== undefined) res.setHeader(name, value);
    return;
  }
  const byName = new Map<string, OutgoingHttpHeader>();
  for (let index = 0; index < headers.length; index += 2) {
    const name = String(headers[index]).toLowerCase();
    const value = headers[index + 1] as OutgoingHttpHeader;
    const before = byName.get(name);
    byName.set(name, before === undefined ? value : [before, value].flat().map(String));
  }
  for (const [name, value] of byName) res.setHeader(name, value);
}

/**
 * A copy of the headers that were given to `writeHead`, if they are all that the response has, with its length, and in
 * the spelling in which they are stored. Such a head can be sent as it was given, without setting each of its headers
 * and reading it back. Fails where Node would.
 */
export function wholeHead(
  res: ServerResponse,
  headers: OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined,
): Record<string, string> | undefined {
  if (headers === undefined || Array.isArray(headers) || res.getHeaderNames().length > 0) return undefined;
  if (headers["content-length"] === undefined) return undefined;
  const head: Record<string, string> = {};
  for (const name in headers) {
    const value = headers[name];
    // Also what comes from a prototype, which Node would leave out.
    if (!Object.hasOwn(headers, name)) return undefined;
    if (typeof value === "number") head[name] = String(value);
    else if (typeof value === "string") head[name] = value;
    else return undefined;
    if (lastValues.get(name) === value) continue;
    if (name !== name.toLowerCase()) return undefined;
  }
  for (const name in head) validate(name, head[name] as string);
  return head;
}

/** As Node does it, except for what was found to be valid the last time: most answers of a service have the same headers. */
function validate(name: string, value: string): void {
  if (lastValues.get(name) === value) return;
  validateHeaderName(name);
  validateHeaderValue(name, value);
  if (lastValues.size < lastValuesMax || lastValues.has(name)) lastValues.set(name, value);
}

/** By name, in lower case; each of them is valid. */
const lastValues = new Map<string, string>();

const lastValuesMax = 100; // A service has so many names at most; others are looked at every time.

/** Fails where Node would, when the handler can still be told, and not when the answer is already stored. */
export function assertHead(status: number, message: string | undefined): void {
  if (!(status >= 100 && status <= 999)) {
    throw Object.assign(new RangeError(`Invalid status code: ${status}`), {
      code: "ERR_HTTP_INVALID_STATUS_CODE",
    });
  }
  if (message !== undefined && /[^\t\x20-\x7e\x80-\xff]/.test(message)) {
    throw Object.assign(new TypeError("Invalid character in statusMessage"), { code: "ERR_INVALID_CHAR" });
  }
}
