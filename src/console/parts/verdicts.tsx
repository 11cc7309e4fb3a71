import { useState } from "preact/hooks";
import type { RecordDetailView } from "../../admin/views.ts";
import { useConsole } from "../context.ts";
import type { VerdictProps } from "../settling.ts";
import { ExecutedDialog } from "./executed-dialog.tsx";
import { GoOnDialog } from "./go-on-dialog.tsx";
import { NotExecutedDialog } from "./not-executed-dialog.tsx";
import { ResumeDialog } from "./resume-dialog.tsx";

interface Asked {
  readonly verdict: "executed" | "not-executed" | "effect-done" | "resume";
  /** As it was when the operator began to answer: a page that looks again must not make it an answer about a later attempt. */
  readonly record: RecordDetailView;
}

/** What an operator can say about an unknown outcome. Each is asked about before it counts. */
export function Verdicts({ record, onChanged }: Omit<VerdictProps, "onClose">) {
  const { session } = useConsole();
  const [asked, setAsked] = useState<Asked>();
  const ask = (verdict: Asked["verdict"]) => setAsked({ verdict, record });
  const isOpen = record.phases.some(({ state }) => state === "begun");
  const isDisabled = !session.mayChange;
  return (
    <>
      <button type="button" class="primary" disabled={isDisabled} onClick={() => ask("executed")}>
        It was executed…
      </button>
      <button type="button" disabled={isDisabled} onClick={() => ask("not-executed")}>
        It was not executed…
      </button>
      {isOpen && (
        <button type="button" disabled={isDisabled} onClick={() => ask("effect-done")}>
          The call happened: go on…
        </button>
      )}
      {!isOpen && record.phases.length > 0 && (
        <button type="button" disabled={isDisabled} onClick={() => ask("resume")}>
          Nothing is in doubt: go on…
        </button>
      )}
      {isDisabled && <span class="muted">Your token may look, and change nothing.</span>}
      {asked !== undefined && (
        <AskedDialog
          verdict={asked.verdict}
          record={asked.record}
          onChanged={onChanged}
          onClose={() => setAsked(undefined)}
        />
      )}
    </>
  );
}

function AskedDialog({ verdict, ...props }: VerdictProps & Pick<Asked, "verdict">) {
  switch (verdict) {
    case "executed":
      return <ExecutedDialog {...props} />;
    case "not-executed":
      return <NotExecutedDialog {...props} />;
    case "effect-done":
      return <GoOnDialog {...props} />;
    case "resume":
      return <ResumeDialog {...props} />;
    default:
      return verdict satisfies never;
  }
}
