import { bindingMark, boundFingerprint, isOpenTo } from "../core/binding.ts";
import type { Policy } from "../core/policy.ts";
import { isTenant, scopeOf, tenantScopeOf } from "../core/scope.ts";
import { crashed } from "../core/transition.ts";
import type { Latchkey } from "../latchkey.ts";
import type { TenantOf, TenantRequest } from "../latchkey-options.ts";
import {
  type AnswerContext,
  acceptedAnswer,
  type HttpAnswer,
  problemAnswer,
  replayAnswer,
} from "./answer.ts";
import { type BindingOf, isBinding } from "./binding.ts";
import { storeDownRetryAfterMs, unknownRetryAfterMsMin } from "./exchange.ts";
import { limitedAnswer } from "./limited.ts";

/** A request for the status resource. */
export interface StatusRequest extends TenantRequest {
  readonly query: string;
}

/** Who may ask: what the routes themselves say about it. */
export interface StatusOptions<Native> {
  readonly tenant?: TenantOf<Native>;
  /** Without it no request is shown whose key is tied to a session. */
  readonly binding?: BindingOf<Native>;
}

/** Where to ask about a request that is under way; undefined where there is no such place. */
export function statusLocation(
  latchkey: Latchkey,
  policy: Policy,
  request: { readonly key: string; readonly method: string; readonly path: string },
): string | undefined {
  if (latchkey.statusPath === undefined) return undefined;
  const location = `${latchkey.statusPath}/${encodeURIComponent(request.key)}`;
  if (policy.scope === "tenant") return location;
  return `${location}?endpoint=${encodeURIComponent(`${request.method} ${request.path}`)}`;
}

/**
 * What became of a request: 202 while it runs, its answer when it is done, 404 for a key that this caller never used
 * (another tenant's looks no different), 410 when the answer has expired.
 */
export async function answerStatus<Native>(
  latchkey: Latchkey,
  request: StatusRequest,
  options: StatusOptions<Native> = {},
): Promise<HttpAnswer> {
  const policy = latchkey.policy();
  const key = keyOf(request.path);
  const context: AnswerContext = { policy, typeBase: latchkey.problemTypeBase, key };
  const tenant = await tenantName(latchkey, request, options.tenant);
  if (!isTenant(tenant)) {
    return problemAnswer(context, "tenant-missing", { detail: "Authenticate, and ask again." });
  }
  const session = await options.binding?.(request.native as Native);
  if (options.binding !== undefined && !isBinding(session, { isClaim: false })) {
    return problemAnswer(context, "session-missing", { detail: "Sign in, and ask again." });
  }
  const scope = scopeFor(tenant, request.query);
  const refusal = await latchkey.engine.limits?.lookUp({
    tenant,
    tenantScope: tenantScopeOf(scope),
    isClaim: false,
  });
  if (refusal !== undefined) return limitedAnswer(context, refusal);
  // Before it is known whether there is a record: how long the answer takes must not tell.
  const mark =
    key === undefined || typeof session !== "string" ? undefined : bindingMark({ scope, key }, session);
  const reading = key === undefined ? undefined : await latchkey.engine.read({ scope, key });
  if (reading === undefined && key !== undefined) {
    return problemAnswer(context, "store-unavailable", {
      detail: "The status cannot be read right now. Ask again.",
      retryAfterMs: latchkey.engine.storeRetryAfterMs ?? storeDownRetryAfterMs,
    });
  }
  const record = reading?.record;
  const now = reading?.now ?? 0;
  // Compared with something in any case, for the same reason.
  const isOpen = isOpenTo(record?.fingerprint ?? nobodysFingerprint, mark);
  if (record === undefined || !isOpen) {
    return problemAnswer(context, "key-not-found", { detail: "You have not sent a request with this key." });
  }
  // A dead owner's record is answered as it will be when somebody ends it.
  const isDead = record.state === "in_progress" && record.leaseUntil <= now;
  const isRequestKept = record.onCrash === "resume";
  const current = isDead ? crashed(record, now, { isRequestKept }) : record;
  const underWay = () =>
    acceptedAnswer(context, { location: request.path + suffixOf(request.query), retryAfterMs: 1000 });
  switch (current.state) {
    case "pending":
    case "in_progress":
      return underWay();
    case "completed":
      if (current.expiresAt <= now) return expiredAnswer(context);
      return replayAnswer(context, current.response, current.expiresAt);
    case "failed_retryable":
      // A worker is about to go on with it.
      if (current.resumeAfter !== undefined) return underWay();
      return problemAnswer(context, "no-answer", {
        detail: "The request failed, or its process did. Send it again with the same key.",
      });
    case "unknown":
      return problemAnswer(context, "outcome-unknown", {
        detail:
          "The request may have been executed, and it is not known yet whether it was. Ask again later.",
        retryAfterMs: Math.max(current.reconcileAfter - now, unknownRetryAfterMsMin),
      });
    case "expired":
      return expiredAnswer(context);
    default:
      return current satisfies never;
  }
}

/** Tied to a session, as those are that nobody else may see. */
const nobodysFingerprint = boundFingerprint("v1:", { scope: "", key: "" }, "");

function expiredAnswer(context: AnswerContext): HttpAnswer {
  return problemAnswer(context, "key-expired", {
    detail: "The answer is not kept any longer. Read the result from the resource that the request created.",
  });
}

async function tenantName<Native>(
  latchkey: Latchkey,
  request: StatusRequest,
  tenantOf: TenantOf<Native> | undefined,
): Promise<string | undefined> {
  if (tenantOf !== undefined) return tenantOf(request.native as Native);
  return latchkey.tenant === "single" ? "single" : latchkey.tenant(request);
}

/** The last segment of the path; undefined if it is not the encoding of a key. */
function keyOf(path: string): string | undefined {
  try {
    return decodeURIComponent(path.slice(path.lastIndexOf("/") + 1)) || undefined;
  } catch {
    return undefined;
  }
}

function scopeFor(tenant: string, query: string): string {
  const endpoint = new URLSearchParams(query).get("endpoint");
  const [method, path] = endpoint === null ? [] : endpoint.split(/ (.*)/s);
  return method !== undefined && path !== undefined
    ? scopeOf({ tenant, policy: "tenant+endpoint", method, path })
    : scopeOf({ tenant, policy: "tenant", method: "", path: "" });
}

function suffixOf(query: string): string {
  return query === "" ? "" : `?${query}`;
}
