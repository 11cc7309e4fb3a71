import { request } from "undici";
import { tenantScopeOf } from "../core/scope.ts";
import type { ReconcileHook, ReconcileQuestion } from "../operation/reconciliation.ts";
import type { ReconcileConfig } from "./config/schema.ts";

/**
 * Asks upstream, or whoever is configured, what became of a request. Only the statuses that were named mean anything:
 * whatever else comes of it is an error, which leaves the outcome unknown, is asked about again, and ends as evidence
 * before an operator.
 */
export function reconcileBy(
  config: ReconcileConfig,
  options: {
    readonly upstream: string;
    readonly responseBytesMax: number;
    readonly allowedHeaders: ReadonlySet<string>;
  },
): ReconcileHook {
  const { executed, notExecuted, answerStatus, timeoutMs } = config;
  const asked = shownUrl(config.url);
  return async (question) => {
    const url = urlOf(config.url, question, options.upstream);
    const signal = AbortSignal.any([question.signal, AbortSignal.timeout(timeoutMs)]);
    const { statusCode, headers, body } = await request(url, {
      // Nothing else: a question must not change anything.
      method: "GET",
      headers: { "accept-encoding": "identity", ...config.headers },
      signal,
    }).catch((error) => {
      throw new Error(`${asked} could not be asked: ${sentenceOf(error, timeoutMs)}`, { cause: error });
    });
    const isExecuted = executed.includes(statusCode);
    const bytes = await bodyOf(body, isExecuted ? options.responseBytesMax : 0).catch((error) => {
      if (error instanceof TooLargeError) throw error;
      throw new Error(`${asked} broke off its answer: ${sentenceOf(error, timeoutMs)}`, {
        cause: error,
      });
    });
    if (isExecuted) {
      const status = answerStatus === "same" ? statusCode : answerStatus;
      return {
        kind: "completed",
        response: { status, headers: allowed(headers, options.allowedHeaders), body: bytes },
      };
    }
    if (notExecuted.includes(statusCode)) {
      return { kind: "not-executed", reason: `asked, and told ${statusCode}: it was not executed` };
    }
    throw new Error(
      `${asked} answered ${statusCode}, which is neither in executed nor in notExecuted and says nothing`,
    );
  };
}

/** What is logged, and shown to operators: a token belongs into a header, and some put it into the query all the same. */
function shownUrl(template: string): string {
  return template.replace(/^(https?:\/\/)[^/?#]*@/i, "$1").replace(/\?.*$/s, "?…");
}

/** Percent-encoded, so that no key can ask about something else. */
function urlOf(template: string, question: ReconcileQuestion, upstream: string): URL {
  const values: Readonly<Record<string, () => string>> = {
    key: () => question.key,
    tenant: () => tenantOf(question.scope),
    route: () => question.route ?? "",
  };
  const whole = template.startsWith("/") ? upstream.replace(/\/$/, "") + template : template;
  const filled = whole.replaceAll(/\{(key|tenant|route)\}/g, (_, name: string) =>
    encodeURIComponent(values[name]?.() ?? ""),
  );
  const url = new URL(filled);
  // Dots cannot be encoded so that nobody takes them for a way up.
  const [path = ""] = filled.replace(/^https?:\/\/[^/]*/i, "").split(/[?#]/);
  if (url.pathname.split("/").length !== path.split("/").length) {
    throw new Error("its key cannot be put into an address: an operator has to look");
  }
  return url;
}

function tenantOf(scope: string): string {
  const name = tenantScopeOf(scope);
  if (name.startsWith("sha256:")) {
    throw new Error(
      "its tenant has too long a name to be stored, so that nobody can be asked about {tenant}",
    );
  }
  return decodeURIComponent(name);
}

class TooLargeError extends Error {}

async function bodyOf(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    if (bytesMax === 0) continue;
    length += chunk.byteLength;
    if (length > bytesMax)
      throw new TooLargeError(`the answer has more than the ${bytesMax} bytes that are kept`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** What retries get beside the body: what would have been stored of the answer itself. */
function allowed(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  names: ReadonlySet<string>,
): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && names.has(name)) texts[name] = Array.isArray(value) ? value.join(", ") : value;
  }
  return texts;
}

function sentenceOf(error: unknown, timeoutMs: number): string {
  if (error instanceof Error && error.name === "TimeoutError") return `no answer within ${timeoutMs} ms`;
  if (!(error instanceof Error)) return String(error);
  return (error as NodeJS.ErrnoException).code ?? error.message;
}
