import type { ProblemCode } from "../core/problem.ts";
import type { RecordId } from "../core/record.ts";

/** What an arriving request was answered with. */
export type ReserveOutcome =
  | "created"
  | "replay"
  | "in_progress"
  | "accepted"
  | "absent"
  | "key_misuse"
  | "claimed"
  | "failed_retry"
  | "takeover"
  | "expired_retry"
  | "unknown"
  | "store_down"
  | "unprotected"
  | "limited";

/** Everything that the engine does, for metrics and logs. Happy requests are `reserved` and `settled`. */
export type LatchkeyEvent =
  | (RecordId & {
      readonly type: "reserved";
      readonly outcome: ReserveOutcome;
      /** Answered from this process's own memory: a duplicate of a request that it is executing or asking about. */
      readonly joined: boolean;
      /** Answered from this process's own memory: an answer that the store gave it before. */
      readonly cached: boolean;
      /** This request found the owner of an earlier one dead, and the outcome has been unknown since. */
      readonly discovered: boolean;
    })
  | (RecordId & {
      readonly type: "settled";
      readonly as: "completed" | "failed_retryable" | "unknown";
      readonly attempt: number;
      /** From asking for the key until the handler's outcome was known. */
      readonly ms: number;
      readonly reason?: string;
    })
  /** This process executed, and its outcome was refused: another owner has the key. */
  | (RecordId & { readonly type: "lease_lost"; readonly attempt: number; readonly reason: string })
  | (RecordId & { readonly type: "execution_timeout"; readonly attempt: number })
  | (RecordId & { readonly type: "waited"; readonly ms: number; readonly answered: boolean })
  /** A handler threw where no framework could answer for it. */
  | (RecordId & { readonly type: "handler_failed"; readonly error: unknown })
  | { readonly type: "store_error"; readonly verb: StoreVerb; readonly error: unknown }
  | {
      readonly type: "swept";
      readonly unknown: number;
      readonly retryable: number;
      readonly unclaimed: number;
    }
  | { readonly type: "reaped"; readonly deleted: number; readonly expired: number }
  /** A phase of a handler: done now, or done by an earlier attempt and skipped, or failed. */
  | (RecordId & {
      readonly type: "phase";
      readonly name: string;
      readonly kind: "atomic" | "effect";
      readonly attempt: number;
      readonly outcome: "done" | "skipped" | "failed";
    })
  /** An unknown outcome was asked about, or settled by somebody who knew. */
  | (RecordId & {
      readonly type: "reconciled";
      readonly outcome:
        | "completed"
        | "not-executed"
        | "effect-done"
        | "resume"
        | "still-unknown"
        | "escalated";
      readonly by: string;
    })
  /** An operator took an answer away. */
  | (RecordId & { readonly type: "busted"; readonly by: string; readonly reason: string })
  | {
      readonly type: "delivered";
      readonly topic: string;
      readonly messageKey: string;
      readonly attempts: number;
    }
  | {
      readonly type: "delivery_failed" | "dead_letter";
      readonly topic: string;
      readonly messageKey: string;
      readonly attempts: number;
      readonly error: unknown;
    }
  /** A tenant wanted more than its limits allow: the request was refused, and nothing was executed. */
  | { readonly type: "limited"; readonly tenantScope: string; readonly limit: LimitName }
  /** A request was refused before the store was asked about it, for this reason. */
  | { readonly type: "refused"; readonly code: ProblemCode }
  /** The breaker around the store has changed its mind. */
  | { readonly type: "breaker"; readonly state: BreakerState; readonly reason: string }
  /** What was kept about a tenant has been removed, or made unreadable. */
  | {
      readonly type: "forgotten";
      readonly tenantScope: string;
      readonly how: "removed" | "shredded";
      readonly by: string;
    }
  /** A worker's round; one that found nothing to do has only zeros. */
  | { readonly type: "worker"; readonly worker: string; readonly counts: Readonly<Record<string, number>> }
  | { readonly type: "worker_error"; readonly worker: string; readonly error: unknown };

/** What can be limited for each tenant. */
export type LimitName = "newKeys" | "lookUps" | "activeKeys" | "storedBytes";

/** `closed` lets everything through, `open` nothing, `half-open` a few to see. */
export type BreakerState = "closed" | "open" | "half-open";

export type StoreVerb =
  | "reserve"
  | "settle"
  | "renew"
  | "advance"
  | "transact"
  | "read"
  | "watch"
  | "sweep"
  | "reap"
  | "claim"
  | "resolve"
  | "bust"
  | "list"
  | "audit"
  | "outbox"
  | "notes"
  | "forget"
  | "counts";

export type EventListener = (event: LatchkeyEvent) => void;

/** Tells every listener. One that throws is no reason to fail a payment. */
export class Events {
  /** Never changed but replaced, so that telling them is a loop over an array, which is on the path of every request. */
  #listeners: readonly EventListener[] = [];

  subscribe(listener: EventListener): () => void {
    const others = () => this.#listeners.filter((other) => other !== listener);
    this.#listeners = [...others(), listener];
    return () => {
      this.#listeners = others();
    };
  }

  /** Lets the path of every request skip making an event that nobody would hear. */
  get areHeard(): boolean {
    return this.#listeners.length > 0;
  }

  emit(event: LatchkeyEvent): void {
    for (const listener of this.#listeners) {
      try {
        const returned: unknown = listener(event);
        if (returned instanceof Promise) returned.catch(warn);
      } catch (error) {
        warn(error);
      }
    }
  }
}

/** A listener's own bug must surface, but neither in the request that happened to trigger it nor by ending the process. */
function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error));
}
