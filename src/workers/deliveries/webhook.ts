import { createHmac } from "node:crypto";
import { ConfigError } from "../../core/errors.ts";
import {
  type Deliver,
  type DeliveredMessage,
  deliveryHeadersOf,
  NotDeliverableError,
  RetryLaterError,
} from "./deliver.ts";

export type WebhookOptions = {
  /** Where messages go; a function where that depends on the message. */
  readonly url: string | URL | ((message: DeliveredMessage) => string | URL);
  /** Sent with every message beside those of the standard. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Another `fetch`, for proxies and client certificates. */
  readonly fetch?: typeof fetch;
} & (
  | { /** `whsec_` and base64, as receivers' libraries read it. */ readonly secret: string }
  | {
      /** While a secret is being replaced: the new one and the old one. Each message is signed with all of them. */
      readonly secrets: readonly string[];
    }
);

/**
 * Delivers by HTTP as Standard Webhooks (https://www.standardwebhooks.com) describes it, so that receivers can verify
 * the sender with any of its libraries. 2xx is delivered, 410 never will be, and everything else is tried again.
 *
 * @example
 * ```ts
 * toWebhook({ url: "https://example.com/hooks", secret: process.env.WEBHOOK_SECRET ?? "" });
 * ```
 */
export function toWebhook(options: WebhookOptions): Deliver {
  const { url, headers = {}, fetch: send = fetch } = options;
  const keys = ("secrets" in options ? options.secrets : [options.secret]).map(signingKey);
  if (keys.length === 0) throw new ConfigError("toWebhook needs a secret to sign with, and secrets is empty");

  return async (message, { signal }) => {
    const body = JSON.stringify({
      type: message.topic,
      timestamp: new Date(message.createdAt).toISOString(),
      data: message.payload,
    });
    // The time of this attempt, not of the message: receivers refuse what is older than some minutes.
    const timestamp = String(Math.floor(Date.now() / 1000));
    const response = await send(typeof url === "function" ? url(message) : url, {
      method: "POST",
      headers: {
        ...headers,
        "content-type": "application/json",
        "webhook-id": message.key,
        "webhook-timestamp": timestamp,
        "webhook-signature": keys.map((key) => signatureOf(key, message.key, timestamp, body)).join(" "),
        ...deliveryHeadersOf(message),
      },
      body,
      // A redirect would carry a signed payment to an address that nobody configured.
      redirect: "manual",
      signal,
    });
    // An answer that nobody reads would hold its connection.
    await response.body?.cancel();
    assertDelivered(response);
  };
}

function assertDelivered(response: Response): void {
  const { status, ok } = response;
  if (ok) return;
  if (status === 410) {
    throw new NotDeliverableError("the receiver answered 410: it wants no more messages");
  }
  const retryAfterMs = status === 429 || status === 503 ? retryAfterMsOf(response) : undefined;
  if (retryAfterMs !== undefined) {
    throw new RetryLaterError(`the receiver answered ${status} and wants to be asked later`, {
      retryAfterMs,
    });
  }
  throw new Error(
    status >= 300 && status < 400
      ? `the receiver answered ${status}, and redirects are not followed: configure the address that it redirects to`
      : `the receiver answered ${status}`,
  );
}

/** `Retry-After` in seconds or as a date. */
function retryAfterMsOf(response: Response): number | undefined {
  const value = response.headers.get("retry-after")?.trim();
  if (value === undefined || value === "") return undefined;
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}

function signatureOf(key: Buffer, id: string, timestamp: string, body: string): string {
  return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64")}`;
}

const secretPrefix = "whsec_";
const secretBytesMin = 24; // The standard's own bounds: 24 to 64 bytes.
const secretBytesMax = 64;

function signingKey(secret: string): Buffer {
  const encoded = typeof secret === "string" && secret.startsWith(secretPrefix) ? secret.slice(6) : undefined;
  const key = Buffer.from(encoded ?? "", "base64");
  const isBase64 = key.toString("base64").replace(/=+$/, "") === encoded?.replace(/=+$/, "");
  if (!isBase64 || key.length < secretBytesMin || key.length > secretBytesMax) {
    // The secret itself stays out of the message.
    throw new ConfigError(
      `a webhook secret must be "${secretPrefix}" and the base64 of ${secretBytesMin} to ${secretBytesMax} random bytes`,
    );
  }
  return key;
}
