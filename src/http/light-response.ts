import type { HeaderPair } from "../core/response.ts";
import { textIfAscii } from "./ascii.ts";
import { mayHaveBody, type ResponseParts, type Responses, standardResponse } from "./fetch.ts";

/**
 * Hono's server for Node puts a response of its own in the place of the standard one. It keeps what it was made of until
 * somebody looks, and the server sends that as it is; looking makes streams of it, which takes longer than all the rest
 * of a request. So here a response is taken apart, and made, in a way that leaves it light. Whatever is not as expected
 * is left to the standard way, which gives the same answer.
 */
export const lightResponses: Responses = {
  partsOf(response) {
    const kept = keptBy(response);
    if (kept === undefined) return undefined;
    const [status, body, headers] = kept;
    if (!isBody(body) || !mayBeSent(status, body)) return undefined;
    const pairs = headerPairs(headers, body);
    return pairs === undefined ? undefined : { status, headers: pairs, body };
  },

  make(said, { under, over }) {
    if (nameOfKept() === undefined) return standardResponse(said, { under, over });
    const { status, body } = said;
    const headers: Record<string, string> = {};
    for (const [name, value] of under ?? noPairs) {
      // The only field that may be there twice. A record has each name once.
      if (name === "set-cookie") return standardResponse(said, { under, over });
      headers[name] = value;
    }
    for (const [name, value] of over) headers[name.toLowerCase()] = value;
    // That server does so unless it is given a record.
    if (body !== null && body.length > 0) headers["content-type"] ??= defaultContentType;
    const light = body instanceof Uint8Array ? textIfAscii(body) : body;
    return new Response(light, { status, headers });
  },

  /** Nothing is light about the headers, but that there are none can be seen. */
  headersOf(response) {
    const kept = keptBy(response);
    return kept !== undefined && kept[2] === undefined ? undefined : new Headers(response.headers);
  },
};

/** What a light response is made of. */
type Kept = readonly [status: number, body: unknown, headers: unknown];

function keptBy(response: Response): Kept | undefined {
  const name = nameOfKept();
  return name === undefined ? undefined : (response as unknown as Record<symbol, Kept | undefined>)[name];
}

/** Where responses keep what they are made of; undefined if they are not light. */
function nameOfKept(): symbol | undefined {
  if (light.constructor !== Response) light = { constructor: Response, name: findNameOfKept() };
  return light.name;
}

/** The server puts its own constructor in the place of the standard one when it is started. */
let light: { readonly constructor: typeof Response | undefined; readonly name: symbol | undefined } = {
  constructor: undefined,
  name: undefined,
};

/** Nobody is told that name, so it is found by looking at a response that is known. */
function findNameOfKept(): symbol | undefined {
  const headers = { "content-type": "text/plain" };
  const known = new Response("known", { status: 201, headers });
  return Object.getOwnPropertySymbols(known).find((name) => {
    const kept: unknown = Reflect.get(known, name);
    if (!Array.isArray(kept) || kept.length !== 3) return false;
    return kept[0] === 201 && kept[1] === "known" && kept[2] === headers;
  });
}

function isBody(body: unknown): body is ResponseParts["body"] {
  return body === null || typeof body === "string" || body instanceof Uint8Array;
}

/** A light response takes any status, and fails only when it is sent. The handler can be told now. */
function mayBeSent(status: number, body: ResponseParts["body"]): boolean {
  return Number.isInteger(status) && status >= 200 && status <= 599 && (body === null || mayHaveBody(status));
}

/** The headers in the spelling in which they are stored; undefined if the standard would refuse or change one. */
function headerPairs(headers: unknown, body: ResponseParts["body"]): HeaderPair[] | undefined {
  const pairs = headers instanceof Headers ? [...headers] : pairsOfRecord(headers ?? {});
  if (pairs === undefined || body === null || hasName(pairs, "content-type")) return pairs;
  pairs.push(["content-type", defaultContentType]);
  return pairs;
}

function pairsOfRecord(headers: unknown): HeaderPair[] | undefined {
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) return undefined;
  const pairs: HeaderPair[] = [];
  for (const spelling of Object.keys(headers)) {
    const name = spelling.toLowerCase();
    const value: unknown = Reflect.get(headers, spelling);
    if (typeof value !== "string" || !plainName.test(name) || !plainValue.test(value)) return undefined;
    if (hasName(pairs, name)) return undefined;
    pairs.push([name, value]);
  }
  return pairs;
}

function hasName(pairs: readonly HeaderPair[], name: string): boolean {
  for (const pair of pairs) if (pair[0] === name) return true;
  return false;
}

const noPairs: readonly HeaderPair[] = [];

const defaultContentType = "text/plain; charset=UTF-8"; // What that server sends where nothing was said.

const plainName = /^[!#$%&'*+.^`|~\w-]+$/;
/** Without spaces around it, which the standard takes away. */
const plainValue = /^[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?$/;
