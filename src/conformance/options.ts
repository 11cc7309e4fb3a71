import { type Profile, type ProfileName, profiles } from "./profiles.ts";
import type { Progress } from "./report/report.ts";

/** A body: a text is sent as it is, anything else as JSON. */
export type BodyValue =
  | string
  | number
  | boolean
  | null
  | readonly unknown[]
  | { readonly [name: string]: unknown };

/** How often something was done under a key, counted by the API's own ledger. */
export type EffectsOf = (key: string) => number | Promise<number>;

export interface VerifyOptions {
  /** The endpoint. It is called for real: use a test environment. */
  readonly url: string | URL;
  /** Default `POST`. */
  readonly method?: string;
  /** Sent with every request: credentials, content type. */
  readonly headers?: Readonly<Record<string, string>>;
  /** A valid body, or a function that gives another valid one for each number. */
  readonly body?: BodyValue | ((n: number) => BodyValue);
  /** A valid body that differs. Without it misuse cannot be checked, unless `body` is a function. */
  readonly otherBody?: BodyValue;
  /** A body that the API refuses. Default `{}`. */
  readonly invalidBody?: BodyValue;
  /** Another endpoint that takes the same body, on which a key must not get this one's answers. */
  readonly otherUrl?: string | URL;
  /** Headers of another caller, in place of those of the same name: it must never see the first one's answers. */
  readonly otherHeaders?: Readonly<Record<string, string>>;
  /** Default `Idempotency-Key`. */
  readonly keyHeader?: string;
  /** Sends keys as RFC 9651 strings, in double quotes, to an API that takes them in no other way. Default false. */
  readonly quoteKeys?: boolean;
  /** Default `ietf`. */
  readonly profile?: ProfileName;
  /** How many requests are sent at once. Default 20. */
  readonly concurrency?: number;
  /** For one answer, and for a key to be settled. Default 10 seconds. */
  readonly timeoutMs?: number;
  /** Between an answer and its replay "after a pause". Default one second. */
  readonly pauseMs?: number;
  /**
   * Counts what was done under a key. A URL has `{key}` in it and is answered with a number, `{"count": number}` or a list.
   * Without it nobody can see a second execution that answers with the same bytes.
   */
  readonly effects?: string | URL | EffectsOf;
  readonly onProgress?: (progress: Progress) => void;
}

/** Options that cannot be used; the sentence says what to do. */
export class VerifyOptionsError extends Error {
  override readonly name = "VerifyOptionsError";
}

export interface Settings {
  readonly url: URL;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: (n: number) => string | undefined;
  readonly otherBody: ((n: number) => string) | undefined;
  readonly invalidBody: string;
  readonly otherUrl: URL | undefined;
  readonly otherHeaders: Readonly<Record<string, string>> | undefined;
  readonly keyHeader: string;
  readonly quotesKeys: boolean;
  readonly profile: Profile;
  readonly concurrency: number;
  readonly timeoutMs: number;
  readonly pauseMs: number;
  readonly effects: string | EffectsOf | undefined;
}

export function settingsOf(options: VerifyOptions): Settings {
  const { body, otherBody, profile = "ietf", effects } = options;
  const { url, credentials } = splitUrl(options.url, "url");
  const method = (options.method ?? "POST").toUpperCase();
  if (!token.test(method)) throw new VerifyOptionsError(`method is "${method}" and must be one of HTTP's`);
  const keyHeader = options.keyHeader ?? "Idempotency-Key";
  if (!token.test(keyHeader))
    throw new VerifyOptionsError(`keyHeader is "${keyHeader}" and must be a header's name`);
  if (!Object.hasOwn(profiles, profile)) {
    throw new VerifyOptionsError(
      `profile is "${profile}" and must be one of: ${Object.keys(profiles).join(", ")}`,
    );
  }
  const bodyText = (n: number) => textOf(typeof body === "function" ? body(n) : body);
  const headers = { ...credentials, ...contentType(bodyText(1)), ...lowered(options.headers ?? {}) };
  if (Object.hasOwn(headers, keyHeader.toLowerCase())) {
    throw new VerifyOptionsError(
      `headers has ${keyHeader}: leave it out, because every check chooses its own keys`,
    );
  }
  return {
    url,
    method,
    headers,
    body: bodyText,
    otherBody: otherBodyOf(bodyText, typeof body === "function", otherBody),
    invalidBody: textOf(options.invalidBody) ?? "{}",
    otherUrl: options.otherUrl === undefined ? undefined : splitUrl(options.otherUrl, "otherUrl").url,
    otherHeaders: options.otherHeaders === undefined ? undefined : lowered(options.otherHeaders),
    keyHeader,
    quotesKeys: options.quoteKeys ?? false,
    profile: profiles[profile],
    concurrency: wholeNumber("concurrency", options.concurrency ?? 20, 2, 1000),
    timeoutMs: wholeNumber("timeoutMs", options.timeoutMs ?? 10_000, 1, 600_000),
    pauseMs: wholeNumber("pauseMs", options.pauseMs ?? 1000, 0, 600_000),
    effects: effects === undefined || typeof effects === "function" ? effects : effectsUrl(String(effects)),
  };
}

// RFC 9110: what methods and names of headers are made of.
const token = /^[!#$%&'*+.^_`|~\w-]+$/;

function otherBodyOf(
  bodyText: (n: number) => string | undefined,
  isFunction: boolean,
  given: BodyValue | undefined,
): Settings["otherBody"] {
  if (given === undefined) return isFunction ? (n) => bodyText(n + 1_000_000) ?? "" : undefined;
  const text = textOf(given) ?? "";
  if (text === bodyText(1)) throw new VerifyOptionsError("otherBody is the same as body: it must differ");
  return () => text;
}

function splitUrl(given: string | URL, name: string): { url: URL; credentials: Record<string, string> } {
  const url = URL.canParse(String(given)) ? new URL(given) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new VerifyOptionsError(
      `${name} must be an http or https URL, such as https://test.example.com/charges`,
    );
  }
  const { username, password } = url;
  url.username = "";
  url.password = "";
  url.hash = "";
  if (username === "") return { url, credentials: {} };
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { url, credentials: { authorization: `Basic ${Buffer.from(pair).toString("base64")}` } };
}

function effectsUrl(given: string): string {
  if (!given.includes("{key}"))
    throw new VerifyOptionsError("effects must have {key} in it, where the key belongs");
  return splitUrl(given, "effects") && given;
}

function textOf(value: BodyValue | undefined): string | undefined {
  return value === undefined || typeof value === "string" ? value : JSON.stringify(value);
}

function contentType(body: string | undefined): Record<string, string> {
  if (body === undefined) return {};
  return { "content-type": isJson(body) ? "application/json" : "text/plain" };
}

export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function lowered(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

function wholeNumber(name: string, value: number, min: number, max: number): number {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new VerifyOptionsError(`${name} is ${value} and must be a whole number from ${min} to ${max}`);
}
