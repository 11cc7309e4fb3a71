import type { TimelineEntry } from "../admin/views.ts";
import type { AuditedState } from "../core/audit.ts";

/** A stretch of time that a record spent in one state, under one attempt. */
export interface Stretch {
  readonly state: AuditedState;
  readonly attempt: number;
  readonly from: number;
  readonly to: number;
  /** It is still so. */
  readonly isOpen: boolean;
  /** Where it is drawn, in percent of the whole width. */
  readonly left: number;
  readonly width: number;
}

/**
 * The stretches of a record's life. Attempts take milliseconds and doubts take hours, so widths grow with the logarithm
 * of the time: what is drawn is an order of events, and how long each took is written on it.
 */
export function stretchesOf(timeline: readonly TimelineEntry[], now: number): readonly Stretch[] {
  const entries = timeline
    // What happened to a message is not a state of the record.
    .filter(({ to }) => to !== "dead_letter" && to !== "requeued")
    // An outcome that was handed to an operator is as unknown as before.
    .filter(
      ({ to, attempt }, index, all) => to !== all[index - 1]?.to || attempt !== all[index - 1]?.attempt,
    );
  const lengths = entries.map(({ at, to }, index) => {
    const end = entries[index + 1]?.at ?? Math.max(now, at);
    const isLast = index === entries.length - 1;
    // How long an answer has been there since is no part of how it came to be.
    return isLast && isOver(to) ? lengthOf(0) : lengthOf(end - at);
  });
  const whole = lengths.reduce((sum, length) => sum + length, 0);
  let left = 0;
  return entries.map((entry, index) => {
    const width = ((lengths[index] ?? 0) / whole) * 100;
    const next = entries[index + 1];
    const stretch = {
      state: entry.to,
      attempt: entry.attempt,
      from: entry.at,
      to: next?.at ?? Math.max(now, entry.at),
      isOpen: next === undefined,
      left,
      width,
    };
    left += width;
    return stretch;
  });
}

export function isOver(state: AuditedState): boolean {
  return state === "completed" || state === "expired";
}

function lengthOf(ms: number): number {
  return 4 + Math.log10(1 + ms / 10);
}
