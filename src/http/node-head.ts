import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from "node:http";

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
