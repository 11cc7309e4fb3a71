/**
 * Texts as bytes to be digested: each with its length before it, so that whatever is in one cannot be read as the
 * beginning of the next. In UTF-16, little end first: in UTF-8 all halves of surrogate pairs are one and the same.
 */
export function framed(fields: readonly string[]): Buffer {
  let text = "";
  for (const field of fields) text += `${field.length}:${field}`;
  return Buffer.from(text, "utf16le");
}
