import { ConfigError } from "./errors.ts";

export type HeaderPair = readonly [name: string, value: string];

/** What a handler answered, before any rule of what may be stored. */
export interface CapturedResponse {
  readonly status: number;
  readonly headers: readonly HeaderPair[];
  readonly body: Uint8Array;
}

/** Why only the status of an answer is known. */
export type OmittedBecause =
  /** The route's rules for redaction could not be applied to it, and it must not be stored without. */
  | "not-redactable"
  /** The secret of its tenant was removed, and nobody can read it any more. */
  | "shredded";

/** What is kept for the retries: everything, or only that it was not kept; too large, if nothing else is said. */
export type StoredResponse = (
  | {
      readonly kind: "full";
      readonly status: number;
      readonly headers: readonly HeaderPair[];
      readonly body: Uint8Array;
    }
  | {
      readonly kind: "omitted";
      readonly status: number;
      readonly bodyBytes: number;
      readonly because?: OmittedBecause;
    }
) & {
  /** The W3C trace context of the execution that made it, for the traces of its replays to point to. */
  readonly trace?: string | undefined;
};

/**
 * Headers that say something about the answer itself, and are as true in a week as they are now. What describes one
 * connection or one moment is made anew for each replay.
 */
const storedHeaderNames: ReadonlySet<string> = new Set([
  "content-type",
  "content-language",
  "content-encoding",
  "location",
  "etag",
  "link",
  "last-modified",
  "cache-control",
  "vary",
]);

/** Headers that would be wrong or dangerous in a replay, even when a route asks for them. */
const neverStoredHeaderNames: ReadonlySet<string> = new Set([
  "set-cookie",
  "set-cookie2",
  "date",
  "content-length",
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

const headerNamePattern = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;

/** Which headers a route stores: the common ones plus its own. Refuses what must never be replayed. */
export function headerAllowList(extraNames: readonly string[]): ReadonlySet<string> {
  if (extraNames.length === 0) return storedHeaderNames;
  const names = new Set(storedHeaderNames);
  for (const extra of extraNames) {
    const name = extra.toLowerCase();
    if (neverStoredHeaderNames.has(name)) {
      throw new ConfigError(
        `replayHeaders names "${extra}", which belongs to one connection or one client and is never replayed; take it out`,
      );
    }
    if (!headerNamePattern.test(name)) {
      throw new ConfigError(`replayHeaders names "${extra}", which is not a header name`);
    }
    names.add(name);
  }
  return names;
}

/** Applies the header rules and the size cap. */
export function toStoredResponse(
  captured: CapturedResponse,
  rules: { readonly allowedHeaders: ReadonlySet<string>; readonly responseBytesMax: number },
): StoredResponse {
  if (captured.body.byteLength > rules.responseBytesMax) {
    return { kind: "omitted", status: captured.status, bodyBytes: captured.body.byteLength };
  }
  const headers = allowedOf(captured.headers, rules.allowedHeaders);
  return { kind: "full", status: captured.status, headers, body: captured.body };
}

/** Those of the headers that are stored. */
export function allowedOf(headers: readonly HeaderPair[], names: ReadonlySet<string>): readonly HeaderPair[] {
  const allowed: HeaderPair[] = [];
  for (const pair of headers) if (names.has(pair[0].toLowerCase())) allowed.push(pair);
  return allowed;
}

/** The one header of a response that is stored sealed. No header can have this name, so nothing else looks like it. */
export const sealedMark = ":sealed";

/** Whether a response, or a request, is stored sealed: whoever has not opened it must not send it to anybody. */
export function isSealed(headers: readonly HeaderPair[]): boolean {
  return headers.length === 1 && headers[0]?.[0] === sealedMark;
}

/** A stored response as three columns, the same in every store. */
export interface EncodedResponse {
  readonly status: number;
  /** JSON text with the version of this encoding, and the headers or the marker. */
  readonly head: string;
  readonly body: Uint8Array | null;
}

/** Stored beside each response; a reader that meets a newer one must not guess. */
const encodingVersion = 1;

export function encodeResponse(response: StoredResponse): EncodedResponse {
  switch (response.kind) {
    case "full": {
      const { status, headers, trace, body } = response;
      const head =
        trace === undefined ? headText(headers) : JSON.stringify({ v: encodingVersion, headers, trace });
      return { status, head, body };
    }
    case "omitted":
      return {
        status: response.status,
        head: JSON.stringify({
          v: encodingVersion,
          omittedBytes: response.bodyBytes,
          because: response.because,
          trace: response.trace,
        }),
        body: null,
      };
    default:
      return response satisfies never;
  }
}

/** The one that was written last. Most answers of an API have the same, and need not be written down again. */
let lastWritten: { readonly headers: readonly HeaderPair[]; readonly text: string } | undefined;

function headText(headers: readonly HeaderPair[]): string {
  if (lastWritten === undefined || !areSameHeaders(headers, lastWritten.headers)) {
    lastWritten = {
      headers: copiedHeaders(headers),
      text: JSON.stringify({ v: encodingVersion, headers } satisfies ResponseHead),
    };
  }
  return lastWritten.text;
}

export function areSameHeaders(some: readonly HeaderPair[], others: readonly HeaderPair[]): boolean {
  if (some.length !== others.length) return false;
  for (let at = 0; at < some.length; at += 1) {
    const one = some[at];
    const other = others[at];
    if (one?.[0] !== other?.[0] || one?.[1] !== other?.[1]) return false;
  }
  return true;
}

/** For whoever keeps them: those who made them may go on to change them. */
export function copiedHeaders(headers: readonly HeaderPair[]): readonly HeaderPair[] {
  return headers.map(([name, value]): HeaderPair => [name, value]);
}

interface ResponseHead {
  readonly v: number;
  readonly headers?: readonly HeaderPair[];
  readonly omittedBytes?: number;
  readonly because?: OmittedBecause;
  readonly trace?: string;
}

/** The one that was read last. Most answers of an API have the same. */
let lastHead: { readonly text: string; readonly head: ResponseHead } | undefined;

function readHead(text: string): ResponseHead {
  if (lastHead?.text === text) return lastHead.head;
  const head = JSON.parse(text) as ResponseHead;
  lastHead = { text, head };
  return head;
}

export function decodeResponse(encoded: EncodedResponse): StoredResponse {
  const head = readHead(encoded.head);
  if (head.v !== encodingVersion) {
    throw new Error(
      `a stored response has encoding version ${head.v}, this Latchkey reads version ${encodingVersion}: upgrade this process`,
    );
  }
  const trace = head.trace === undefined ? {} : { trace: head.trace };
  if (head.omittedBytes !== undefined) {
    const because = head.because === undefined ? {} : { because: head.because };
    return { kind: "omitted", status: encoded.status, bodyBytes: head.omittedBytes, ...because, ...trace };
  }
  return {
    kind: "full",
    status: encoded.status,
    headers: head.headers ?? [],
    body: encoded.body ?? new Uint8Array(),
    ...trace,
  };
}

/**
 * Answers that say by their definition that the request was not processed (Request Timeout, Too Early, Too Many
 * Requests). Replaying one for a day would turn a moment's refusal into a permanent one.
 */
export const notProcessedStatuses: ReadonlySet<number> = new Set([408, 425, 429]);
