import { useState } from "preact/hooks";
import { useConsole } from "../context.ts";
import type { VerdictProps } from "../settling.ts";
import { ExecutedDialog } from "./executed-dialog.tsx";
import { GoOnDialog } from "./go-on-dialog.tsx";
import { NotExecutedDialog } from "./not-executed-dialog.tsx";
import { ResumeDialog } from "./resume-dialog.tsx";

type Asked = "executed" | "not-executed" | "effect-done" | "resume";

/** What an operator can say about an unknown outcome. Each is asked about before it counts. */
export function Verdicts({ record, onChanged }: Omit<VerdictProps, "onClose">) {
  const { session } = useConsole();
  const [asked, setAsked] = useState<Asked>();
  const isOpen = record.phases.some(({ state }) => state === "begun");
  const props = { record, onChanged, onClose: () => setAsked(undefined) };
  const isDisabled = !session.mayChange;
  return (
    <>
      <button type="button" class="primary" disabled={isDisabled} onClick={() => setAsked("executed")}>
        It was executed…
      </button>
      <button type="button" disabled={isDisabled} onClick={() => setAsked("not-executed")}>
        It was not executed…
      </button>
      {isOpen && (
        <button type="button" disabled={isDisabled} onClick={() => setAsked("effect-done")}>
          The call happened: go on…
        </button>
      )}
      {!isOpen && record.phases.length > 0 && (
        <button type="button" disabled={isDisabled} onClick={() => setAsked("resume")}>
          Nothing is in doubt: go on…
        </button>
      )}
      {isDisabled && <span class="muted">Your token may look, and change nothing.</span>}
      {asked === "executed" && <ExecutedDialog {...props} />}
      {asked === "not-executed" && <NotExecutedDialog {...props} />}
      {asked === "effect-done" && <GoOnDialog {...props} />}
      {asked === "resume" && <ResumeDialog {...props} />}
    </>
  );
}
