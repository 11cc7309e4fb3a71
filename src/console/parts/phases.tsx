import type { PhaseView } from "../../admin/views.ts";
import { pretty } from "../words.ts";
import { Name } from "./copy.tsx";

const words = {
  done: "done",
  begun: "open: may have happened",
  failed: "did not happen",
};

/** How far the operation has come. What is open is what has to be looked up at the provider. */
export function Phases({ phases }: { readonly phases: readonly PhaseView[] }) {
  if (phases.length === 0) return <p class="empty">No phase is written down.</p>;
  return (
    <ol class="phases" aria-label="Phases">
      {phases.map((phase) => (
        <li key={phase.name} class={`phase phase-${phase.state}`}>
          <span class="phase-mark" aria-hidden="true" />
          <div>
            <p class="phase-head">
              <b>{phase.name}</b> <span class="muted">{phase.kind}</span>{" "}
              <span class="phase-state">{words[phase.state]}</span>
            </p>
            {phase.kind === "effect" && (
              <p class="phase-line">
                <span class="muted">provider key</span>{" "}
                <Name text={phase.idempotencyKey} what={`the provider's key of ${phase.name}`} />
              </p>
            )}
            {phase.reference !== null && (
              <p class="phase-line">
                <span class="muted">provider reference</span>{" "}
                <Name text={phase.reference} what={`the provider's reference of ${phase.name}`} />
              </p>
            )}
            {phase.result !== null && (
              <details>
                <summary>Result</summary>
                <pre>{pretty(phase.result)}</pre>
              </details>
            )}
          </div>
        </li>
      ))}
    </ol>
  );
}
