import { hash } from "node:crypto";

/**
 * Texts as bytes to be digested: each with its length before it, so that whatever is in one cannot be read as the
 * beginning of the next. In UTF-16, little end first: in UTF-8 all halves of surrogate pairs are one and the same.
 */
export function framed(fields: readonly string[]): Buffer {
  return Buffer.from(framedText(fields), "utf16le");
}

/** The SHA-256 of framed texts, as base64url. On the path of every request that is tied to a session. */
export function framedDigest(fields: readonly string[]): string {
  const text = framedText(fields);
  const length = text.length * bytesPerCharacter;
  if (length > bench.length) return hash("sha256", Buffer.from(text, "utf16le"), "base64url");
  bench.write(text, "utf16le");
  return hash("sha256", bench.subarray(0, length), "base64url");
}

/** Where what is short is put together: memory that is used again costs less than memory that is thrown away. */
const bench = Buffer.alloc(4096);
const bytesPerCharacter = 2;

function framedText(fields: readonly string[]): string {
  let text = "";
  for (const field of fields) text += `${field.length}:${field}`;
  return text;
}
