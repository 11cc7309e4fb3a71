import type { IncomingMessage } from "node:http";
import { ConfigError } from "../core/errors.ts";
import type { RequestBody } from "../core/fingerprint.ts";
import { type BodyReading, type HttpRequest, splitTarget } from "./request.ts";

/** A Node request as the gate wants it. `native` is what the framework calls its request. */
export function nodeRequest(req: IncomingMessage, native: unknown): HttpRequest {
  // Express and Koa rewrite `url` below a mount point, and keep what the client sent.
  const target = (req as { originalUrl?: string }).originalUrl ?? req.url ?? "/";
  const { path, query } = splitTarget(target);
  return {
    method: req.method ?? "",
    path,
    query,
    native,
    header(name) {
      const value = req.headers[name.toLowerCase()];
      return Array.isArray(value) ? value.join(", ") : value;
    },
    keyFields: keyFieldsOf(req.rawHeaders),
    body: (bytesMax) => readNodeBody(req, bytesMax),
  };
}

/** Node joins repeated fields into one text; only the raw list shows that there were two. */
function keyFieldsOf(rawHeaders: readonly string[]): string[] {
  const fields: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    if (name.length === keyHeader.length && name.toLowerCase() === keyHeader)
      fields.push(rawHeaders[index + 1] as string);
  }
  return fields;
}

const keyHeader = "idempotency-key";

/** What was read here and put back, so that a second reader of the same request finds it. */
const bodies = new WeakMap<IncomingMessage, Uint8Array>();

/** Reads the whole body and puts it back, so that whoever comes next can read it as if nobody had. */
export async function readNodeBody(req: IncomingMessage, bytesMax: number): Promise<BodyReading> {
  const known = bodies.get(req);
  if (known !== undefined) {
    return known.byteLength > bytesMax
      ? { kind: "tooLarge" }
      : { kind: "body", body: { kind: "bytes", bytes: known } };
  }
  if (Number(req.headers["content-length"]) > bytesMax) {
    req.resume();
    return { kind: "tooLarge" };
  }
  if (!hasBody(req)) return { kind: "body", body: { kind: "bytes", bytes: noBytes } };
  if (req.readableDidRead) return { kind: "body", body: bodyLeftByParser(req) };
  const bytes = await drainAndPutBack(req, bytesMax);
  if (bytes === undefined) {
    // The rest is of no interest, but an unread body would block the connection.
    req.resume();
    return { kind: "tooLarge" };
  }
  bodies.set(req, bytes);
  return { kind: "body", body: { kind: "bytes", bytes } };
}

const noBytes = new Uint8Array();

/** RFC 9112: a request has a body if and only if one of these fields says so. */
function hasBody(req: IncomingMessage): boolean {
  if (req.headers["transfer-encoding"] !== undefined) return true;
  const length = req.headers["content-length"];
  return length !== undefined && length !== "0";
}

/** Another middleware consumed the stream. What it left is all there is. */
function bodyLeftByParser(req: IncomingMessage): RequestBody {
  const { rawBody, body } = req as { rawBody?: unknown; body?: unknown };
  if (rawBody instanceof Uint8Array) return { kind: "bytes", bytes: rawBody };
  if (typeof rawBody === "string") return { kind: "bytes", bytes: Buffer.from(rawBody) };
  const contentType = req.headers["content-type"] ?? "";
  if (/^multipart\//i.test(contentType)) {
    throw new ConfigError(
      "a multipart parser consumed this request before Latchkey saw it, so its files cannot be part of the " +
        "fingerprint: mount idempotent(latchkey) before the parser",
    );
  }
  if (body === undefined) {
    throw new ConfigError(
      "something consumed the body of this request before Latchkey saw it and left neither req.body nor " +
        "req.rawBody: mount idempotent(latchkey) before it",
    );
  }
  return { kind: "parsed", value: body };
}

/**
 * Reads to the end and pushes everything back before the stream can emit `end`. That is possible because `end` is
 * emitted only once the buffer is empty, and `unshift` refills it in the same turn in which the last chunk was taken.
 */
function drainAndPutBack(req: IncomingMessage, bytesMax: number): Promise<Uint8Array | undefined> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const onReadable = () => {
      for (let chunk: Buffer | null = req.read(); chunk !== null; chunk = req.read()) {
        chunks.push(chunk);
        length += chunk.byteLength;
      }
      if (length > bytesMax) finish(undefined);
      else if (req.complete) putBack();
    };
    const putBack = () => {
      const bytes = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
      stop();
      if (bytes.byteLength > 0) req.unshift(bytes);
      resolve(bytes);
    };
    const finish = (result: Uint8Array | undefined) => {
      stop();
      resolve(result);
    };
    // Nothing was reserved yet, so a client that goes away while it sends leaves nothing behind.
    const onGone = () => {
      stop();
      reject(new Error("the client closed the connection before its request was complete"));
    };
    const stop = () => {
      req.off("readable", onReadable);
      req.off("end", putBack);
      req.off("error", onGone);
      req.off("close", onGone);
    };
    req.on("readable", onReadable);
    req.on("end", putBack);
    req.on("error", onGone);
    req.on("close", onGone);
  });
}
