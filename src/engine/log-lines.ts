import type { RecordId } from "../core/record.ts";
import type { LatchkeyEvent } from "./events.ts";
import { loggedError } from "./logged-error.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";

/** One line of a log. */
export interface LogLine {
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: { readonly event: string } & Readonly<Record<string, unknown>>;
  /** Lines of one kind may come by the thousand: the first is written, and the rest counted. */
  readonly kind?: string;
}

/** How keys, scopes and tenants are shown. */
export interface Shown {
  key(key: string): string;
  scope(scope: string): string;
  tenant(tenantScope: string): string;
}

type Event<Type extends LatchkeyEvent["type"]> = Extract<LatchkeyEvent, { type: Type }>;

/** What is said about an event; nothing, if it is what happens with every request that goes well. */
export function logLineOf(event: LatchkeyEvent, shown: Shown): LogLine | undefined {
  switch (event.type) {
    case "reserved":
      return reservedLine(event, shown);
    case "settled":
      return settledLine(event, shown);
    case "lease_lost": {
      const { type, attempt, reason } = event;
      const fields = { event: type, ...named(event, shown), attempt, reason };
      return {
        level: "warn",
        message: "the lease was lost: this process's outcome counts for nothing",
        fields,
      };
    }
    case "execution_timeout": {
      const fields = { event: event.type, ...named(event, shown), attempt: event.attempt };
      return { level: "warn", message: "the handler took too long", fields };
    }
    case "handler_failed": {
      const fields = { event: event.type, ...named(event, shown), error: loggedError(event.error) };
      return { level: "error", message: "the handler threw", fields };
    }
    case "phase": {
      if (event.outcome !== "failed") return undefined;
      const { type, attempt, name: phase, kind } = event;
      const fields = { event: `${type}_failed`, ...named(event, shown), attempt, phase, kind };
      return { level: "debug", message: "a phase failed", fields };
    }
    case "store_error": {
      const { type, verb } = event;
      const error = loggedError(event.error);
      const kind = `${type} ${verb} ${error.type} ${error.code}`;
      return { level: "error", message: "the store failed", fields: { event: type, verb, error }, kind };
    }
    case "swept": {
      const { type, unknown, retryable, unclaimed } = event;
      if (unknown + retryable + unclaimed === 0) return undefined;
      const fields = { event: type, unknown, retryable, unclaimed };
      return { level: "warn", message: "owners had died, or nobody executed what was accepted", fields };
    }
    case "reconciled":
      return reconciledLine(event, shown);
    case "busted": {
      const fields = { event: event.type, ...named(event, shown), by: event.by, reason: event.reason };
      return { level: "warn", message: "an answer was taken away", fields };
    }
    case "delivery_failed":
      return {
        level: "debug",
        message: "a delivery failed, and is tried again",
        fields: messageFields(event),
      };
    case "dead_letter":
      return { level: "error", message: "a message cannot be delivered", fields: messageFields(event) };
    case "limited": {
      const { type, limit } = event;
      const tenant = shown.tenant(event.tenantScope);
      const fields = { event: type, tenant, limit };
      return {
        level: "warn",
        message: "a tenant is over its limit",
        fields,
        kind: `${type} ${limit} ${tenant}`,
      };
    }
    case "breaker": {
      const { type, state, reason } = event;
      const level = state === "open" ? "error" : "info";
      return {
        level,
        message: `the breaker around the store is ${state}`,
        fields: { event: type, state, reason },
      };
    }
    case "forgotten": {
      const { type, tenantScope, how, by } = event;
      const fields = { event: type, tenant: shown.tenant(tenantScope), how, by };
      return { level: "info", message: "a tenant was forgotten", fields };
    }
    case "worker_error": {
      const { type, worker } = event;
      const error = loggedError(event.error);
      const kind = `${type} ${worker} ${error.type} ${error.code}`;
      return { level: "error", message: "a worker failed", fields: { event: type, worker, error }, kind };
    }
    case "refused":
    case "reaped":
    case "waited":
    case "delivered":
    case "worker":
      return undefined;
    default:
      return event satisfies never;
  }
}

function reservedLine(event: Event<"reserved">, shown: Shown): LogLine | undefined {
  const { outcome } = event;
  switch (outcome) {
    case "key_misuse":
      return keyLine("warn", "a key came back with another request");
    case "takeover":
      return keyLine("warn", "the owner had died: the request is executed again");
    case "unknown":
      return event.discovered ? keyLine("warn", "the owner has died: nobody knows the outcome") : undefined;
    case "unprotected":
      return keyLine("error", "the request runs without protection: the store did not answer");
    case "absent":
      return keyLine("warn", "a worker came for a request that is not there");
    case "created":
    case "replay":
    case "in_progress":
    case "accepted":
    case "claimed":
    case "failed_retry":
    case "expired_retry":
    case "limited":
    case "store_down":
      return undefined;
    default:
      return outcome satisfies never;
  }

  function keyLine(level: LogLevel, message: string): LogLine {
    return { level, message, fields: { event: outcome, ...named(event, shown) } };
  }
}

function settledLine(event: Event<"settled">, shown: Shown): LogLine | undefined {
  const { as, attempt, reason } = event;
  switch (as) {
    case "completed":
      return undefined;
    case "unknown": {
      const fields = { event: "unknown", ...named(event, shown), attempt, reason };
      return { level: "warn", message: "nobody knows the outcome", fields };
    }
    case "failed_retryable": {
      const fields = { event: as, ...named(event, shown), attempt, reason };
      return { level: "debug", message: "the request failed, and may be tried again", fields };
    }
    default:
      return as satisfies never;
  }
}

function reconciledLine(event: Event<"reconciled">, shown: Shown): LogLine {
  const { type, outcome, by } = event;
  const fields = { event: type, ...named(event, shown), outcome, by };
  switch (outcome) {
    case "completed":
    case "not-executed":
    case "effect-done":
    case "resume":
      return { level: "info", message: "an unknown outcome was settled", fields };
    case "still-unknown":
      return { level: "debug", message: "an outcome is still unknown", fields };
    case "escalated":
      return { level: "error", message: "an operator has to settle an unknown outcome", fields };
    default:
      return outcome satisfies never;
  }
}

function messageFields(event: Event<"delivery_failed" | "dead_letter">) {
  const { type, topic, messageKey, attempts, error } = event;
  return { event: type, topic, messageKey, attempts, error: loggedError(error) };
}

function named({ scope, key }: RecordId, shown: Shown): RecordId {
  return { scope: shown.scope(scope), key: shown.key(key) };
}
