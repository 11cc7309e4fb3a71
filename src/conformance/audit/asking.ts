import { type Answer, NoAnswerError, send } from "../wire.ts";
import type { Operation } from "./operations.ts";

/** What an operation did with a request that had no key. */
export type Enforcement =
  /** It was refused, and the refusal names the key. */
  | { readonly kind: "enforced"; readonly status: number }
  /** It was accepted: not enforced. */
  | { readonly kind: "accepted"; readonly status: number }
  /** It was refused for another reason first, failed, or was not answered. */
  | { readonly kind: "cannot-tell"; readonly reason: string }
  /** Nothing was sent. */
  | { readonly kind: "not-asked"; readonly reason: string };

export interface AskOptions {
  /** What the paths of the document are appended to. */
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** Values of path parameters. Without a value for each of its parameters nothing is sent to a path. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly keyHeader: string;
  readonly timeoutMs: number;
}

/** Where an operation is, or the parameters for which there is no value. */
export function addressOf(
  { path }: Operation,
  { url, parameters }: Pick<AskOptions, "url" | "parameters">,
): { readonly url: URL } | { readonly missing: readonly string[] } {
  const missing: string[] = [];
  const filled = path.replace(/\{([^{}]*)\}/g, (whole, name: string) => {
    const value = Object.hasOwn(parameters, name) ? parameters[name] : undefined;
    // A URL with dots alone between two slashes is another URL.
    if (value !== undefined && !/^\.{0,2}$/.test(value)) return encodeURIComponent(value);
    missing.push(name);
    return whole;
  });
  if (missing.length > 0) return { missing };
  const address = new URL(url);
  address.pathname = `${url.pathname.replace(/\/$/, "")}/${filled.replace(/^\//, "")}`;
  return { url: address };
}

/** Sends it once, without a key. */
export async function ask(operation: Operation, options: AskOptions): Promise<Enforcement> {
  const address = addressOf(operation, options);
  if ("missing" in address) {
    return { kind: "not-asked", reason: `no value for ${address.missing.join(", ")}` };
  }
  const { method, body } = operation;
  const { headers, timeoutMs, keyHeader } = options;
  const fields = Object.entries({
    ...(body === undefined ? {} : { "content-type": body.contentType }),
    ...headers,
  });
  try {
    const answer = await send({ method, url: address.url, fields, body: body?.text, timeoutMs });
    return enforcementOf(answer, keyHeader);
  } catch (error) {
    if (error instanceof NoAnswerError) return { kind: "cannot-tell", reason: error.message };
    throw error;
  }
}

function enforcementOf({ status, body }: Answer, keyHeader: string): Enforcement {
  if (status >= 200 && status < 300) return { kind: "accepted", status };
  if (status >= 400 && status < 500) {
    const text = body.toString("utf8").toLowerCase();
    const namesKey = text.includes(keyHeader.toLowerCase()) || /idempoten(t|cy)[-_ ]?key/.test(text);
    return namesKey
      ? { kind: "enforced", status }
      : { kind: "cannot-tell", reason: `refused with ${status} for another reason first` };
  }
  return { kind: "cannot-tell", reason: `answered with ${status}` };
}
