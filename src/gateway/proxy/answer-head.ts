import { isHopByHop, namedByConnection } from "./headers.ts";

/** The head of upstream's answer, as the client may have it. */
export interface AnswerHead {
  /** Names and values in turn, spelled as they came. */
  readonly headers: string[];
  /** How the end of the body is told. Without either the connection's end is the body's, as HTTP/1.0 has it. */
  readonly endsBy: "length" | "chunks" | "close";
}

/** Upstream's answer can be read in more than one way, and a client or a cache might choose another than we do. */
export class AmbiguousAnswerError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "AmbiguousAnswerError";
  }
}

/** Reads the head of an answer, and refuses what two readers could understand differently. */
export function answerHead(status: number, raw: readonly Buffer[]): AnswerHead {
  if (status === 101) throw new AmbiguousAnswerError("it switched protocols although nobody asked for it");
  const headers: string[] = [];
  const names: string[] = [];
  let connection: string | undefined;
  let length: string | undefined;
  let encoding: string | undefined;
  for (let index = 0; index < raw.length; index += 2) {
    const spelling = latin1(raw[index]);
    const value = latin1(raw[index + 1]);
    const name = spelling.toLowerCase();
    if (name === "content-length") {
      if (length !== undefined) throw new AmbiguousAnswerError("it has two lengths");
      if (!/^\d{1,15}$/.test(value)) throw new AmbiguousAnswerError("its length is not a number");
      length = value;
      // Such an answer has no body, and a length that says otherwise would have a client wait for one.
      if (status === 204) continue;
    } else if (name === "transfer-encoding") {
      if (encoding !== undefined) throw new AmbiguousAnswerError("it has two transfer encodings");
      encoding = value;
    } else if (name === "connection") {
      connection = connection === undefined ? value : `${connection},${value}`;
    }
    if (isHopByHop(name)) continue;
    headers.push(spelling, value);
    names.push(name);
  }
  if (encoding !== undefined && encoding.toLowerCase() !== "chunked") {
    throw new AmbiguousAnswerError("it has a transfer encoding that is not plainly chunked");
  }
  if (encoding !== undefined && length !== undefined) {
    throw new AmbiguousAnswerError("it has both a length and a transfer encoding");
  }
  const named = namedByConnection(connection);
  const passed = named === undefined ? headers : without(headers, names, named);
  return { headers: passed, endsBy: endOf(length, encoding) };
}

/** Fields that follow the body, without those that would change how it is read. */
export function trailersOf(raw: readonly (Buffer | string)[] | null): [name: string, value: string][] {
  const trailers: [string, string][] = [];
  for (let index = 0; index + 1 < (raw?.length ?? 0); index += 2) {
    const name = latin1(raw?.[index]).toLowerCase();
    if (isHopByHop(name) || neverTrailing.has(name)) continue;
    trailers.push([name, latin1(raw?.[index + 1])]);
  }
  return trailers;
}

/** They say how the message is read, routed or kept, which is decided before the body. */
const neverTrailing: ReadonlySet<string> = new Set([
  "content-length",
  "content-encoding",
  "content-type",
  "content-range",
  "host",
  "set-cookie",
  "cache-control",
  "authorization",
  "via",
]);

function endOf(length: string | undefined, encoding: string | undefined): AnswerHead["endsBy"] {
  if (length !== undefined) return "length";
  return encoding === undefined ? "close" : "chunks";
}

function without(headers: readonly string[], names: readonly string[], named: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (const [index, name] of names.entries()) {
    if (!named.has(name)) kept.push(headers[2 * index] as string, headers[2 * index + 1] as string);
  }
  return kept;
}

function latin1(text: Buffer | string | undefined): string {
  return typeof text === "string" ? text : (text?.toString("latin1") ?? "");
}
