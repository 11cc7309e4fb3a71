import { createHash, type Hash, hash } from "node:crypto";
import { canonicalizeBytes } from "./canonical-bytes.ts";
import { type CanonicalRefusal, canonicalizeText, canonicalizeValue } from "./canonical-json.ts";
import { canonicalizeValueBytes } from "./canonical-value.ts";
import { multipartBoundary, parseMultipart } from "./multipart.ts";

/**
 * The version of everything below: which fields are hashed, in which order, and how each is made canonical.
 *
 * Fingerprints of different versions never compare equal, so bumping it makes every retry that is in flight
 * across the deployment look like another request. Bump it when two requests that differ came out equal;
 * never for speed or beauty.
 */
export const fingerprintVersion = 1;

/**
 * The body of a request: its bytes, or what another middleware that consumed the stream left of it. A parsed
 * value that is a string or a byte array counts as bytes, and `undefined` as no body at all.
 */
export type RequestBody =
  | {
      kind: "bytes";
      bytes: Uint8Array;
      /** Somebody else has undone the content encoding. */
      isDecoded?: boolean;
    }
  | { kind: "parsed"; value: unknown };

/** What of a request decides whether another one is the same request. */
export interface FingerprintInput {
  method: string;
  path: string;
  /** The raw text after the `?`, without it. */
  query: string;
  contentType: string | undefined;
  contentEncoding: string | undefined;
  body: RequestBody;
}

/** A fingerprint such as `v1:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU`, or why the body cannot have one. */
export type FingerprintAnswer =
  | { kind: "fingerprint"; fingerprint: string }
  | { kind: "refused"; reason: CanonicalRefusal };

/**
 * The fingerprint of a request's meaning: equal for a retry that only spells the request differently (reordered
 * members or parameters, another multipart boundary), different for everything else.
 */
export function fingerprintRequest(input: FingerprintInput): FingerprintAnswer {
  const digested = digestOfJson(input);
  if (digested !== undefined)
    return { kind: "fingerprint", fingerprint: `v${fingerprintVersion}:${digested}` };
  const body = describeBody(input);
  if (body.kind === "refused") return body;
  return digest([input.method, input.path, ...queryFields(input.query), ...body.fields]);
}

/**
 * The fingerprint for a route that chose its own business parameters: `selection`, which must be a plain JSON
 * value, replaces the query and the body.
 */
export function fingerprintSelection(input: {
  method: string;
  path: string;
  selection: unknown;
}): FingerprintAnswer {
  const digested = digestOfSelection(input);
  if (digested !== undefined)
    return { kind: "fingerprint", fingerprint: `v${fingerprintVersion}:${digested}` };
  const selection = canonicalizeValue(input.selection);
  if (selection.kind === "refused") return selection;
  return digest([input.method, input.path, ...queryFields(""), "selection", selection.text]);
}

/**
 * The digest of a request with an ordinary JSON document, as nearly all have, or undefined where it has another body. It
 * is what `digest` makes of the same fields.
 */
function digestOfJson(input: FingerprintInput): string | undefined {
  const { method, path, query, contentType, contentEncoding, body } = input;
  if (contentType === undefined || (contentEncoding ?? "") !== "") return undefined;
  if (!jsonFrame.isOf(method, path, query, contentType)) {
    const mediaType = mediaTypeOf(contentType);
    if (!isJson(mediaType)) return undefined;
    const head = framedText([method, path, ...queryFields(query), "json", mediaType]);
    if (!jsonFrame.begin(head, [method, path, query, contentType])) return undefined;
  }
  const document = ordinaryDocument(body);
  return document === undefined ? undefined : jsonFrame.digest(document);
}

function ordinaryDocument(body: RequestBody): Uint8Array | undefined {
  if (body.kind === "bytes") {
    return body.bytes.byteLength === 0 ? undefined : canonicalizeBytes(body.bytes);
  }
  // What else a parser may leave, such as a text, stands for something other than a JSON value.
  return typeof body.value === "object" && body.value !== null
    ? canonicalizeValueBytes(body.value)
    : undefined;
}

/** The same for a selection. */
function digestOfSelection(input: { method: string; path: string; selection: unknown }): string | undefined {
  const { method, path, selection } = input;
  const document = canonicalizeValueBytes(selection);
  if (document === undefined) return undefined;
  if (!selectionFrame.isOf(method, path, "", "")) {
    const head = framedText([method, path, ...queryFields(""), "selection"]);
    if (!selectionFrame.begin(head, [method, path, "", ""])) return undefined;
  }
  return selectionFrame.digest(document);
}

/**
 * Digests documents. The requests of one route mostly come one after the other, and all that comes before the document is
 * the same for them: it is left where it was written for the last one.
 */
class DocumentFrame {
  readonly #memory = Buffer.allocUnsafeSlow(32 * 1024);
  #of: RequestLine = ["", "", "", ""];
  #headBytes = 0;

  isOf(...[method, path, query, contentType]: RequestLine): boolean {
    const of = this.#of;
    return (
      this.#headBytes > 0 && of[0] === method && of[1] === path && of[2] === query && of[3] === contentType
    );
  }

  /** False if there is too much of it. */
  begin(head: string, of: RequestLine): boolean {
    if (utf8BytesMax * head.length > headBytesMax) return false;
    this.#headBytes = this.#memory.write(head);
    this.#of = of;
    return true;
  }

  digest(document: Uint8Array): string {
    const memory = this.#memory;
    let end = this.#headBytes;
    end += memory.write(`${document.byteLength}:`, end, "latin1");
    if (end + document.byteLength > memory.byteLength) {
      return createHash("sha256").update(memory.subarray(0, end)).update(document).digest("base64url");
    }
    memory.set(document, end);
    end += document.byteLength;
    return hash("sha256", memory.subarray(0, end), "base64url");
  }
}

/** What is before a document: the method, the path, the query and the content type. */
type RequestLine = [method: string, path: string, query: string, contentType: string];

const headBytesMax = 4096;

const jsonFrame = new DocumentFrame();
const selectionFrame = new DocumentFrame();

type Field = string | Uint8Array;

/**
 * Hashes each field as its length in bytes, a colon and its content. Whatever a client puts into one field can
 * therefore never be read as the start of another, which any separator would allow.
 */
function digest(fields: readonly Field[]): FingerprintAnswer {
  let framed: Framed | undefined;
  let pending = `${String(fingerprintVersion).length}:${fingerprintVersion}`;
  for (const field of fields) {
    const isText = typeof field === "string";
    pending += `${isText ? utf8Bytes(field) : field.byteLength}:${isText ? field : ""}`;
    if (isText && pending.length < pendingLengthMax) continue;
    framed ??= new Framed();
    framed.addText(pending);
    if (!isText) framed.addBytes(field);
    pending = "";
  }
  const digested = framed?.digest(pending) ?? hash("sha256", pending, "base64url");
  return { kind: "fingerprint", fingerprint: `v${fingerprintVersion}:${digested}` };
}

/** The fields of a digest, if all of them are texts, as they are hashed. */
function framedText(fields: readonly string[]): string {
  let text = `${String(fingerprintVersion).length}:${fingerprintVersion}`;
  for (const field of fields) text += `${utf8Bytes(field)}:${field}`;
  return text;
}

/** Most fields are short and ASCII, and looking at them takes less than asking Buffer. */
function utf8Bytes(text: string): number {
  if (text.length > shortTextMax) return Buffer.byteLength(text);
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 0x7f) return Buffer.byteLength(text);
  return text.length;
}

const shortTextMax = 32;

// A form of a million fields must not become one string of a million pieces first.
const pendingLengthMax = 4096;

/** Gathers what is hashed. Most requests fit into one piece, which is hashed at half the cost of a Hash object. */
class Framed {
  #bytes = 0;
  #hasher: Hash | undefined;

  addText(text: string): void {
    if (this.#makeRoom(utf8BytesMax * text.length)) this.#bytes += frame.write(text, this.#bytes);
    else this.#hasher?.update(text);
  }

  addBytes(bytes: Uint8Array): void {
    if (this.#makeRoom(bytes.byteLength)) {
      frame.set(bytes, this.#bytes);
      this.#bytes += bytes.byteLength;
    } else this.#hasher?.update(bytes);
  }

  /** False once there is too much for one piece: then it goes to the hasher, after what came before. */
  #makeRoom(bytes: number): boolean {
    if (this.#hasher === undefined && this.#bytes + bytes <= frame.byteLength) return true;
    this.#hasher ??= createHash("sha256").update(frame.subarray(0, this.#bytes));
    return false;
  }

  /** The digest of everything that was added, and of this last text. */
  digest(text: string): string {
    if (text !== "") this.addText(text);
    return this.#hasher?.digest("base64url") ?? hash("sha256", frame.subarray(0, this.#bytes), "base64url");
  }
}

/** Used by one digest after the other, none of which lasts longer than a call. */
const frame = Buffer.allocUnsafeSlow(32 * 1024);

// No UTF-16 code unit becomes more.
const utf8BytesMax = 3;

/** The fields that stand for a body. The first names its kind and thereby says how many follow. */
type BodyFields = { kind: "fields"; fields: Field[] } | { kind: "refused"; reason: CanonicalRefusal };

function describeBody({ body, contentType = "", contentEncoding = "" }: FingerprintInput): BodyFields {
  if (body.kind === "bytes") return describeBytes({ bytes: body.bytes, contentType, contentEncoding });

  const { value } = body;
  if (value === undefined) return fields(["empty"]);
  if (typeof value === "string") {
    // Encoding would turn every lone surrogate into one and the same replacement character.
    if (/\p{Surrogate}/u.test(value)) return { kind: "refused", reason: "lone-surrogate" };
    return describeBytes({ bytes: Buffer.from(value, "utf8"), contentType, contentEncoding });
  }
  if (ArrayBuffer.isView(value)) {
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    return describeBytes({ bytes, contentType, contentEncoding });
  }
  const mediaType = mediaTypeOf(contentType);
  // Multipart parsers leave the files elsewhere, and a fingerprint that cannot see them would let another file
  // pass as a retry. The route has to select its parameters, or run before the parser.
  if (mediaType.startsWith("multipart/")) return { kind: "refused", reason: "not-a-json-value" };

  const canonical = canonicalizeValue(value);
  if (canonical.kind === "refused") return canonical;
  if (isJson(mediaType)) return fields(["json", mediaType, canonical.text]);
  return fields([mediaType === formMediaType ? "form-parsed" : "parsed", mediaType, canonical.text]);
}

function describeBytes(body: {
  bytes: Uint8Array;
  contentType: string;
  contentEncoding: string;
}): BodyFields {
  const { bytes, contentType } = body;
  if (bytes.byteLength === 0) return fields(["empty"]);

  const mediaType = mediaTypeOf(contentType);
  const contentEncoding = body.contentEncoding.trim().toLowerCase();
  const asBytes = fields(["bytes", mediaType, contentEncoding, bytes]);
  if (contentEncoding !== "" && contentEncoding !== "identity") return asBytes;
  if (isJson(mediaType)) return describeJson(bytes, mediaType) ?? asBytes;
  if (mediaType === formMediaType) return describeForm(bytes) ?? asBytes;
  if (mediaType.startsWith("multipart/")) return describeMultipart(bytes, contentType) ?? asBytes;
  return asBytes;
}

function describeJson(bytes: Uint8Array, mediaType: string): BodyFields | undefined {
  const ordinary = canonicalizeBytes(bytes);
  if (ordinary !== undefined) return fields(["json", mediaType, ordinary]);
  const text = decodeUtf8(bytes);
  if (text === undefined) return undefined;
  // Every JSON body parser drops a byte order mark.
  const canonical = canonicalizeText(text.startsWith("\ufeff") ? text.slice(1) : text);
  switch (canonical.kind) {
    case "canonical":
      return fields(["json", mediaType, canonical.text]);
    case "notJson":
      return undefined;
    case "refused":
      return canonical;
    default:
      return canonical satisfies never;
  }
}

function describeForm(bytes: Uint8Array): BodyFields | undefined {
  const text = decodeUtf8(bytes);
  const pairs = text === undefined ? undefined : pairFields(text);
  return pairs && fields(["form", ...pairs]);
}

function describeMultipart(bytes: Uint8Array, contentType: string): BodyFields | undefined {
  const boundary = multipartBoundary(contentType);
  const parts = boundary === undefined ? undefined : parseMultipart(bytes, boundary);
  if (parts === undefined) return undefined;
  const partFields = parts.flatMap(({ headers, body }) => [String(headers.length), ...headers.flat(), body]);
  return fields(["multipart", mediaTypeOf(contentType), String(parts.length), ...partFields]);
}

function queryFields(query: string): string[] {
  if (query === "") return ["0"];
  return pairFields(query) ?? ["raw", query];
}

/**
 * The pairs of a query or form as WHATWG decodes them, sorted by name; pairs of one name keep their order. Their
 * number comes first, so that the end of the list can be told from the field after it.
 *
 * Answers `undefined` when decoding lost something: every invalid sequence becomes the same replacement
 * character, and two different requests would look alike.
 */
function pairFields(text: string): string[] | undefined {
  // URLSearchParams swallows one leading question mark, so it is given one of its own.
  const pairs = [...new URLSearchParams(`?${text}`)];
  pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const fields = [String(pairs.length)];
  for (const [name, value] of pairs) {
    if (name.includes(replacement) || value.includes(replacement)) return undefined;
    fields.push(name, value);
  }
  return fields;
}

const replacement = "\ufffd";

// Without `ignoreBOM` the decoder would drop a byte order mark, which in a form is part of the first name.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

const formMediaType = "application/x-www-form-urlencoded";

function mediaTypeOf(contentType: string): string {
  const end = contentType.indexOf(";");
  return (end < 0 ? contentType : contentType.slice(0, end)).trim().toLowerCase();
}

function isJson(mediaType: string): boolean {
  return mediaType === "application/json" || mediaType.endsWith("+json");
}

function fields(fields: Field[]): { kind: "fields"; fields: Field[] } {
  return { kind: "fields", fields };
}
