import { StoreRefusedError } from "../core/errors.ts";

/** An id as a place to go on from. What no store has made must not reach one: some fail at what is no id of theirs. */
export function cursorOf(id: string): string {
  return Buffer.from(mark + id).toString("base64url");
}

export function idIn(cursor: string): string {
  const text = Buffer.from(cursor, "base64url").toString();
  if (text.startsWith(mark) && cursorOf(text.slice(mark.length)) === cursor) return text.slice(mark.length);
  throw new StoreRefusedError(
    "this is not where a list can go on: pass `next` of the page before, as it came",
  );
}

const mark = "id:";
