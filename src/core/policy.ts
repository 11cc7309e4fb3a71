import { ConfigError } from "./errors.ts";
import type { KeyFormat } from "./key.ts";
import type { OnCrash } from "./record.ts";
import { type Redaction, redactionComplaints } from "./redaction.ts";
import { complaintsAboutLateness, type RequestTime, withLateness } from "./request-time.ts";
import { headerAllowList } from "./response.ts";
import type { ScopePolicy } from "./scope.ts";
import type { Capabilities } from "./store.ts";

/** A preset of status codes, header names and outcome policy. */
export type Profile = "ietf" | "stripe" | "acp";

/** How one route treats its requests. Every field has a safe default; see {@link defaultPolicy}. */
export interface Policy {
  /** What this route is called in its records, by which reconciliation finds it again after a restart. */
  readonly name: string | undefined;
  /** `ietf` follows the Internet-Draft, `stripe` what Stripe does, `acp` the Agentic Commerce Protocol. */
  readonly profile: Profile;
  /** The methods that are protected; requests with any other pass through untouched. */
  readonly methods: readonly string[];
  /** Whether a protected request without a key is refused (400) or passed through unprotected. */
  readonly required: boolean;
  readonly keyFormat: KeyFormat;
  /** Whether one key may be used once per tenant, or once per tenant and endpoint. */
  readonly scope: ScopePolicy;
  /** The status for a key that comes back with another request. */
  readonly mismatchStatus: 400 | 409 | 422;
  /**
   * What a duplicate gets while the first request still runs: 409, the answer when it is there, or 202. With `accept`
   * the first request gets 202 as well, and a worker executes it (see `completer`).
   */
  readonly onInFlight: "reject" | "wait" | "accept";
  /** With `onInFlight: "wait"`: how long, before it is 409 after all. */
  readonly waitMs: number;
  /** What becomes of an execution whose process died. */
  readonly onCrash: OnCrash;
  /** What a 5xx answer or a throw means: it may be tried again, it is the answer, or nobody knows. */
  readonly onServerError: "retry" | "store" | "reconcile";
  /**
   * Whether an external call that failed is known not to have happened. Nobody but you can know that, so the answer
   * is no unless you say more.
   */
  readonly isDefinitelyNotExecuted: (error: unknown) => boolean;
  /**
   * Whether the request is kept until its outcome is known, so that a worker can finish what a crash left half done.
   * It is where a crash is resumed and where requests are accepted, unless you say otherwise.
   */
  readonly keepRequest: boolean | undefined;
  /** Header names that are kept with the request beside those that describe its body. */
  readonly keepRequestHeaders: readonly string[];
  /** What becomes of a key that looks like an e-mail address, a phone number or the number of a card. */
  readonly personalKeys: "refuse" | "allow";
  /**
   * What of an answer is not stored, so that replays come without it. This waives, for those parts, the promise that
   * every retry gets the same bytes.
   */
  readonly redact: Redaction | undefined;
  /** When the store does not answer: refuse with 503, or run unprotected (and say so in an event). */
  readonly onStoreDown: "closed" | "open";
  /** What becomes of a request that is older than `requestAgeMsMax` and has no record: with `reject` it is not run. */
  readonly lateArrivals: "allow" | "reject";
  /** With `lateArrivals: "reject"`: what a request's own time is read from. */
  readonly requestTime: RequestTime;
  /** With `lateArrivals: "reject"`: how old a request may be to be run; as long as the retention unless you say less. */
  readonly requestAgeMsMax: number | undefined;
  /** What clocks may differ by, those of clients from the servers' and the servers' among each other. */
  readonly clockSkewMs: number;
  /** How long an answer can be replayed, counted from the completion. */
  readonly retentionMs: number;
  /** How long a handler may take before its outcome counts as lost. */
  readonly executionTimeoutMs: number;
  /** When reconciliation may first ask about an outcome that is not known. */
  readonly reconcileAfterMs: number;
  /** Larger request bodies are refused (413) before the handler runs. */
  readonly requestBytesMax: number;
  /** Larger response bodies are sent, but not stored: a retry gets 409 `response-not-stored`. */
  readonly responseBytesMax: number;
  /** Header names that are stored and replayed beside the common ones. */
  readonly replayHeaders: readonly string[];
  /**
   * Lets the bytes of the first answer flow while the handler makes them, instead of after they are stored. This
   * waives, for this route, the promise that a client only sees an answer that is durable.
   */
  readonly streaming: boolean;
}

export type PolicyInput = Partial<Policy>;

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const mebibyte = 1024 * 1024;

/** The safe choice wherever the field disagrees. */
export const defaultPolicy: Policy = {
  name: undefined,
  profile: "ietf",
  methods: ["POST", "PATCH"],
  required: true,
  keyFormat: "any",
  scope: "tenant",
  mismatchStatus: 422,
  onInFlight: "reject",
  waitMs: 10 * second, // Below the 15 to 30 seconds after which common clients and proxies give up.
  onCrash: "reconcile",
  onServerError: "retry",
  isDefinitelyNotExecuted: () => false,
  keepRequest: undefined,
  keepRequestHeaders: [],
  personalKeys: "refuse",
  redact: undefined,
  onStoreDown: "closed",
  lateArrivals: "allow",
  requestTime: "key",
  requestAgeMsMax: undefined,
  clockSkewMs: 5 * minute, // What signed requests are commonly allowed; far more than a clock that is set by NTP.
  retentionMs: 24 * hour, // What Stripe documents, and so what clients are built for.
  executionTimeoutMs: 10 * minute, // Longer than any proxy keeps a connection open for one answer.
  reconcileAfterMs: 30 * second, // Most providers have settled their own view of a payment by then.
  requestBytesMax: mebibyte,
  responseBytesMax: mebibyte,
  replayHeaders: [],
  streaming: false,
};

/** What each profile changes in the defaults. */
const profilePolicies: Record<Profile, PolicyInput> = {
  ietf: {},
  stripe: { mismatchStatus: 400, onServerError: "store", keyFormat: "any" },
  acp: {},
};

/** How each profile speaks on the wire. */
export interface ProfileHeaders {
  readonly replayed: string;
  /** Whether the key is sent back with every answer. */
  readonly echoKey: boolean;
}

export const profileHeaders: Record<Profile, ProfileHeaders> = {
  ietf: { replayed: "Idempotency-Replayed", echoKey: false },
  stripe: { replayed: "Idempotent-Replayed", echoKey: true },
  acp: { replayed: "Idempotent-Replayed", echoKey: true },
};

/**
 * The policy of one route: defaults, then the profile, then each layer of the user's own choices. Throws one error
 * that names everything that is wrong, so that a bad configuration never meets a request.
 */
export function resolvePolicy(capabilities: Capabilities, ...layers: readonly PolicyInput[]): Policy {
  const chosen = Object.assign({}, ...layers.map(withoutUndefined)) as PolicyInput;
  const profile = chosen.profile ?? defaultPolicy.profile;
  const policy: Policy = {
    ...defaultPolicy,
    ...(Object.hasOwn(profilePolicies, profile) ? profilePolicies[profile] : {}),
    ...chosen,
  };
  const complaints = complaintsAbout(policy, capabilities);
  if (complaints.length > 0) throw new ConfigError(`the policy cannot be kept: ${complaints.join("; ")}`);
  headerAllowList(policy.replayHeaders);
  return { ...withLateness(policy), methods: policy.methods.map((method) => method.toUpperCase()) };
}

/** Whether a route keeps its requests for the workers. */
export function keepsRequest(policy: Pick<Policy, "keepRequest" | "onCrash" | "onInFlight">): boolean {
  return policy.keepRequest ?? (policy.onCrash === "resume" || policy.onInFlight === "accept");
}

const choices: { readonly [Field in keyof Policy]?: readonly Policy[Field][] } = {
  profile: ["ietf", "stripe", "acp"],
  required: [true, false],
  keyFormat: ["any", "structured", "bare", "uuid"],
  scope: ["tenant", "tenant+endpoint"],
  mismatchStatus: [400, 409, 422],
  onInFlight: ["reject", "wait", "accept"],
  onCrash: ["reconcile", "resume", "retry"],
  onServerError: ["retry", "store", "reconcile"],
  keepRequest: [undefined, true, false],
  personalKeys: ["refuse", "allow"],
  onStoreDown: ["closed", "open"],
  lateArrivals: ["allow", "reject"],
  streaming: [true, false],
};

const positiveNumbers = ["retentionMs", "executionTimeoutMs", "requestBytesMax", "responseBytesMax"] as const;
const nonNegativeNumbers = ["waitMs", "reconcileAfterMs", "clockSkewMs"] as const;

function complaintsAbout(policy: Policy, capabilities: Capabilities): string[] {
  const complaints: string[] = redactionComplaints(policy.redact);
  for (const field of Object.keys(policy)) {
    if (!Object.hasOwn(defaultPolicy, field)) complaints.push(`"${field}" is not a policy`);
  }
  for (const [field, allowed] of Object.entries(choices)) {
    const value = policy[field as keyof Policy];
    if (!(allowed as readonly unknown[]).includes(value)) {
      complaints.push(`${field} is ${show(value)} and must be one of ${allowed.map(show).join(", ")}`);
    }
  }
  for (const field of positiveNumbers) {
    if (typeof policy[field] !== "number" || !(policy[field] > 0))
      complaints.push(`${field} is ${show(policy[field])} and must be above 0`);
  }
  for (const field of nonNegativeNumbers) {
    if (typeof policy[field] !== "number" || !(policy[field] >= 0))
      complaints.push(`${field} is ${show(policy[field])} and must not be below 0`);
  }
  for (const field of ["methods", "replayHeaders", "keepRequestHeaders"] as const) {
    const list: unknown = policy[field];
    if (!Array.isArray(list) || list.some((name) => typeof name !== "string"))
      complaints.push(`${field} must be an array of strings`);
  }
  if (Array.isArray(policy.methods) && policy.methods.length === 0) {
    complaints.push("methods is empty, so nothing would be protected");
  }
  if (policy.responseBytesMax > capabilities.responseBytesMax) {
    complaints.push(
      `responseBytesMax is ${policy.responseBytesMax}, and this store keeps at most ${capabilities.responseBytesMax} bytes in one record`,
    );
  }
  if (policy.onCrash === "resume" && (capabilities.durability === "none" || !capabilities.transactions)) {
    complaints.push(
      `onCrash is "resume", and ${capabilities.durability === "none" ? "this store forgets everything in a crash" : "this store has no transactions for atomic phases"}: use sqliteStore, postgresStore, mysqlStore or dynamodbStore, or leave it at "reconcile"`,
    );
  }
  if (
    policy.name !== undefined &&
    (typeof policy.name !== "string" || !/^[\x20-\x7e]{1,100}$/.test(policy.name))
  ) {
    complaints.push(`name is ${show(policy.name)} and must be 1 to 100 visible ASCII characters`);
  }
  if (typeof policy.isDefinitelyNotExecuted !== "function") {
    complaints.push("isDefinitelyNotExecuted must be a function of the error that returns true or false");
  }
  if (policy.onInFlight === "accept" && policy.keepRequest === false) {
    complaints.push('onInFlight is "accept", which needs the request to be kept: leave keepRequest out');
  }
  complaints.push(...complaintsAboutLateness(policy));
  return complaints;
}

function show(value: unknown): string {
  return typeof value === "string" ? `"${value}"` : String(value);
}

/** A spread would let an explicit `undefined` erase a default. */
function withoutUndefined(layer: PolicyInput): PolicyInput {
  return Object.fromEntries(Object.entries(layer).filter(([, value]) => value !== undefined));
}
