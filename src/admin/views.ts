import type { AuditedState } from "../core/audit.ts";
import type { OnCrash, RecordId, RecordState } from "../core/record.ts";
import type { OutcomeVerdict } from "../operation/reconciliation.ts";

/**
 * What the admin API answers with, as JSON: what the console shows and what `--json` prints. All times are milliseconds
 * since 1970 on the store's clock, and what is not known is null.
 */

/** One record in a list. */
export interface RecordView extends RecordId {
  /** The tenant's part of the scope. */
  readonly tenant: string;
  readonly state: RecordState;
  /** The number of the latest attempt: its fence. */
  readonly attempt: number;
  readonly route: string | null;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly completedAt: number | null;
  /** The status of the answer that retries get. */
  readonly status: number | null;
  readonly reason: string | null;
  readonly leaseUntil: number | null;
  /** When reconciliation asks next, and how often it has. */
  readonly reconcileAfter: number | null;
  readonly reconcileAttempts: number | null;
  /** Since when it waits for an operator. */
  readonly escalatedAt: number | null;
  readonly resumeAfter: number | null;
}

export interface RecordPageView {
  readonly records: readonly RecordView[];
  /** For the next page, as `cursor`; a page may be short, or empty, and not be the last. */
  readonly next: string | null;
  readonly order: "latest-first" | "unordered";
  readonly now: number;
}

/** One record, whole. */
export interface RecordDetailView extends RecordView {
  readonly fingerprint: string;
  readonly onCrash: OnCrash;
  /** Who holds the lease, while somebody does. */
  readonly owner: string | null;
  readonly phases: readonly PhaseView[];
  readonly response: ResponseView | null;
  /** What is written down about it, the earliest first. */
  readonly timeline: readonly TimelineEntry[];
  readonly duplicates: DuplicatesView | null;
  readonly now: number;
}

export interface PhaseView {
  readonly kind: "atomic" | "effect";
  readonly name: string;
  /** `begun` may have happened. */
  readonly state: "done" | "begun" | "failed";
  /** JSON, as text. */
  readonly result: string | null;
  readonly reference: string | null;
  /** The key under which the provider knows the call. */
  readonly idempotencyKey: string;
}

export type ResponseView =
  | {
      readonly kind: "full";
      readonly status: number;
      readonly headers: readonly (readonly [name: string, value: string])[];
      /** The beginning of the body, as text if it is that. */
      readonly body: string;
      readonly encoding: "utf8" | "base64";
      readonly bodyBytes: number;
      readonly isCut: boolean;
    }
  /** It is not shown, because it was not stored, cannot be read any more, or the admin API is told not to. */
  | {
      readonly kind: "omitted";
      readonly status: number;
      readonly bodyBytes: number | null;
      /** `sealed`: this process was not given the keys. */
      readonly because: "too-large" | "not-redactable" | "shredded" | "hidden" | "sealed";
    };

export interface TimelineEntry {
  readonly at: number;
  readonly attempt: number;
  readonly from: AuditedState | "absent";
  readonly to: AuditedState;
  /** Who moved it; null for the request itself. */
  readonly by: string | null;
  readonly reason: string | null;
}

/** What came again with this key, as far as processes have told; each remembers only the latest of its duplicates. */
export interface DuplicatesView {
  readonly replayed: number;
  readonly inProgress: number;
  readonly misused: number;
  readonly unknown: number;
  readonly lastAt: number;
}

/** What somebody on call wants to know first. */
export interface StatsView {
  readonly now: number;
  readonly store: { readonly name: string; readonly breaker: "closed" | "open" | "half-open" | "off" };
  /** How many are being executed right now; no more than 1000 are counted. */
  readonly running: number;
  readonly unknown: { readonly waiting: number; readonly escalated: number; readonly oldestMs: number };
  /** Null where the store has no outbox. */
  readonly outbox: { readonly waiting: number; readonly dead: number; readonly oldestDueMs: number } | null;
  readonly processes: readonly ProcessView[];
}

/** A process that has told of itself lately. */
export interface ProcessView {
  readonly id: string;
  readonly role: string;
  readonly host: string;
  readonly pid: number;
  readonly startedAt: number;
  readonly seenAt: number;
  /** It has told of itself when it should have. */
  readonly isAlive: boolean;
  readonly workers: readonly WorkerView[];
}

export interface WorkerView {
  readonly name: string;
  readonly rounds: number;
  readonly lastRoundAt: number | null;
  /** What it has done in all, of each kind. */
  readonly counts: Readonly<Record<string, number>>;
  readonly errors: number;
  readonly lastError: string | null;
  readonly lastErrorAt: number | null;
}

/** What requests came to, over time and in all processes together. */
export interface ActivityView {
  /** The beginning of the first step; each is `stepMs` long. */
  readonly from: number;
  readonly stepMs: number;
  /** One number for each step. */
  readonly series: Readonly<Record<ActivitySeries, readonly number[]>>;
}

export const activitySeries = [
  /** Requests that were executed, for the first time or again. */
  "executed",
  "replayed",
  /** Answered 409: the first was still being executed. */
  "inProgress",
  /** Answered 422: the key came with another request. */
  "misused",
  "unknown",
  /** Refused before the store was asked, or for a limit. */
  "refused",
  "limited",
  "storeDown",
  /** How executions ended. */
  "completed",
  "failedRetryable",
  "suspended",
] as const;
export type ActivitySeries = (typeof activitySeries)[number];

export interface DeadLetterView {
  readonly id: string;
  readonly topic: string;
  readonly key: string;
  readonly scope: string;
  readonly partition: string | null;
  readonly correlationId: string;
  readonly attempts: number;
  readonly createdAt: number;
  readonly diedAt: number;
  readonly error: string;
  /** The beginning of the payload, JSON as text; null where it is not shown. */
  readonly payload: string | null;
}

export interface DeadLetterPageView {
  readonly deadLetters: readonly DeadLetterView[];
  readonly next: string | null;
}

export interface AuditEntryView extends RecordId {
  readonly id: string;
  readonly at: number;
  readonly attempt: number;
  readonly from: AuditedState;
  readonly to: AuditedState;
  readonly by: string;
  readonly reason: string;
}

export interface AuditPageView {
  readonly entries: readonly AuditEntryView[];
  readonly next: string | null;
}

/** An operator's word on an unknown outcome. */
export interface ResolveBody extends RecordId {
  /** The attempt that was looked at: what became of a later one is not settled by this. */
  readonly attempt: number;
  readonly verdict: Exclude<OutcomeVerdict, { kind: "unknown" }>;
}

export interface BustBody extends RecordId {
  readonly attempt: number;
  readonly reason: string;
}

export interface RequeueBody {
  readonly ids: readonly string[];
}

/** The answers to the three, where something was changed; everything else is a {@link ProblemView}. */
export interface ResolvedView {
  readonly kind: "resolved";
  readonly expiresAt: number;
}

export interface BustedView {
  readonly kind: "busted";
}

export interface RequeuedView {
  /** Fewer than were asked for, if some were not dead any more. */
  readonly requeued: number;
}

/** What the admin API refuses with, as `application/problem+json`. */
export interface ProblemView {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  /** A sentence that says what to do. */
  readonly detail: string;
  readonly code: string;
  /** Everything that is wrong with what was sent, each with where it is. */
  readonly errors?: readonly { readonly at: string; readonly detail: string }[];
}

/** Who is asking, by the token that came with the request. */
export interface SessionView {
  readonly operator: string;
  readonly mayChange: boolean;
}

/** One line of the live stream, as the `data` of a server-sent event named `activity`. */
export interface LiveEventView {
  readonly at: number;
  /** An event's type and outcome, such as `reserved` and `replay`. */
  readonly type: string;
  readonly outcome: string | null;
  readonly scope: string | null;
  readonly key: string | null;
  /** The rest, in one sentence. */
  readonly detail: string | null;
  /** Which process it happened in; null where only the store tells. */
  readonly process: string | null;
}
