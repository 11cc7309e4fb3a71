import type { AuditEntry } from "../core/audit.ts";
import type { IdempotencyRecord } from "../core/record.ts";
import type { TimelineEntry } from "./views.ts";

/** The life of a record as far as it is written down: its beginning, what the audit trail has, and its answer. */
export function timelineOf(
  record: IdempotencyRecord,
  audit: readonly AuditEntry[],
): readonly TimelineEntry[] {
  // The trail comes with the latest first, and may have what is left of an earlier life of this key.
  const told = audit.toReversed().map(entryOf);
  const earlier = told.filter(({ at }) => at < record.createdAt);
  const since = told.filter(({ at }) => at >= record.createdAt);
  const timeline = [...earlier, beginningOf(record, earlier.at(-1), since[0]), ...since];
  if (record.state === "completed" && !since.some((entry) => isCompletionOf(record, entry))) {
    timeline.push({
      at: record.completedAt,
      attempt: record.fence,
      from: "in_progress",
      to: "completed",
      by: null,
      reason: null,
    });
  }
  return timeline.toSorted((one, other) => one.at - other.at);
}

function entryOf({ at, fence, from, to, by, reason }: AuditEntry): TimelineEntry {
  return { at, attempt: fence, from, to, by, reason };
}

/** Nobody writes down that a request came for the first time: the record itself says so. */
function beginningOf(
  record: IdempotencyRecord,
  before: TimelineEntry | undefined,
  next: TimelineEntry | undefined,
): TimelineEntry {
  const isAfterExpiry = before?.to === "expired";
  const isAccepted = record.state === "pending" || next?.from === "pending";
  return {
    at: record.createdAt,
    attempt: isAfterExpiry ? before.attempt + 1 : 1,
    from: isAfterExpiry ? "expired" : "absent",
    to: isAccepted ? "pending" : "in_progress",
    by: null,
    reason: null,
  };
}

/** Somebody else than the request itself has said what became of it. */
function isCompletionOf(record: IdempotencyRecord, { attempt, to }: TimelineEntry): boolean {
  return to === "completed" && attempt === record.fence;
}
