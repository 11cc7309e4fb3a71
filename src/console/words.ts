import type { ActivitySeries, ResponseView } from "../admin/views.ts";
import type { AuditedState } from "../core/audit.ts";
import type { RecordState } from "../core/record.ts";

/** What people call a state. */
export const stateWords: Readonly<Record<AuditedState | "absent", string>> = {
  pending: "pending",
  in_progress: "running",
  completed: "completed",
  failed_retryable: "may be retried",
  unknown: "unknown",
  expired: "expired",
  dead_letter: "dead letter",
  requeued: "requeued",
  absent: "new",
};

/** What a duplicate would get now. */
export const stateMeanings: Readonly<Record<RecordState, string>> = {
  pending: "Accepted, and not executed yet. Duplicates get 202 and the address of its status.",
  in_progress: "Being executed. Duplicates get 409, or wait for its answer.",
  completed: "The outcome is known, and every retry gets it.",
  failed_retryable: "Proven not to be done. The next request with this key is executed.",
  unknown: "It may have been executed. No retry executes it; reconciliation or an operator settles it.",
  expired: "Past its retention, or busted. The next request with this key is executed.",
};

export const recordStates: readonly RecordState[] = [
  "in_progress",
  "unknown",
  "failed_retryable",
  "pending",
  "completed",
  "expired",
];

export const seriesWords: Readonly<Record<ActivitySeries, string>> = {
  executed: "executed",
  replayed: "replayed",
  inProgress: "in progress (409)",
  misused: "key misused (422)",
  unknown: "unknown (409)",
  refused: "refused",
  limited: "limited (429)",
  storeDown: "store down (503)",
  completed: "completed",
  failedRetryable: "may be retried",
  suspended: "became unknown",
};

type NotShown = Extract<ResponseView, { kind: "omitted" }>["because"];

export const notShownWords: Readonly<Record<NotShown, string>> = {
  "too-large": "The answer was larger than its route stores. Retries get 409 response-not-stored.",
  "not-redactable": "The answer could not be redacted as its route says, so it was not stored.",
  shredded: "The answer cannot be read any more: the tenant's key was shredded.",
  sealed: "The answer is encrypted, and the process of this admin API was not given the keys.",
  hidden: "This admin API is configured not to show answers.",
};

/** `1 message`, `2 messages`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** The two largest units that matter: `340 ms`, `12 s`, `3 min`, `2 h 5 min`, `4 d 2 h`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 10) return `${(ms / 1000).toFixed(1)} s`;
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  const days = Math.floor(hours / 24);
  return hours % 24 === 0 ? `${days} d` : `${days} d ${hours % 24} h`;
}

export function relative(at: number, now: number): string {
  const ms = now - at;
  if (Math.abs(ms) < 1000) return "now";
  const whole = Math.floor(Math.abs(ms) / 1000) * 1000;
  const text = whole < 10_000 ? `${whole / 1000} s` : duration(whole);
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

export function absolute(at: number): string {
  return new Date(at).toISOString().replace("T", " ").replace("Z", " UTC");
}

export function bytes(count: number): string {
  if (count < 1024) return counted(count, "byte");
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KiB`;
  return `${(count / 1024 / 1024).toFixed(1)} MiB`;
}

/**
 * JSON as people read it; anything else as it is. Only the space between its parts is changed: what a parser makes of a
 * long number or of a name that comes twice is not what is stored.
 */
export function pretty(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let shown = "";
  let depth = 0;
  let before = "";
  for (const [part] of text.matchAll(jsonParts)) {
    const isEnd = part === "}" || part === "]";
    if (isEnd) depth -= 1;
    const isEmpty = isEnd && (before === "{" || before === "[");
    const startsLine = before === "{" || before === "[" || before === "," || isEnd;
    if (startsLine && !isEmpty) shown += `\n${"  ".repeat(depth)}`;
    shown += part === ":" ? ": " : part;
    if (part === "{" || part === "[") depth += 1;
    before = part;
  }
  return shown;
}

/** Texts, signs, and whatever else is not space: numbers and words. */
const jsonParts = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]:,]|[^\s"{}[\]:,]+/g;

/** What somebody has typed as JSON. */
export function jsonIn(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`${what} is not JSON: ${cause instanceof Error ? cause.message : cause}`, { cause });
  }
}
