/** Long enough for any identifier plus a prefix, short enough for an index entry in every store. */
export const keyLengthMax = 255;

/**
 * Which spellings of a key a route accepts: `structured` only the quoted string of RFC 9651, `bare` only the
 * unquoted text, `any` both, `uuid` both around an RFC 9562 UUID.
 */
export type KeyFormat = "any" | "structured" | "bare" | "uuid";

/** What the `Idempotency-Key` header said. `reason` is one sentence for the client, without the value it sent. */
export type KeyAnswer =
  | { kind: "key"; key: string }
  | { kind: "missing" }
  | { kind: "invalid"; reason: string };

/**
 * Reads the key from the values of all `Idempotency-Key` header fields of a request. The quoted and the bare
 * spelling are one key.
 *
 * @example
 * parseKey(['"order-42"'], "any"); // { kind: "key", key: "order-42" }
 * parseKey(["order-42"], "any"); //   { kind: "key", key: "order-42" }
 */
export function parseKey(fieldValues: readonly string[], format: KeyFormat): KeyAnswer {
  const [fieldValue] = fieldValues;
  if (fieldValue === undefined) return { kind: "missing" };
  if (fieldValues.length > 1) return invalid(sentences.repeated);

  const value = trimOptionalWhitespace(fieldValue);
  const quoted = value.charCodeAt(0) === 0x22;
  if (value === "") return invalid(sentences.empty);
  if (format === "structured" && !quoted) return invalid(sentences.notQuoted);
  if (format === "bare" && quoted) return invalid(sentences.quoted);

  const answer = quoted ? parseQuoted(value) : parseBare(value);
  if (answer.kind !== "key") return answer;
  if (answer.key === "") return invalid(sentences.empty);
  if (answer.key.length > keyLengthMax) return invalid(sentences.tooLong);
  if (format !== "uuid") return answer;
  // Letter case is no part of a UUID's identity, and libraries disagree on which one to print.
  return uuid.test(answer.key) ? { kind: "key", key: answer.key.toLowerCase() } : invalid(sentences.notUuid);
}

/** The Unix time in milliseconds at which a UUIDv7 key was made; `undefined` for every other key. */
export function keyTimeMs(key: string): number | undefined {
  if (!uuid.test(key) || key[14] !== "7") return undefined;
  return Number.parseInt(key.slice(0, 8) + key.slice(9, 13), 16);
}

// Versions 1 to 8 of the RFC 9562 variant, and the two special forms, nil and max.
const uuid =
  /^(?:[\da-f]{8}-[\da-f]{4}-[1-8][\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}|0{8}-(?:0{4}-){3}0{12}|f{8}-(?:f{4}-){3}f{12})$/i;

/** Each says what is wrong and what to send instead. The value itself stays out: it may be a secret or markup. */
const sentences = {
  repeated: "The Idempotency-Key header was sent more than once; send it exactly once, with a single key.",
  empty:
    "The Idempotency-Key header is empty; send a value that is unique to this operation, such as a UUID.",
  tooLong: `The idempotency key is too long; send at most ${keyLengthMax} characters.`,
  notQuoted: "This endpoint takes the idempotency key as a structured string; send it within double quotes.",
  quoted: "This endpoint takes the idempotency key as bare text; send it without the double quotes.",
  notUuid: "The idempotency key is not a UUID; send one, such as a random (version 4) UUID.",
  unterminated: "The quoted idempotency key has no closing quote; end it with a double quote.",
  escape:
    "The quoted idempotency key has a backslash that escapes nothing; write a backslash as two, and a double quote with one before it.",
  parameters: "The Idempotency-Key header carries parameters; send the key alone, without a semicolon.",
  trailing: "The Idempotency-Key header has text after the closing quote; send the quoted key alone.",
  notAscii:
    "The idempotency key holds a control character or one outside ASCII; send printable ASCII characters only.",
  bareCharacter:
    "The bare idempotency key holds a space, a double quote or a backslash; remove it, or send the key within double quotes.",
};

function parseQuoted(value: string): KeyAnswer {
  let key = "";
  for (let i = 1; i < value.length; i++) {
    const character = value[i] as string;
    if (character === '"') return afterQuoted(value.slice(i + 1)) ?? { kind: "key", key };
    if (!isPrintable(character)) return invalid(sentences.notAscii);
    if (character !== "\\") {
      key += character;
      continue;
    }
    const escaped = value[++i];
    if (escaped !== '"' && escaped !== "\\") return invalid(sentences.escape);
    key += escaped;
  }
  return invalid(sentences.unterminated);
}

function afterQuoted(rest: string): KeyAnswer | undefined {
  const next = trimOptionalWhitespace(rest)[0];
  if (next === undefined) return undefined;
  // Many runtimes join repeated fields with a comma before anyone can count them.
  if (next === ",") return invalid(sentences.repeated);
  return invalid(next === ";" ? sentences.parameters : sentences.trailing);
}

/** By codes rather than characters, each of which would be a text of its own: this is on the path of every request. */
function parseBare(value: string): KeyAnswer {
  for (let i = 0; i < value.length; i++) {
    const code = value.charCodeAt(i);
    if (code < 0x20 || code > 0x7e) return invalid(sentences.notAscii);
    if (code === 0x2c) return invalid(sentences.repeated); // ,
    if (code === 0x3b) return invalid(sentences.parameters); // ;
    if (code === 0x20 || code === 0x22 || code === 0x5c) return invalid(sentences.bareCharacter); // " and \
  }
  return { kind: "key", key: value };
}

function isPrintable(character: string): boolean {
  return character >= " " && character <= "~";
}

function trimOptionalWhitespace(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isSpaceOrTab(text.charCodeAt(start))) start++;
  while (end > start && isSpaceOrTab(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

function isSpaceOrTab(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

function invalid(reason: string): KeyAnswer {
  return { kind: "invalid", reason };
}
