import type { AuditEntry } from "../core/audit.ts";
import type { LatchkeyEvent } from "../engine/events.ts";
import { loggedError } from "../engine/logged-error.ts";
import type { LiveEventView } from "./views.ts";

/** What is shown of an event: nothing, if nothing has happened. */
export function liveViewOf(event: LatchkeyEvent, at: number, process: string): LiveEventView | undefined {
  const view = (outcome: string | null, detail: string | null = null): LiveEventView => ({
    at,
    type: event.type,
    outcome,
    scope: "scope" in event ? event.scope : null,
    key: "key" in event ? event.key : null,
    detail,
    process,
  });
  switch (event.type) {
    case "reserved":
      return view(event.outcome, event.joined ? "answered together with the first of them" : null);
    case "settled":
      return view(event.as, sentence(`attempt ${event.attempt}, ${Math.round(event.ms)} ms`, event.reason));
    case "lease_lost":
      return view(null, sentence(`attempt ${event.attempt}`, event.reason));
    case "execution_timeout":
      return view(null, `attempt ${event.attempt}`);
    case "waited":
      return view(event.answered ? "answered" : "gave up", `${Math.round(event.ms)} ms`);
    case "handler_failed":
      return view(null, messageOf(event.error));
    case "store_error":
      return view(event.verb, messageOf(event.error));
    case "swept":
    case "reaped":
      return undefined; // The worker's round says the same.
    case "phase":
      return view(event.outcome, `${event.kind} ${event.name}, attempt ${event.attempt}`);
    case "reconciled":
      return view(event.outcome, `by ${event.by}`);
    case "busted":
      return view(null, `by ${event.by}: ${event.reason}`);
    case "delivered":
      return view(null, messageText(event));
    case "delivery_failed":
    case "dead_letter":
      return view(null, `${messageText(event)}: ${messageOf(event.error)}`);
    case "limited":
      return view(event.limit, `tenant ${event.tenantScope}`);
    case "refused":
      return view(event.code);
    case "breaker":
      return view(event.state, event.reason);
    case "forgotten":
      return view(event.how, `tenant ${event.tenantScope}, by ${event.by}`);
    case "worker": {
      const done = Object.entries(event.counts).filter(([, count]) => count > 0);
      if (done.length === 0) return undefined;
      return view(event.worker, done.map(([kind, count]) => `${kind} ${count}`).join(", "));
    }
    case "worker_error":
      return view(event.worker, messageOf(event.error));
    default:
      return event satisfies never;
  }
}

/** What the audit trail says, whichever process it happened in. */
export function auditViewOf({ at, scope, key, from, to, by, reason }: AuditEntry): LiveEventView {
  return {
    at,
    type: "audited",
    outcome: to,
    scope,
    key,
    detail: `${from} → ${to}, by ${by}: ${reason}`,
    process: null,
  };
}

/** Some were not told, so that the others could be. */
export function leftOutView(at: number, detail: string): LiveEventView {
  return { at, type: "left_out", outcome: null, scope: null, key: null, detail, process: null };
}

function messageText(event: {
  readonly topic: string;
  readonly messageKey: string;
  readonly attempts: number;
}) {
  return `${event.topic} ${event.messageKey}, ${event.attempts} failed before`;
}

function messageOf(error: unknown): string {
  return loggedError(error).message;
}

function sentence(beginning: string, rest: string | undefined): string {
  return rest === undefined ? beginning : `${beginning}: ${rest}`;
}
