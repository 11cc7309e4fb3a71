import { createHmac, timingSafeEqual } from "node:crypto";
import { ConfigError } from "./errors.ts";

/** Shared by a service and its clients; as text, its UTF-8 bytes count. */
export type Secret = string | Uint8Array;

/** What is signed: that this caller sent this key at this time. */
export interface SignedTime {
  /** The caller's name, as the service's `tenant` option makes it of its authentication. */
  readonly tenant: string;
  readonly key: string;
  /** Whole seconds since 1970, in decimal digits. */
  readonly seconds: string;
}

/**
 * The value of a request time header, for clients: made when the request is first sent, and sent as it is with every
 * retry.
 *
 * @example
 * ```ts
 * const sent = signRequestTime({ secret, tenant: "acme", key, sentAt: Date.now() }); // "@1700000000;sig=:…:"
 * await fetch(url, { method: "POST", headers: { "Idempotency-Key": key, "Idempotency-First-Sent": sent } });
 * ```
 */
export function signRequestTime(options: {
  readonly secret: Secret;
  readonly tenant: string;
  readonly key: string;
  /** Milliseconds since 1970. */
  readonly sentAt: number;
}): string {
  const { secret, tenant, key, sentAt } = options;
  const complaint = complaintAboutSecret(secret);
  if (complaint !== undefined) throw new ConfigError(complaint);
  if (!Number.isFinite(sentAt) || sentAt < 0) {
    throw new ConfigError(
      `sentAt is ${sentAt} and must be milliseconds since 1970, such as Date.now() answers`,
    );
  }
  const seconds = String(Math.floor(sentAt / 1000));
  return `@${seconds};sig=:${signatureOf(secret, { tenant, key, seconds }).toString("base64")}:`;
}

/** Whether one of the secrets has made this signature. Takes as long for a near miss as for a far one. */
export function isSignedBy(secrets: readonly Secret[], signed: SignedTime, signature: string): boolean {
  const given = Buffer.from(signature, "base64");
  let isGood = false;
  for (const secret of secrets) {
    const expected = signatureOf(secret, signed);
    // All are tried, so that it cannot be told which of them is in use.
    if (given.byteLength === expected.byteLength && timingSafeEqual(given, expected)) isGood = true;
  }
  return isGood;
}

/** Why a secret is none, without the secret. */
export function complaintAboutSecret(secret: unknown): string | undefined {
  if (typeof secret !== "string" && !(secret instanceof Uint8Array)) return "a secret must be text or bytes";
  const bytes = typeof secret === "string" ? Buffer.byteLength(secret) : secret.byteLength;
  if (bytes < secretBytesMin)
    return `a secret has ${bytes} bytes and must have at least ${secretBytesMin}, at random`;
  return undefined;
}

/** 128 bits: what nobody guesses. */
const secretBytesMin = 16;

/** Each field with its length before it: whatever is in one, it cannot be read as the beginning of the next. */
function signatureOf(secret: Secret, { tenant, key, seconds }: SignedTime): Buffer {
  const mac = createHmac("sha256", secret);
  for (const field of [domain, tenant, key, seconds]) {
    // Not UTF-8, in which all halves of surrogate pairs are one and the same.
    const bytes = Buffer.from(field, "utf16le");
    mac.update(`${bytes.byteLength}:`).update(bytes);
  }
  return mac.digest();
}

/** So that a signature made for something else with the same secret is none of this. */
const domain = "latchkey request time 1";
