/** What `write` and `end` take. */
export type Chunk = string | Uint8Array;

export function isUtf8(encoding: unknown): boolean {
  return typeof encoding !== "string" || encoding === "utf8" || encoding === "utf-8";
}

/** A caller may reuse its buffer once `write` has returned, so the bytes are copied. */
export function toBytes(chunk: Chunk, encoding: unknown): Uint8Array {
  if (typeof chunk !== "string") return Buffer.from(chunk);
  return Buffer.from(chunk, typeof encoding === "string" ? (encoding as BufferEncoding) : "utf8");
}

export function joined(chunks: readonly Uint8Array[]): Uint8Array {
  return chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks);
}
