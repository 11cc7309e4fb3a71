import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Fields, Piece, Reply } from "../application.ts";

/** Writes a reply to a Node response without any framework's help. */
export async function writeReply(res: ServerResponse, reply: Reply): Promise<void> {
  switch (reply.kind) {
    case "json":
      head(res, reply.status, [["content-type", "application/json"], ...reply.fields]);
      res.end(JSON.stringify(reply.value));
      return;
    case "text":
      head(res, reply.status, [["content-type", "text/plain; charset=utf-8"], ...reply.fields]);
      res.end(reply.text);
      return;
    case "bytes":
      head(res, reply.status, [["content-type", "application/octet-stream"], ...reply.fields]);
      res.end(reply.bytes);
      return;
    case "empty":
      res.statusCode = reply.status;
      res.end();
      return;
    case "pieces":
      writePieces(res, reply.status, reply.fields, reply.pieces);
      return;
    case "stream":
      res.statusCode = reply.status;
      for (const [name, value] of reply.fields) res.appendHeader(name, value);
      await pipeline(Readable.from(reply.source(), { objectMode: false }), res);
      return;
    case "fail":
      throw Object.assign(new Error(reply.message), { status: reply.status });
    case "twice":
      await writeReply(res, reply.first);
      await writeReply(res, reply.second);
      return;
    default:
      return reply satisfies never;
  }
}

export function writePieces(
  res: ServerResponse,
  status: number,
  fields: Fields,
  pieces: readonly Piece[],
): void {
  head(res, status, fields);
  for (const piece of pieces) res.write(piece);
  res.end();
}

/** Node takes repeated fields as a list of values. */
function head(res: ServerResponse, status: number, fields: Fields): void {
  const headers: Record<string, string | string[]> = {};
  for (const [name, value] of fields) {
    const before = headers[name];
    headers[name] = before === undefined ? value : [before, value].flat();
  }
  res.writeHead(status, headers);
}

/** By its events, as body parsers do: unlike an iterator, they miss an end that came before them. */
export function readBytes(req: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => resolve(Buffer.concat(chunks)));
    req.on("error", reject);
    req.on("aborted", () => reject(new Error("the request was aborted")));
  });
}

/** What a small body parser would make of the bytes; anything that it does not know stays bytes. */
export function parsed(bytes: Buffer, contentType: string | undefined): unknown {
  if (contentType?.startsWith("application/json")) return JSON.parse(bytes.toString("utf8"));
  if (contentType?.startsWith("application/x-www-form-urlencoded")) {
    return Object.fromEntries(new URLSearchParams(bytes.toString("utf8")));
  }
  return bytes;
}

/** Whether the parsers of the example applications parse it. */
export function isParsed(contentType: string | undefined): boolean {
  return /^application\/(json|x-www-form-urlencoded|octet-stream)/.test(contentType ?? "");
}
