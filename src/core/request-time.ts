import type { Policy } from "./policy.ts";
import { complaintAboutSecret, type Secret } from "./request-time-signature.ts";

/**
 * Where a request's own time comes from: its key, which then has to be a UUIDv7; or a header that the client sets once
 * and sends again with each retry, signed if there is a secret.
 */
export type RequestTime = "key" | RequestTimeHeader;

export interface RequestTimeHeader {
  /** The header's name, for example `Idempotency-First-Sent`. */
  readonly header: string;
  /** Shared with the clients, who sign the time with it: see `signRequestTime`. */
  readonly secret?: Secret;
  /** All that are good right now, so that one can be replaced by another. */
  readonly secrets?: readonly Secret[];
  /** The secrets of one tenant; none, and its requests are refused. */
  readonly secretOf?: (tenant: string) => SecretsOfTenant | Promise<SecretsOfTenant>;
}

export type SecretsOfTenant = Secret | readonly Secret[] | undefined;

/** Whether a request may still be executed, by its own time. */
export type Timeliness = "young" | "late" | "future";

/** A request from the future would be young for longer than its answer is kept. */
export function timelinessOf(
  sentAt: number,
  now: number,
  policy: Pick<Policy, "clockSkewMs" | "requestAgeMsMax" | "retentionMs">,
): Timeliness {
  const ageMs = now - sentAt;
  if (ageMs < -policy.clockSkewMs) return "future";
  return ageMs > (policy.requestAgeMsMax ?? policy.retentionMs) ? "late" : "young";
}

/**
 * The policy of a route that refuses late arrivals, with all that follows from it. Between the moment when an answer is
 * forgotten and the moment when its request counts as late nobody could tell that it ran, so answers are kept for
 * longer than requests are young: by what a client's clock may be ahead, and by what two servers' clocks may differ.
 */
export function withLateness(policy: Policy): Policy {
  if (policy.lateArrivals !== "reject") return policy;
  const requestAgeMsMax = policy.requestAgeMsMax ?? policy.retentionMs;
  const retentionMs = Math.max(policy.retentionMs, requestAgeMsMax + 2 * policy.clockSkewMs);
  return { ...policy, requestAgeMsMax, retentionMs };
}

/** What cannot be kept of the rules for late arrivals; nothing, if they are good. */
export function complaintsAboutLateness(policy: Policy): string[] {
  const { lateArrivals, requestAgeMsMax: ageMax, retentionMs, requestTime } = policy;
  const complaints = [...complaintsAboutSource(requestTime)];
  if (ageMax !== undefined && !(typeof ageMax === "number" && ageMax > 0)) {
    complaints.push(`requestAgeMsMax is ${String(ageMax)} and must be above 0`);
  }
  // Given for all routes, it is there for those that refuse.
  if (lateArrivals === "allow") return complaints;
  if (!Number.isFinite(retentionMs)) {
    complaints.push('lateArrivals is "reject", which needs a retentionMs that ends');
  }
  if (!Number.isFinite(policy.clockSkewMs)) {
    complaints.push('lateArrivals is "reject", which needs a clockSkewMs that ends');
  }
  if (ageMax !== undefined && ageMax > retentionMs) {
    complaints.push(
      `requestAgeMsMax is ${ageMax}, and an older request could run again, because answers are kept for ${retentionMs} ms: ` +
        "raise retentionMs, or leave requestAgeMsMax out",
    );
  }
  return complaints;
}

function complaintsAboutSource(requestTime: unknown): string[] {
  if (requestTime === "key") return [];
  if (typeof requestTime !== "object" || requestTime === null) {
    return ['requestTime must be "key" or { header: "Idempotency-First-Sent" }'];
  }
  const { header, secret, secrets, secretOf, ...rest } = requestTime as Partial<RequestTimeHeader>;
  const complaints = Object.keys(rest).map((name) => `requestTime has no option "${name}"`);
  if (typeof header !== "string" || !/^[\w!#$%&'*+.^`|~-]+$/.test(header)) {
    complaints.push("requestTime.header must be the name of a header");
  }
  const given = [secret, secrets, secretOf].filter((option) => option !== undefined);
  if (given.length > 1) {
    complaints.push("requestTime takes one of secret, secrets and secretOf, and not two of them");
  }
  if (secretOf !== undefined && typeof secretOf !== "function") {
    complaints.push("requestTime.secretOf must be a function of the tenant that returns its secret");
  }
  if (secrets !== undefined && (!Array.isArray(secrets) || secrets.length === 0)) {
    complaints.push("requestTime.secrets must be an array of at least one secret");
    return complaints;
  }
  for (const each of secrets ?? (secret === undefined ? [] : [secret])) {
    const complaint = complaintAboutSecret(each);
    if (complaint !== undefined) complaints.push(`requestTime: ${complaint}`);
  }
  return complaints;
}

/** A header's time, as it was written and in milliseconds since 1970, and the signature beside it if there is one. */
export interface SentTime {
  readonly ms: number;
  /** Whole seconds since 1970, where it was written as such: this is what is signed. */
  readonly seconds: string | undefined;
  readonly signature: string | undefined;
}

/**
 * Reads a time as RFC 9651 writes it (`@1700000000`, with the signature as `;sig=:…:`), as HTTP does
 * (`Tue, 14 Nov 2023 22:13:20 GMT`) or as RFC 3339 does (`2023-11-14T22:13:20Z`). Undefined for anything else.
 */
export function parseRequestTime(value: string): SentTime | undefined {
  if (isPlainDate(value)) {
    const seconds = value.slice(1);
    return { ms: Number(seconds) * 1000, seconds, signature: undefined };
  }
  const text = value.trim();
  const structured = structuredDate.exec(text);
  if (structured !== null) {
    const [, seconds = "", signature] = structured;
    return { ms: Number(seconds) * 1000, seconds, signature };
  }
  const ms = httpDateMs(text) ?? rfc3339Ms(text);
  return ms === undefined ? undefined : { ms, seconds: undefined, signature: undefined };
}

/** Whether it is written as most clients write it, which is read without taking it apart: `@1700000000`. */
function isPlainDate(value: string): boolean {
  if (value.charCodeAt(0) !== 0x40 || value.length > 1 + secondsDigitsMax) return false;
  for (let at = 1; at < value.length; at += 1) {
    const code = value.charCodeAt(at);
    if (code < 0x30 || code > 0x39) return false;
  }
  // A zero stands alone.
  return value.length === 2 || (value.length > 2 && value.charCodeAt(1) !== 0x30);
}

const secondsDigitsMax = 15;

// Fifteen digits are what a structured integer may have. A signature is allowed where nobody checks it, so that
// clients can begin to sign before servers begin to insist.
const structuredDate = /^@(0|[1-9]\d{0,14})(?:; *sig=:([A-Za-z0-9+/]{1,172}={0,2}):)?$/;

const httpDate = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;

function httpDateMs(text: string): number | undefined {
  if (!httpDate.test(text)) return undefined;
  const ms = Date.parse(text);
  // Written back it must be the same: a parser that forgives would take the 31st of February for a day in March.
  return !Number.isNaN(ms) && new Date(ms).toUTCString() === text ? ms : undefined;
}

const rfc3339 = /^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/i;

function rfc3339Ms(text: string): number | undefined {
  const parts = rfc3339.exec(text);
  if (parts === null) return undefined;
  const [, day = "", time = ""] = parts;
  const local = Date.parse(`${day}T${time}Z`);
  if (Number.isNaN(local) || new Date(local).toISOString().slice(0, 19) !== `${day}T${time}`)
    return undefined;
  const ms = Date.parse(text.toUpperCase());
  return Number.isNaN(ms) ? undefined : ms;
}
