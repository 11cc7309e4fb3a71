import { ConfigError } from "../core/errors.ts";
import { keyTimeMs } from "../core/key.ts";
import type { Policy } from "../core/policy.ts";
import {
  parseRequestTime,
  type RequestTimeHeader,
  type SecretsOfTenant,
  timelinessOf,
} from "../core/request-time.ts";
import { complaintAboutSecret, isSignedBy, type Secret } from "../core/request-time-signature.ts";
import { whenKnown } from "../core/when-known.ts";

/** What a request's own time says. */
export type Lateness = "young" | "late" | TimeRefusal;

/** Nothing that could be believed, and what to send instead. */
export interface TimeRefusal {
  readonly code: "key-invalid" | "request-time-invalid";
  readonly detail: string;
}

interface TimedRequest {
  readonly key: string;
  readonly tenant: string;
  readonly request: { header(name: string): string | undefined };
}

/** How a route tells late requests; undefined where it does not care. */
export function latenessOf(
  policy: Policy,
  now: () => number,
): ((request: TimedRequest) => Lateness | Promise<Lateness>) | undefined {
  if (policy.lateArrivals === "allow") return undefined;
  const { requestTime } = policy;
  if (requestTime === "key") return (request) => byKey(request, policy, now);
  // In lower case once, and not for each request.
  const name = requestTime.header.toLowerCase();
  return (request) => byHeader(request, name, requestTime, policy, now);
}

function byKey({ key }: TimedRequest, policy: Policy, now: () => number): Lateness {
  const madeAt = keyTimeMs(key);
  if (madeAt === undefined) {
    return {
      code: "key-invalid",
      detail: "This route refuses late arrivals and has to know when a key was made: send a UUID version 7.",
    };
  }
  const timeliness = timelinessOf(madeAt, now(), policy);
  if (timeliness !== "future") return timeliness;
  return {
    code: "key-invalid",
    detail: "This key was made in the future: set the clock, and send a new UUID version 7.",
  };
}

function byHeader(
  timed: TimedRequest,
  name: string,
  rules: RequestTimeHeader,
  policy: Policy,
  now: () => number,
): Lateness | Promise<Lateness> {
  const value = timed.request.header(name);
  if (value === undefined) {
    return invalid(
      `This route refuses late arrivals: say in the ${rules.header} header when the request was first sent.`,
    );
  }
  const sent = parseRequestTime(value);
  if (sent === undefined) {
    return invalid(
      `The ${rules.header} header is no time: send one, once, such as @1700000000 in seconds since 1970.`,
    );
  }
  const secrets = secretsFor(rules, timed.tenant);
  if (secrets === undefined) return byTime(sent.ms, rules, policy, now);
  return whenKnown(secrets, (known): Lateness => {
    const { seconds, signature } = sent;
    const { tenant, key } = timed;
    // One sentence for a missing signature and for a wrong one: who forges learns nothing.
    const isGood =
      seconds !== undefined &&
      signature !== undefined &&
      isSignedBy(known, { tenant, key, seconds }, signature);
    if (isGood) return byTime(sent.ms, rules, policy, now);
    return invalid(
      `The ${rules.header} header has to be signed for this caller, this key and this time, and is not.`,
    );
  });
}

function byTime(sentAt: number, rules: RequestTimeHeader, policy: Policy, now: () => number): Lateness {
  const timeliness = timelinessOf(sentAt, now(), policy);
  if (timeliness !== "future") return timeliness;
  return invalid(
    `The ${rules.header} header is in the future: set the clock, and send when the request was first sent.`,
  );
}

/** Undefined where times are not signed. */
function secretsFor(
  rules: RequestTimeHeader,
  tenant: string,
): readonly Secret[] | undefined | Promise<readonly Secret[]> {
  const { secret, secrets, secretOf } = rules;
  if (secret !== undefined) return [secret];
  if (secrets !== undefined || secretOf === undefined) return secrets;
  return whenKnown(secretOf(tenant) as SecretsOfTenant, checkedSecrets);
}

function checkedSecrets(answer: SecretsOfTenant): readonly Secret[] {
  const secrets = answer === undefined ? [] : isSecret(answer) ? [answer] : answer;
  for (const secret of secrets) {
    const complaint = complaintAboutSecret(secret);
    if (complaint !== undefined) throw new ConfigError(`what requestTime.secretOf answered: ${complaint}`);
  }
  return secrets;
}

function isSecret(answer: Secret | readonly Secret[]): answer is Secret {
  return typeof answer === "string" || answer instanceof Uint8Array;
}

function invalid(detail: string): TimeRefusal {
  return { code: "request-time-invalid", detail };
}
