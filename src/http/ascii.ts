import { isAscii } from "node:buffer";
import { bufferOf } from "../core/bytes.ts";

const textBytesMax = 16_384; // Beyond that, copying costs more than a second piece.

/**
 * A body as a text where that is the same: a text goes out in one piece with the head, bytes do not. ASCII is the same
 * in every encoding, so that a middleware which takes the encoding for granted cannot spoil it.
 */
export function textIfAscii(body: Uint8Array): string | Uint8Array {
  if (body.byteLength > textBytesMax || !isAscii(body)) return body;
  return bufferOf(body).toString("latin1");
}
