import { StoreError } from "../../core/errors.ts";

/** An answer that is known, and which of the calls of a batch asked for it, from 1. */
export interface PackedAnswer {
  readonly place: number;
  readonly status: number;
  readonly expires: number;
  readonly head: string;
  readonly body: Uint8Array;
}

/**
 * Reads the text in which the function `latchkey_reserve_known` of the migration 0014 tells all of them. Whoever counted
 * wrong would hand somebody the answer of another, so a text that does not end where it says is not read at all.
 */
export function unpackAnswers(text: string): PackedAnswer[] {
  const answers: PackedAnswer[] = [];
  let at = 0;
  let nextEscape = -1;

  /** The digits from here on, and past the one character behind them. */
  const number = (): number => {
    let value = 0;
    for (;;) {
      const digit = text.charCodeAt(at++) - zero;
      if (!(digit >= 0 && digit <= 9)) return value;
      value = value * 10 + digit;
    }
  };
  const isWithoutEscapes = (end: number): boolean => {
    // Looked for once and not again for each answer: there may be none in the whole text.
    if (nextEscape < at) nextEscape = text.indexOf("\\", at);
    if (nextEscape < 0) nextEscape = text.length;
    return nextEscape >= end;
  };

  while (at < text.length) {
    const [place, status, expires, headLength, bodyLength] = [
      number(),
      number(),
      number(),
      number(),
      number(),
    ];
    const isHex = text.charCodeAt(at - 1) === hexForm;
    const head = headOf(text, at, headLength);
    at += headLength;
    const end = at + bodyLength;
    const isPlain = isHex || isWithoutEscapes(end);
    const written = text.slice(at, end);
    const body = isPlain ? Buffer.from(written, isHex ? "hex" : "latin1") : unescaped(written);
    if (text.charCodeAt(end) !== newLine)
      throw new StoreError("answers from Postgres are not as long as they say");
    at = end + 1;
    answers.push({ place, status, expires, head, body });
  }
  return answers;
}

const zero = "0".charCodeAt(0);
const hexForm = "x".charCodeAt(0);
const newLine = "\n".charCodeAt(0);
const backslash = "\\".charCodeAt(0);

/** The one that was read last. Most answers of an API have the same, and a part of a text would keep all of it in memory. */
let lastHead = "";

function headOf(text: string, at: number, length: number): string {
  if (lastHead.length !== length || !text.startsWith(lastHead, at)) {
    lastHead = Buffer.from(text.slice(at, at + length), "latin1").toString("latin1");
  }
  return lastHead;
}

/** Bytes as Postgres escapes them: a backslash as two, and what is not ASCII as a backslash and three octal digits. */
function unescaped(written: string): Uint8Array {
  const bytes = Buffer.allocUnsafe(written.length);
  let length = 0;
  for (let at = 0; at < written.length; at += 1) {
    const code = written.charCodeAt(at);
    if (code !== backslash) bytes[length++] = code;
    else if (written.charCodeAt(at + 1) === backslash) {
      bytes[length++] = backslash;
      at += 1;
    } else {
      bytes[length++] = Number.parseInt(written.slice(at + 1, at + 4), 8);
      at += 3;
    }
  }
  return bytes.subarray(0, length);
}
