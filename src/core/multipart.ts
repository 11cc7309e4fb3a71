import { bufferOf } from "./bytes.ts";

/** One part of a multipart body, without anything that depends on the boundary. */
export interface Part {
  /**
   * Names in lower case, sorted by name; fields of one name keep their order. Values are decoded as Latin-1, so
   * that every byte of them counts, whatever charset the sender had in mind.
   */
  headers: [name: string, value: string][];
  body: Uint8Array;
}

/**
 * Splits a multipart body (RFC 2046, section 5.1), or answers `undefined` when it is malformed.
 *
 * It is deliberately stricter than the servers behind it: whatever two of them might split differently counts
 * as malformed here, and the caller then works with the raw bytes, which are never wrong.
 */
export function parseMultipart(bytes: Uint8Array, boundary: string): Part[] | undefined {
  const buffer = bufferOf(bytes);
  const delimiter = Buffer.from(`\r\n--${boundary}`, "latin1");
  const parts: Part[] = [];
  let line = firstDelimiterLine(buffer, delimiter);
  while (line?.kind === "opens") {
    const end = buffer.indexOf(delimiter, line.end);
    const part = end < 0 ? undefined : parsePart(buffer.subarray(line.end, end));
    if (part === undefined) return undefined;
    parts.push(part);
    line = delimiterLine(buffer, end + delimiter.length);
  }
  // A body without its closing delimiter was cut off, and one that only closes holds nothing to compare.
  return line === undefined || parts.length === 0 ? undefined : parts;
}

/** The boundary of a `multipart/*` content type, or `undefined` when there is not exactly one valid boundary. */
export function multipartBoundary(contentType: string): string | undefined {
  const mediaType = /^[ \t]*multipart\/[!#$%&'*+.^_`|~\w-]+[ \t]*(?=;)/i.exec(contentType);
  if (mediaType === null) return undefined;
  const parameter = /;[ \t]*([!#$%&'*+.^_`|~\w-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))[ \t]*/y;
  parameter.lastIndex = mediaType[0].length;
  let boundary: string | undefined;
  while (parameter.lastIndex < contentType.length) {
    const match = parameter.exec(contentType);
    if (match === null) return undefined;
    if (match[1]?.toLowerCase() !== "boundary") continue;
    if (boundary !== undefined) return undefined;
    boundary = match[3] ?? match[2]?.replace(/\\(.)/g, "$1");
  }
  return boundary !== undefined && isBoundary(boundary) ? boundary : undefined;
}

function isBoundary(text: string): boolean {
  return /^[\w'()+,./:=? -]{0,69}[\w'()+,./:=?-]$/.test(text);
}

/** What follows a boundary: another part begins at `end`, or the body is closed. */
type DelimiterLine = { kind: "opens"; end: number } | { kind: "closes" };

/** The very first delimiter may stand at the start of the body, without the line break that belongs to it. */
function firstDelimiterLine(buffer: Buffer, delimiter: Buffer): DelimiterLine | undefined {
  const dashBoundary = delimiter.subarray(2);
  if (buffer.subarray(0, dashBoundary.length).equals(dashBoundary)) {
    return delimiterLine(buffer, dashBoundary.length);
  }
  const afterPreamble = buffer.indexOf(delimiter);
  return afterPreamble < 0 ? undefined : delimiterLine(buffer, afterPreamble + delimiter.length);
}

function delimiterLine(buffer: Buffer, afterBoundary: number): DelimiterLine | undefined {
  const closes = buffer[afterBoundary] === dash && buffer[afterBoundary + 1] === dash;
  let i = closes ? afterBoundary + 2 : afterBoundary;
  while (buffer[i] === space || buffer[i] === tab) i++;
  const lineEnds = buffer[i] === carriageReturn && buffer[i + 1] === lineFeed;
  if (closes) return lineEnds || i === buffer.length ? { kind: "closes" } : undefined;
  return lineEnds ? { kind: "opens", end: i + 2 } : undefined;
}

const dash = 0x2d;
const space = 0x20;
const tab = 0x09;
const carriageReturn = 0x0d;
const lineFeed = 0x0a;

/** RFC 2046 lets a part end after its headers, without the empty line; parsers disagree on it, so it is refused. */
function parsePart(content: Buffer): Part | undefined {
  if (content[0] === carriageReturn && content[1] === lineFeed) {
    return { headers: [], body: content.subarray(2) };
  }
  const headersEnd = content.indexOf("\r\n\r\n", 0, "latin1");
  if (headersEnd < 0) return undefined;
  const headers: Part["headers"] = [];
  for (const line of content.toString("latin1", 0, headersEnd).split("\r\n")) {
    const header = parseHeader(line);
    if (header === undefined) return undefined;
    headers.push(header);
  }
  headers.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return { headers, body: content.subarray(headersEnd + 4) };
}

/** A folded line, a line without a name and one with a stray line break or NUL are all malformed. */
function parseHeader(line: string): [name: string, value: string] | undefined {
  const colon = line.indexOf(":");
  if (colon < 0) return undefined;
  const name = line.slice(0, colon);
  const value = line.slice(colon + 1);
  if (!/^[!#$%&'*+.^_`|~\w-]+$/.test(name) || !/^[\t -~\x80-\xff]*$/.test(value)) return undefined;
  return [name.toLowerCase(), value.replace(/^[ \t]+/, "")];
}
