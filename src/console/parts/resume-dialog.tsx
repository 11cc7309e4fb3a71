import { useState } from "preact/hooks";
import { useSettling, type VerdictProps } from "../settling.ts";
import { ActionDialog } from "./dialog.tsx";
import { ReasonField } from "./reason-field.tsx";

/** No call is open: only why the operation stopped was in doubt. */
export function ResumeDialog(props: VerdictProps) {
  const { record, onClose } = props;
  const settle = useSettling(props);
  const [reason, setReason] = useState("");
  const tell = () =>
    settle(
      { kind: "resume", reason: reason.trim() },
      `Settled: the operation of ${record.key} goes on after what is recorded.`,
    );
  return (
    <ActionDialog
      title="Nothing is in doubt: go on"
      action="Go on"
      about={record}
      onAction={tell}
      onClose={onClose}
    >
      <p>
        The operation goes on after its last phase as attempt {record.attempt + 1}, with the next request or a
        worker that has kept this one. <b>Phases that are done are not repeated.</b>
      </p>
      <ReasonField words="Reason, for the audit trail" value={reason} onChange={setReason} />
    </ActionDialog>
  );
}
