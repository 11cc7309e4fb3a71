import type { AuditedState } from "../../core/audit.ts";
import { stateWords } from "../words.ts";

/** A state by colour, shape and word, so that none of the three is needed to tell it. */
export function StateBadge({ state }: { readonly state: AuditedState | "absent" }) {
  return (
    <span class={`state state-${state}`}>
      <StateShape state={state} />
      {stateWords[state]}
    </span>
  );
}

export function StateShape({ state }: { readonly state: AuditedState | "absent" }) {
  return (
    <svg class="state-shape" viewBox="0 0 16 16" aria-hidden="true">
      {shapes[state]}
    </svg>
  );
}

const shapes = {
  pending: (
    <>
      <circle cx="8" cy="8" r="6" class="line" />
      <path d="M8 4.5V8l2.5 1.5" class="line" />
    </>
  ),
  in_progress: <path d="M4 2.5v11l9-5.5z" class="solid" />,
  completed: <path d="M2.5 8.5l3.5 4 7.5-9" class="line" />,
  failed_retryable: (
    <>
      <path d="M13 8a5 5 0 1 1-1.6-3.7" class="line" />
      <path d="M13.4 1.6v3.6H9.8z" class="solid" />
    </>
  ),
  unknown: <path d="M8 1l7 7-7 7-7-7z" class="solid" />,
  expired: (
    <>
      <circle cx="8" cy="8" r="6" class="line" />
      <path d="M5 8h6" class="line" />
    </>
  ),
  dead_letter: <path d="M3 3l10 10M13 3L3 13" class="line" />,
  requeued: <path d="M2.5 8h9M8 4l4 4-4 4" class="line" />,
  absent: <circle cx="8" cy="8" r="5" class="line" />,
};
