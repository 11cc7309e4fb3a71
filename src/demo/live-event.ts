import type { LiveEventView } from "../admin/views.ts";
import type { LatchkeyEvent } from "../engine/events.ts";

/** An event as text, for the way to another process. */
export function liveEventOf(event: LatchkeyEvent): LiveEventView {
  const { type, ...about } = event as LatchkeyEvent & Record<string, unknown>;
  const text = (value: unknown) => (typeof value === "string" ? value : null);
  return {
    at: Date.now(),
    type,
    outcome: text(about.outcome) ?? text(about.as) ?? text(about.code),
    scope: text(about.scope),
    key: text(about.key),
    detail: text(about.reason) ?? text(about.by),
    process: String(process.pid),
  };
}
