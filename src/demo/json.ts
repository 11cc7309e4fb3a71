import type { IncomingMessage, ServerResponse } from "node:http";

const bodyBytesMax = 16 * 1024; // An order with an amount takes a hundred.

export async function bytesOf(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    bytes += chunk.byteLength;
    if (bytes > bodyBytesMax) throw new Error(`the body is larger than ${bodyBytesMax} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** The body as a JSON object; throws with a sentence if it is not that. */
export function objectIn(body: Buffer): Readonly<Record<string, unknown>> {
  const value: unknown = JSON.parse(body.toString());
  if (typeof value !== "object" || value === null) throw new Error("the body must be a JSON object");
  return value as Record<string, unknown>;
}

export function sendJson(res: ServerResponse, status: number, body: unknown): void {
  if (res.destroyed || res.headersSent) return;
  res.writeHead(status, { "content-type": "application/json", "cache-control": "no-store" });
  res.end(JSON.stringify(body));
}
