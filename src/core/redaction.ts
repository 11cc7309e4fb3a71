import { type JsonPath, Places, parseJsonPath, redactJson } from "./json-redaction.ts";
import type { CapturedResponse, HeaderPair, StoredResponse } from "./response.ts";

/**
 * What is not stored of an answer. The first client gets the answer as the handler made it; replays get what is left,
 * and say so with `Idempotency-Redacted: true`.
 */
export interface Redaction {
  /** Names of headers that are not stored. */
  readonly headers?: readonly string[];
  /** Values in JSON bodies that are replaced by "[redacted]", such as `card.number` or `items[*].secret`. */
  readonly paths?: readonly string[];
  /** Makes the body that is stored of the one that is sent; the paths are then looked for in what it made. */
  readonly body?: (response: CapturedResponse) => Uint8Array;
}

/** The answer as it may be stored. What cannot be redacted is not stored; `onError` learns why, if somebody threw. */
export function redacted(
  response: StoredResponse,
  rules: Redaction,
  options: { readonly responseBytesMax: number; readonly onError: (error: unknown) => void },
): StoredResponse {
  if (response.kind === "omitted") return response;
  const { status, trace } = response;
  const traced = trace === undefined ? {} : { trace };
  const body = redactedBody(response, rules, options.onError);
  // What stands in the place of a value may be longer than the value was.
  if (body === undefined || body.byteLength > options.responseBytesMax) {
    const bodyBytes = response.body.byteLength;
    return { kind: "omitted", status, bodyBytes, because: "not-redactable", ...traced };
  }
  const isBodyChanged = body !== response.body;
  const { names } = preparedOf(rules);
  const headers = response.headers.filter(
    ([name]) => !names.has(name.toLowerCase()) && !(isBodyChanged && bodyHeaders.has(name.toLowerCase())),
  );
  if (!isBodyChanged && headers.length === response.headers.length) return response;
  return { kind: "full", status, headers: [...headers, redactedHeader], body, ...traced };
}

/** What is wrong with the rules of a route; empty if they can be kept. */
export function redactionComplaints(rules: Redaction | undefined): string[] {
  if (rules === undefined) return [];
  if (typeof rules !== "object" || rules === null) return ["redact must be { headers, paths, body }"];
  const complaints: string[] = [];
  const { headers = [], paths = [], body } = rules;
  if (!Array.isArray(headers) || headers.some((name) => typeof name !== "string")) {
    complaints.push("redact.headers must be an array of header names");
  }
  if (!Array.isArray(paths)) complaints.push("redact.paths must be an array of paths");
  else {
    for (const path of paths) {
      if (parseJsonPath(path) === undefined) {
        complaints.push(`redact.paths has ${JSON.stringify(path)}: write "card.number" or "items[*].secret"`);
      }
    }
  }
  if (body !== undefined && typeof body !== "function") {
    complaints.push("redact.body must be a function of the response that returns bytes");
  }
  for (const field of Object.keys(rules)) {
    if (!["headers", "paths", "body"].includes(field)) complaints.push(`redact has no "${field}"`);
  }
  return complaints;
}

/** The same bytes if there was nothing to redact; undefined if they must not be stored. */
function redactedBody(
  response: Extract<StoredResponse, { kind: "full" }>,
  rules: Redaction,
  onError: (error: unknown) => void,
): Uint8Array | undefined {
  let { body } = response;
  if (rules.body !== undefined) {
    try {
      body = rules.body(response);
    } catch (error) {
      onError(error);
      return undefined;
    }
    if (!(body instanceof Uint8Array)) {
      onError(new TypeError("redact.body must return bytes, a Uint8Array"));
      return undefined;
    }
  }
  const { places } = preparedOf(rules);
  if (places === undefined || body.byteLength === 0) return body;
  return redactJson(body, places);
}

/** What is looked for, made once of what a route says. */
interface Prepared {
  readonly names: ReadonlySet<string>;
  /** Undefined where no body is looked into. */
  readonly places: Places | undefined;
}

const prepared = new WeakMap<Redaction, Prepared>();

function preparedOf(rules: Redaction): Prepared {
  let known = prepared.get(rules);
  if (known === undefined) {
    const paths = (rules.paths ?? [])
      .map(parseJsonPath)
      .filter((path): path is JsonPath => path !== undefined);
    known = {
      names: lowerCase(rules.headers ?? []),
      places: paths.length === 0 ? undefined : new Places(paths),
    };
    prepared.set(rules, known);
  }
  return known;
}

const redactedHeader: HeaderPair = ["idempotency-redacted", "true"];

/** They are about the bytes of a body that is another one now. */
const bodyHeaders = lowerCase(["ETag", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest"]);

function lowerCase(names: readonly string[]): ReadonlySet<string> {
  return new Set(names.map((name) => name.toLowerCase()));
}
